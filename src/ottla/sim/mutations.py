"""Historic bugs, put back into the real classes for the time of a run: the proof that the checkers see.

Each replaces a method or two by one with the mistake in it. Product code knows nothing of this. A mutation names the
invariants that it must break and within how many seeds that must show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    name: str
    what: str
    breaks: tuple[str, ...]
    """The invariants, any of which may be the first to show it."""
    apply: Callable[[Patches], None]
    seeds: int = 20
    """Within so many seeds it must have been caught."""
    nodes: int | None = None


class Patches:
    """Replaces attributes and puts them back."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Set `owner.name`; what was there before."""
        before = owner.__dict__[name] if name in getattr(owner, "__dict__", {}) else getattr(owner, name)
        setattr(owner, name, value)
        self._stack.callback(setattr, owner, name, before)
        return before


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """With the bug in the nodes, if there is to be one."""
    with ExitStack() as stack:
        if name is not None:
            MUTATIONS[name].apply(Patches(stack))
        yield


# Storage.


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


def _torn_checkpoint(patches: Patches) -> None:
    """Checkpoints are written in place."""
    from ottla.sim.disk import SimDisk

    def write_atomically(self: SimDisk, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.write(0, data)
        file.sync()
        file.close()
        self.sync_dir(path.rpartition("/")[0])

    patches.replace(SimDisk, "write_atomically", write_atomically)


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


MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        Mutation(
            name="recovery-point-ahead-of-flush",
            what="recovery moves the recovery point without flushing what it kept (KAFKA-10101)",
            breaks=("E3", "E2"),
            apply=_recovery_point_ahead_of_flush,
        ),
        Mutation(
            name="phantom-after-recovery",
            what="recovery believes the page cache after a failed sync, and the next power loss takes it",
            breaks=("E3", "E4", "E2"),
            apply=_phantom_after_recovery,
            seeds=60,
        ),
        Mutation(
            name="torn-checkpoint",
            what="checkpoint files are written in place",
            breaks=("E8", "L0", "BUG", "B2", "E7"),
            apply=_torn_checkpoint,
            seeds=60,
        ),
        Mutation(
            name="ack-before-fsync",
            what="flush.messages=1 does not hold the acknowledgement back",
            breaks=("E2", "A1", "H2", "H3", "A6", "H4"),
            apply=_ack_before_fsync,
            seeds=40,
        ),
        Mutation(
            name="sync-error-ignored",
            what="a failed fsync is tried again, and its success believed",
            breaks=("E3", "E2"),
            apply=_sync_error_ignored,
            seeds=60,
        ),
        Mutation(
            name="directory-not-synced",
            what="new files are synced but not the directory that names them",
            breaks=("E3", "E2", "L0", "E1"),
            apply=_no_directory_sync,
        ),
        Mutation(
            name="recovery-without-checksums",
            what="recovery keeps a torn batch whose header survived",
            breaks=("E1", "A22", "H0", "BUG", "E7"),
            apply=_tail_not_checked,
            seeds=60,
        ),
    )
}
