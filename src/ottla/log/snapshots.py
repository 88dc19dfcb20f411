"""The producer snapshots of a log (`.snapshot`), each named after the offset up to which it holds the truth.

One is taken at every roll, so that a segment can be recovered from the snapshot at its base, and one at a clean close,
so that the next start need not read any batch. A snapshot carries its own CRC: a torn one is removed and an older one
used.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Iterable

from ottla.errors import Malformed
from ottla.log import files
from ottla.log.producers import MAX_SEQUENCE, BatchMetadata, ProducerEntry, ProducerStates
from ottla.model import NO_OFFSET, NO_SEQUENCE
from ottla.records._hot import crc32c
from ottla.runtime.seams import Disk

_VERSION = 1
_HEAD = struct.Struct(">hI")
"""The file's version, and the CRC-32C of all that follows."""


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    from ottla.wire.messages.producer_snapshot import ProducerEntry as Row
    from ottla.wire.messages.producer_snapshot import ProducerSnapshot

    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        rows.append(
            Row(
                producer_id=entry.producer_id,
                epoch=entry.epoch,
                last_sequence=last.last_sequence if last else NO_SEQUENCE,
                last_offset=last.last_offset if last else NO_OFFSET,
                offset_delta=last.last_offset - last.first_offset if last else 0,
                timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=entry.txn_first_offset,
            )
        )
    body = ProducerSnapshot(producer_entries=rows).encode(_VERSION)[4:]
    return _HEAD.pack(_VERSION, crc32c(body, 0, len(body))) + body


def decode(data: bytes) -> list[ProducerEntry] | None:
    """None if the bytes are not a whole snapshot of a known version."""
    from ottla.wire.messages.producer_snapshot import ProducerSnapshot

    if len(data) < _HEAD.size:
        return None
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data, _HEAD.size, len(data)):
        return None
    try:
        rows = ProducerSnapshot.decode(memoryview(data)[2:], version).producer_entries
    except Malformed:
        return None
    entries = []
    for row in rows:
        entry = ProducerEntry(row.producer_id)
        entry.epoch = row.epoch
        if row.last_offset >= 0:
            first_sequence = row.last_sequence - row.offset_delta if row.last_sequence >= 0 else NO_SEQUENCE
            if row.last_sequence >= 0 > first_sequence:
                first_sequence += MAX_SEQUENCE + 1
            first_offset = row.last_offset - row.offset_delta
            entry.add(BatchMetadata(first_sequence, row.last_sequence, first_offset, row.last_offset, row.timestamp))
        entry.last_timestamp = row.timestamp
        entry.coordinator_epoch = row.coordinator_epoch
        entry.txn_first_offset = row.current_txn_first_offset
        entries.append(entry)
    return entries


class SnapshotFiles:
    """Which snapshots a log has on the disk, and which of them are not synced yet."""

    __slots__ = ("_directory", "_disk", "offsets", "unsynced")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)
        self.unsynced: list[str] = []

    def path(self, offset: int) -> str:
        return f"{self._directory}/{files.file_name(offset, files.SNAPSHOT)}"

    def on_moved(self, directory: str) -> None:
        """The directory has another name now."""
        assert not self.unsynced, "what is moved has been flushed"
        self._directory = directory

    def take(self, states: ProducerStates, offset: int) -> None:
        """Write what is known at `offset`, unless there is such a snapshot. Synced by the next flush."""
        if offset in self.offsets:
            return
        path = self.path(offset)
        file = self._disk.open(path, create=True)
        try:
            data = encode(states.entries.values())
            file.truncate(0)
            file.write(0, data)
        finally:
            file.close()
        insort(self.offsets, offset)
        self.unsynced.append(path)

    def load_latest(self, states: ProducerStates, upper: int, now_ms: int) -> int | None:
        """Fill `states` from the newest whole snapshot at or below `upper`; its offset, or None if there is none.

        Snapshots that turn out to be broken are removed on the way.
        """
        while True:
            slot = bisect_right(self.offsets, upper) - 1
            if slot < 0:
                return None
            offset = self.offsets[slot]
            try:
                entries = decode(self._disk.read_file(self.path(offset)))
            except FileNotFoundError:
                entries = None
            if entries is None:
                self.remove(offset)
                continue
            states.load(entry for entry in entries if not states.is_expired(entry, now_ms))
            return offset

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            path = self.path(offset)
            self._disk.remove(path)
            if path in self.unsynced:
                self.unsynced.remove(path)

    def forget(self, offsets: Iterable[int]) -> None:
        """Count on these no more; somebody else takes their files away."""
        for offset in offsets:
            if offset in self.offsets:
                self.offsets.remove(offset)
                path = self.path(offset)
                if path in self.unsynced:
                    self.unsynced.remove(path)

    def retain(self, wanted: Iterable[int]) -> None:
        """Remove every snapshot that is not at one of `wanted`."""
        keep = set(wanted)
        for offset in [offset for offset in self.offsets if offset not in keep]:
            self.remove(offset)

    def rename_deleted(self, offset: int) -> str | None:
        """Mark the snapshot of a removed segment as deleted; the path to remove later."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        path = self.path(offset)
        if path in self.unsynced:
            self.unsynced.remove(path)
        self._disk.rename(path, path + files.DELETED)
        return path + files.DELETED
