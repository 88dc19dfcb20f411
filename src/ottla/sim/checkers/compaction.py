"""E9 to E14: what compaction may take out of a log, and what it must leave.

Of every compacted partition the records are kept as they were committed, by which nodes have no part in it. Whenever a
replica's segments were replaced, and when it was started again, what is gone must be allowed to be gone: a later value
of its key is committed, its transaction was aborted, or it is a tombstone whose horizon has passed. What is still there
is what was written, at its offset, and a marker stays as long as anything of its transaction does, and as long as a
tombstone would. Who takes a tombstone has taken what it deletes before. What was known of producers can be told from
what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.log import Log
from ottla.model import TopicPartition
from ottla.records import crc_is_valid, iterate, read_end_txn_marker, read_header
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.producer_tables import check_compacted
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine

PASS_MAX_MS = 60_000
"""Longer than this no pass takes, whatever pauses it."""


class Original(NamedTuple):
    """A record as it was committed."""

    key: bytes | None
    value: bytes | None


class _Held(NamedTuple):
    """A record where it lies now."""

    record: Original
    horizon_ms: int | None
    """Of its batch, when tombstones in it may go."""


class _Partition:
    def __init__(self) -> None:
        self.originals: dict[int, Original] = {}
        self.latest: dict[bytes, int] = {}
        """Where each key was last written, by anybody whose write counts."""
        self.open: dict[int, list[int]] = {}
        """Producer id → offsets of its open transaction."""
        self.marker_of: dict[int, int] = {}
        """Offset of a record in a transaction → offset of its marker."""
        self.aborted: set[int] = set()
        self.outlived: set[int] = set()
        """Markers that a pass took when their time was over. Who was behind for so long copies what follows without
        them, and may still have their records: so it is in Kafka, as with tombstones."""
        self.expired: dict[int, set[int]] = {}
        """Tombstones that a pass took when their time was over → the nodes that had them, and have taken them."""
        self.revived: set[bytes] = set()
        """Keys that a replica still has which was behind for so long that it never saw their tombstone."""
        self.end = 0

    def write(self, offset: int, record: Original) -> None:
        if record.key is not None:
            self.latest[record.key] = max(self.latest.get(record.key, -1), offset)


class CompactionChecker:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._enabled = cluster.brokers[0].config.get_bool("log.cleaner.enable")
        self._partitions: dict[TopicPartition, _Partition] = {}
        self.cleaned = 0
        """How often segments were seen to be replaced."""
        self.removed = 0

    def concerns(self, log: Log) -> bool:
        return self._enabled and log.config.compact

    # What became committed.

    def on_committed(self, place: TopicPartition, batch: Batch) -> None:
        if not self._enabled:
            return
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _Partition()
        content = batch.file.content
        header = read_header(content, batch.position)
        partition.end = header.next_offset
        with memoryview(content) as everything, everything[batch.position : batch.position + batch.size] as data:
            for record in iterate(data):
                if header.is_control:
                    marker = read_end_txn_marker(record)
                    if marker is not None:
                        self._on_marker(partition, header.producer_id, record.offset, marker.commit)
                    continue
                original = Original(_bytes(record.key), _bytes(record.value))
                partition.originals[record.offset] = original
                if header.is_transactional:
                    partition.open.setdefault(header.producer_id, []).append(record.offset)
                else:
                    partition.write(record.offset, original)

    def _on_marker(self, partition: _Partition, producer_id: int, marker: int, commit: bool) -> None:
        for offset in partition.open.pop(producer_id, ()):
            partition.marker_of[offset] = marker
            if commit:
                partition.write(offset, partition.originals[offset])
            else:
                partition.aborted.add(offset)

    # What became of it.

    def on_cleaned(
        self, machine: Machine, place: TopicPartition, log: Log, before: list[Batch], after: list[Batch]
    ) -> None:
        """Segments of a running log were replaced."""
        self.cleaned += 1
        partition = self._partitions.get(place, _Partition())
        where = f"{place} on {machine.name}"
        held, had = _records(after), _records(before)
        self._check_gone(machine, partition, where, had, held, log.log_end_offset)
        self.check_held(machine, place, after, log.high_watermark)
        had_markers, markers = _markers(before), _markers(after)
        self._check_markers(machine, partition, where, had_markers, markers, held, log.log_end_offset)
        tombstones = {offset: horizon_ms for offset, (record, horizon_ms) in held.items() if record.value is None}
        had_horizons = {offset: each.horizon_ms for offset, each in had.items()} | had_markers
        self._check_horizons(machine, log, where, had_horizons, tombstones | markers)
        check_compacted(where, log, before, after)

    def on_cleaned_damaged(self, place: TopicPartition, before: list[Batch], after: list[Batch]) -> None:
        """The same on a disk that somebody spoiled: nothing is held against it, but others may copy from it."""
        partition, held = self._partitions.get(place, _Partition()), _records(filter(_is_whole, after))
        for offset, (record, _) in _records(filter(_is_whole, before)).items():
            if record.value is None and offset not in held:
                partition.expired.setdefault(offset, set())

    def on_recovered(
        self, machine: Machine, place: TopicPartition, log: Log, before: list[Batch], after: list[Batch]
    ) -> None:
        """E9: a process died, perhaps in the middle of that, and the next one has started."""
        partition = self._partitions.get(place, _Partition())
        where = f"{place} on {machine.name} after its restart"
        held = _records(after)
        self._check_gone(machine, partition, where, _records(before), held, log.log_end_offset)
        self.check_held(machine, place, after, log.high_watermark)
        self._check_markers(machine, partition, where, _markers(before), _markers(after), held, log.log_end_offset)

    def check_held(self, machine: Machine, place: TopicPartition, batches: list[Batch], end: int) -> None:
        """E10 and E13 of what one replica has before `end`: its high watermark, or more if it is to lead."""
        partition = self._partitions.get(place)
        if partition is None:
            return
        where = f"{place} on {machine.name}"
        held = _records(batches)
        bases = {batch.base for batch in batches}
        for offset, (record, _) in held.items():
            if offset >= min(end, partition.end):
                break
            original = partition.originals.get(offset)
            if record != original:
                raise Violation("E10", f"{where} holds {record} at {offset}, where {original} was committed")
            marker = partition.marker_of.get(offset, end)
            if marker < end and marker not in bases and marker not in partition.outlived:
                raise Violation("E13", f"{where} holds {record} at {offset}, and not the marker at {marker}")
            if offset not in partition.aborted and record.key is not None:
                latest = partition.latest.get(record.key, offset)
                if offset < latest < end and latest not in held:
                    self._on_outlasted(machine, partition, where, offset, latest)
        for key, offset in partition.latest.items():
            if offset < end and offset not in held and partition.originals[offset].value is not None:
                raise Violation("E10", f"{where} does not have the last value of {key!r}, which is at {offset}")

    def _on_outlasted(self, machine: Machine, partition: _Partition, where: str, offset: int, latest: int) -> None:
        """A value is there at `offset`, and not what was last written of its key: which then was a tombstone."""
        record = partition.originals[offset]
        expired = partition.expired.get(latest)
        if expired is None or record.key is None:
            return  # It was lost otherwise, which others look at.
        if machine.id in expired:
            raise Violation("E10", f"{where} took the tombstone at {latest}, and still holds {record} at {offset}")
        partition.revived.add(record.key)

    def on_end(self, machine: Machine, place: TopicPartition, end: int) -> None:
        """A replica ends here, having been cut or started: what it had after that is copied anew, or without gaps."""
        partition = self._partitions.get(place)
        for offset, nodes in (partition.expired if partition is not None else {}).items():
            if offset >= end:
                nodes.discard(machine.id)

    def revived(self, place: TopicPartition) -> set[bytes]:
        """Keys that may be there although they were deleted, as of the last look at each replica."""
        partition = self._partitions.get(place)
        return partition.revived if partition is not None else set()

    def _check_gone(
        self,
        machine: Machine,
        partition: _Partition,
        where: str,
        had: dict[int, _Held],
        held: dict[int, _Held],
        end: int,
    ) -> None:
        now_ms = machine.clock.highest_wall_ms
        for offset, (record, horizon_ms) in had.items():
            if offset in held or offset >= end:
                continue
            if offset >= partition.end:
                raise Violation("E12", f"{where} lost {record} at {offset}, and only {partition.end} is committed")
            self.removed += 1
            superseded = record.key is not None and partition.latest.get(record.key, -1) > offset
            if superseded or offset in partition.aborted:
                continue
            if record.value is not None:
                raise Violation("E10", f"{where} lost {record} at {offset}, and nothing later took its place")
            if horizon_ms is None or horizon_ms > now_ms:
                raise Violation(
                    "E11", f"{where} lost the tombstone {record} at {offset} before its time ({horizon_ms}, {now_ms})"
                )
            partition.expired.setdefault(offset, set()).add(machine.id)

    def _check_markers(
        self,
        machine: Machine,
        partition: _Partition,
        where: str,
        had: dict[int, int | None],
        markers: dict[int, int | None],
        held: dict[int, _Held],
        end: int,
    ) -> None:
        """E11 and E13, of markers that are gone."""
        gone = {offset: horizon_ms for offset, horizon_ms in had.items() if offset not in markers and offset < end}
        for offset, horizon_ms in gone.items():
            if horizon_ms is None or horizon_ms > machine.clock.highest_wall_ms:
                raise Violation("E11", f"{where} lost the marker at {offset} before its time ({horizon_ms})")
        for offset, (record, _) in held.items():
            marker = partition.marker_of.get(offset)
            if marker in gone:
                raise Violation("E13", f"{where} lost the marker at {marker} and still holds {record} at {offset}")
        partition.outlived.update(gone)

    def _check_horizons(
        self, machine: Machine, log: Log, where: str, had: dict[int, int | None], held: dict[int, int | None]
    ) -> None:
        """E11: the first pass that could remove a tombstone, or a marker, gives it as long as is promised. What the log
        did not have before was copied meanwhile, with what another pass had given it, by the time of another machine.
        """
        if machine.clock.steps:
            return  # By whose time?
        least_ms = machine.clock.wall_ms() - PASS_MAX_MS + log.config.delete_retention_ms
        for offset, horizon_ms in held.items():
            if horizon_ms is not None and had.get(offset, horizon_ms) is None and horizon_ms < least_ms:
                raise Violation("E11", f"{where} lets the tombstone or marker at {offset} go at {horizon_ms}")


def _is_whole(batch: Batch) -> bool:
    return crc_is_valid(batch.file.content, batch.position, batch.size)


def _records(batches: Iterable[Batch]) -> dict[int, _Held]:
    """Every record of data, by offset."""
    found: dict[int, _Held] = {}
    for batch in batches:
        content = batch.file.content
        header = read_header(content, batch.position)
        if header.is_control:
            continue
        horizon_ms = header.base_timestamp if header.has_delete_horizon else None
        with memoryview(content) as everything, everything[batch.position : batch.position + batch.size] as data:
            for record in iterate(data):
                found[record.offset] = _Held(Original(_bytes(record.key), _bytes(record.value)), horizon_ms)
    return found


def _markers(batches: Iterable[Batch]) -> dict[int, int | None]:
    """Every marker's offset, and when it may go, if that is known."""
    found: dict[int, int | None] = {}
    for batch in batches:
        header = read_header(batch.file.content, batch.position)
        if header.is_control and header.record_count:
            found[header.base_offset] = header.base_timestamp if header.has_delete_horizon else None
    return found


def _bytes(data: bytes | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)
