"""Historic bugs of logs on their disks, as `mutations` has those of the rest."""

from __future__ import annotations

from typing import Any

from ottla.sim.mutation import Mutation, Patches


def _recovery_point_ahead_of_flush(patches: Patches) -> None:
    """KAFKA-10101: what recovery has read counts as flushed."""
    from ottla.log.log import Log

    def flush(self: Log, now_ms: int, *, sync_parent: bool = True) -> None:
        # The recovery point moves; the disk hears nothing.
        self.recovery_point = self.log_end_offset
        self.last_flush_ms = now_ms

    patches.replace(Log, "flush", flush)


def _phantom_after_recovery(patches: Patches) -> None:
    """Recovery trusts the page cache after a failed sync."""
    from ottla.log import recovery

    patches.replace(recovery._Loader, "_write_again", lambda self, segment, position, end: None)


def _ack_before_fsync(patches: Patches) -> None:
    """With flush.messages=1, what was appended counts before it is synced."""
    from ottla.broker.replica_manager import ReplicaManager

    before = ReplicaManager.__dict__["flush"]

    def flush(self: Any, partition: Any) -> None:
        if partition.gated:
            partition.gated = False
            partition.durable_offset = partition.log.log_end_offset
            self._on_durable(partition)
        before(self, partition)

    patches.replace(ReplicaManager, "flush", flush)


def _sync_error_ignored(patches: Patches) -> None:
    """A failed sync is retried, and believed when it succeeds."""
    from ottla.log.flush import Flush
    from ottla.runtime.seams import DiskError

    before = Flush.__dict__["_run"]

    def run(self: Any) -> None:
        for _ in range(50):
            try:
                before(self)
            except DiskError:
                continue
            return

    patches.replace(Flush, "run", run)


def _no_directory_sync(patches: Patches) -> None:
    """New files are synced, and the directory that names them is not."""
    from ottla.sim.disk import SimDisk

    patches.replace(SimDisk, "sync_dir", lambda self, path: None)


def _tail_not_checked(patches: Patches) -> None:
    """Recovery takes what lies at the end of a file for a batch if its header looks like one."""
    from ottla.log import scan

    patches.replace(scan, "crc_is_valid", lambda buffer, position, size: True)


def _old_topic_served(patches: Patches) -> None:
    """Before KIP-516: a log is known by the name of its topic alone, and serves the next of that name."""
    from ottla.broker.node import Node

    before = Node.__dict__["_set_strays_apart"]

    def set_strays_apart(self: Any, image: Any) -> None:
        for partition, log in self._logs.logs.items():
            topic = image.topic(partition.topic)
            if topic is not None:
                log.topic_id = topic.topic_id
        before(self, image)

    patches.replace(Node, "_set_strays_apart", set_strays_apart)


def _damaged_metadata_replayed(patches: Patches) -> None:
    """A node replays its metadata log without a look at the checksums."""
    from ottla.broker.control import metadata_log

    patches.replace(metadata_log, "crc_is_valid", lambda batch, position, size: True)


def _shortened_metadata_believed(patches: Patches) -> None:
    """A node takes its metadata log as it finds it, though it ended later when it was closed."""
    from ottla.log import losses

    patches.replace(losses, "refuse_losses", lambda disk, directory, segments, closed_at: None)


STORAGE_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        name="recovery-point-ahead-of-flush",
        what="recovery moves the recovery point without flushing what it kept (KAFKA-10101)",
        breaks=("E3", "E2"),
        apply=_recovery_point_ahead_of_flush,
        nodes=1,
    ),
    Mutation(
        name="phantom-after-recovery",
        what="recovery believes the page cache after a failed sync, and the next power loss takes it",
        breaks=("E3", "E4", "E2"),
        apply=_phantom_after_recovery,
        seeds=60,
        nodes=1,
    ),
    Mutation(
        name="ack-before-fsync",
        what="flush.messages=1 does not hold the acknowledgement back",
        breaks=("E2", "A1", "H2", "H3", "A6", "H4"),
        apply=_ack_before_fsync,
        seeds=40,
        nodes=1,
    ),
    Mutation(
        name="sync-error-ignored",
        what="a failed fsync is tried again, and its success believed",
        breaks=("E3", "E2"),
        apply=_sync_error_ignored,
        seeds=60,
        nodes=1,
    ),
    Mutation(
        name="directory-not-synced",
        what="new files are synced but not the directory that names them",
        breaks=("E3", "E2", "L0", "E1"),
        apply=_no_directory_sync,
        nodes=1,
    ),
    Mutation(
        name="recovery-without-checksums",
        what="recovery keeps a torn batch whose header survived",
        breaks=("E1", "A22", "H0", "BUG", "E7"),
        apply=_tail_not_checked,
        seeds=60,
    ),
    Mutation(
        name="old-topic-served",
        what="a log is known by the name of its topic alone, and serves the next of that name (before KIP-516)",
        breaks=("A27",),
        apply=_old_topic_served,
        with_fleeting=True,
        kinds=("topic anew", "process crash", "controlled shutdown"),
    ),
    Mutation(
        name="damaged-metadata-replayed",
        what="a node replays its metadata log without a look at the checksums",
        breaks=("E16", "BUG"),
        apply=_damaged_metadata_replayed,
        kinds=("metadata damage",),
    ),
    Mutation(
        name="shortened-metadata-believed",
        what="a node takes its metadata log as it finds it, though it ended later when it was closed",
        breaks=("E16",),
        apply=_shortened_metadata_believed,
        kinds=("metadata damage",),
    ),
)
