"""Section E, of one log of one process: what its disk holds, would keep, and gave back after a death.

Driven by `replicas`, which knows when a log has moved. Nothing here is asked of a disk that was damaged on purpose.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.hosted import HostedPartition
from ottla.log import files
from ottla.log.checkpoints import decode_partition_metadata
from ottla.log.log import Log
from ottla.model import TopicPartition, Uuid, uuid_to_text
from ottla.records import crc_is_valid
from ottla.sim.checkers.compaction import CompactionChecker
from ottla.sim.checkers.ledger import Ledger
from ottla.sim.checkers.mirror import Mirror, durable_end
from ottla.sim.checkers.producer_tables import check_producers
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Machine
from ottla.sim.volume import FileNode, Volume


class Watch:
    """One log of one process."""

    __slots__ = (
        "committed",
        "compacted",
        "end",
        "high_watermark",
        "hosted",
        "leader",
        "ledger",
        "log",
        "mirror",
        "noted",
        "pending",
        "place",
        "recovery_point",
        "start",
        "swap",
        "where",
    )

    def __init__(
        self,
        place: TopicPartition,
        log: Log,
        hosted: HostedPartition | None,
        ledger: Ledger,
        mirror: Mirror,
        where: str,
        *,
        compacted: bool,
    ) -> None:
        self.place = place
        self.log = log
        self.hosted = hosted
        self.ledger = ledger
        self.mirror = mirror
        self.where = where
        self.compacted = compacted
        self.end = self.start = self.high_watermark = self.recovery_point = -1
        self.leader: object = None
        self.pending: object = None
        """What it, as the leader, has last asked the controller for."""
        self.committed = 0
        """How many of the mirror's first batches were held against the ledger."""
        self.swap: object = None
        """By which its segments were being replaced. Each is looked at, also where nobody writes: what two passes did,
        seen as one, looks as if tombstones had gone before their time."""
        self.noted = 0
        """How many were noted in the lineage."""

    @property
    def untouched(self) -> int:
        """From this offset on no compaction has changed anything."""
        return self.log._active.base_offset if self.compacted else 0


class Damage(NamedTuple):
    """What was spoiled on purpose."""

    directory: str
    """Of the log."""
    offset: int
    """The first that is not what it was."""


class Remains:
    """What was known of a log when its process died."""

    __slots__ = ("durable", "log_start", "mirror", "power", "recovery_point", "untouched")

    def __init__(self, watch: Watch, power: bool, durable: int) -> None:
        self.mirror = list(watch.mirror.batches)
        self.recovery_point = watch.log.recovery_point
        self.log_start = watch.log.log_start_offset
        self.untouched = watch.untouched
        self.power = power
        self.durable = durable


def check_identity(volume: Volume, log: Log, topic_id: Uuid, where: str) -> None:
    """A27: what is hosted as a partition of a topic is that topic's, and not of another with the same name."""
    if log.topic_id != topic_id:
        raise Violation("A27", f"{where} is hosted as {uuid_to_text(topic_id)}, and is of {uuid_to_text(log.topic_id)}")
    stored = volume.find(f"{log.directory}/{files.PARTITION_METADATA}")
    known = decode_partition_metadata(bytes(stored.content)) if isinstance(stored, FileNode) else None
    if known is not None and known != topic_id:
        raise Violation(
            "A27", f"{where} is hosted as {uuid_to_text(topic_id)}, and its disk says {uuid_to_text(known)}"
        )


def check_log_start(watch: Watch, start: int) -> None:
    """E15: a log begins where somebody asked it to, or with a segment where the topic keeps only so much; and nothing
    goes that is not committed."""
    ledger, log = watch.ledger, watch.log
    if start > ledger.end:
        raise Violation("E15", f"{watch.where} begins at {start}, and only {ledger.end} is committed")
    if start not in ledger.starts:
        if log.config.retention_bytes < 0 or start not in log.segment_base_offsets:
            raise Violation("E15", f"{watch.where} begins at {start}, and nobody has asked for that")
        ledger.starts.add(start)
    ledger.start = max(ledger.start, start)


def check_synced(machine: Machine, watch: Watch, before: int) -> None:
    """E2, of what flush.messages=1 promises: what counts as committed here is on the disk here."""
    batches = watch.mirror.batches[watch.mirror.index_of(before) : watch.committed]
    durable = durable_end(machine.volume, batches)
    if batches and durable < batches[-1].next:
        raise Violation(
            "E2",
            f"{watch.where} has flush.messages=1 and moved the high watermark to {watch.high_watermark}, and after "
            f"a power loss the log would end at {durable}",
        )


def check_recovery_point(machine: Machine, watch: Watch) -> None:
    """E3: below the recovery point everything would survive a power loss."""
    if watch.log._swap is not None:
        return  # Some of it has two names, and some has none yet.
    batches = watch.mirror.batches
    point = watch.recovery_point
    first = watch.mirror.index_of(max(0, point - 200))
    below = [batch for batch in batches[first:] if batch.next <= point]
    if below and durable_end(machine.volume, below) < below[-1].next:
        raise Violation(
            "E3",
            f"{watch.where} has the recovery point {point}, but after a power loss the log would end at "
            f"{durable_end(machine.volume, below)}",
        )


def check_clean_close(machine: Machine, watch: Watch) -> None:
    """E5: the marker of a clean shutdown says that everything is on the disk."""
    directory = watch.log.directory.rpartition("/")[0]
    if machine.volume.find(f"{directory}/{files.CLEAN_SHUTDOWN}") is None:
        return
    batches = watch.mirror.batches[watch.mirror.index_of(watch.untouched) :]
    if batches and durable_end(machine.volume, batches) < batches[-1].next:
        raise Violation("E5", f"{watch.where} was closed cleanly, and would lose records with the power")


def check_recovery(machine: Machine, watch: Watch, remains: Remains, compaction: CompactionChecker) -> None:
    """E1 and E2: the recovered log is a prefix of what was written, and nothing that was synced is missing."""
    if watch.start != remains.log_start:
        return
    old, new = remains.mirror, watch.mirror.batches
    if watch.compacted:
        compaction.on_recovered(machine, watch.place, watch.log, old, new)
        old, new = ([batch for batch in each if batch.base >= remains.untouched] for each in (old, new))
    for before, after in zip(old, new, strict=False):
        if not before.same(after):
            raise Violation("E1", f"{watch.where} held {before} and after recovery holds {after}")
    if remains.power:
        least = max(remains.durable, remains.recovery_point if remains.durable >= 0 else -1)
        if watch.end < least:
            raise Violation("E2", f"{watch.where} ends at {watch.end} after a power loss, though {least} was synced")
    elif old and watch.end < old[-1].next:
        raise Violation(
            "E1", f"{watch.where} ends at {watch.end} after its process died, though {old[-1].next} was written"
        )


def check_checksums(watch: Watch) -> None:
    for batch in watch.mirror.batches:
        if not crc_is_valid(batch.file.content, batch.position, batch.size):
            raise Violation("E1", f"{watch.where}: {batch} does not have the checksum that it claims")


def check_whole(machine: Machine, watch: Watch) -> None:
    """E1, E7 and D2, of every batch."""
    check_checksums(watch)
    epochs: list[tuple[int, int]] = []
    for batch in watch.mirror.batches:
        if not epochs or batch.epoch > epochs[-1][0]:
            epochs.append((batch.epoch, batch.base))
    known = [(epoch, start) for epoch, start in watch.log.epochs.entries if start < watch.end]
    if watch.compacted:
        # All of an epoch may be gone, or its first batches: then the cache still knows where it began.
        remaining = dict(known)
        right = all(epoch in remaining and remaining[epoch] <= start for epoch, start in epochs)
    else:
        right = [epoch for epoch, _ in known] == [epoch for epoch, _ in epochs] and known[1:] == epochs[1:]
    if not right:
        raise Violation("E7", f"{watch.where}: the epochs are {epochs}, and the cache says {known}")
    check_table(machine, watch)


def check_table(machine: Machine, watch: Watch) -> int:
    """D2 and D21, of a log of a topic. How many producers it has forgotten."""
    if watch.hosted is None:
        return 0
    return check_producers(
        machine,
        watch.where,
        watch.log,
        watch.mirror.batches,
        compacted=watch.compacted,
        written=watch.ledger.written,
    )
