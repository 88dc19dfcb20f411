"""The segment that compaction writes, as `.cleaned` files: the log, and the three indexes that follow from it."""

from __future__ import annotations

import struct

from ottla.log import files, txn_index
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.txn_index import AbortedTxn
from ottla.model import NO_TIMESTAMP
from ottla.runtime.seams import Disk

_HEAD = struct.Struct(">qi11xi8xq14xi")
"""Of a batch's header: base offset, length, last offset delta, max timestamp, record count."""
_OVERHEAD = 12


class CleanedSegment:
    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_indexed_position",
        "_interval",
        "_last",
        "_offsets",
        "_times",
        "base_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._interval = index_interval_bytes
        self._indexed_position = 0
        self._last = (0, 0)
        """Of the last batch: its last offset, relative to the base, and its position."""
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._file = disk.open(self._path(files.LOG), create=True)
        self._file.truncate(0)

    def append(self, batches: bytes | memoryview) -> None:
        """Whole batches that follow what is there."""
        self._file.write(self.size, batches)
        at, end, start = 0, len(batches), self.size
        base, interval = self.base_offset, self._interval
        while at < end:
            offset, length, delta, timestamp, count = _HEAD.unpack_from(batches, at)
            position = start + at
            if count and timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, offset + delta
            if position - self._indexed_position > interval:
                self._offsets.append(offset + delta - base, position)
                self._times.append(self.max_timestamp, self.max_timestamp_offset - base)
                self._indexed_position = position
            self._last = (offset + delta - base, position)
            at += length + _OVERHEAD
        self.size = start + end
        self._file.write_back(start, end)

    def finish(self, aborted: list[AbortedTxn]) -> None:
        """Make all of it durable. Blocks."""
        self._file.sync()
        self._file.close()
        if self.size:
            self._offsets.note_last(*self._last)
        self._times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self._write(files.OFFSET_INDEX, self._offsets.encode())
        self._write(files.TIME_INDEX, self._times.encode())
        if aborted:
            self._write(files.TXN_INDEX, txn_index.encode(aborted))
        self._disk.sync_dir(self._directory)

    def _write(self, suffix: str, data: bytes) -> None:
        file = self._disk.open(self._path(suffix), create=True)
        try:
            file.truncate(0)
            file.write(0, data)
            file.sync()
        finally:
            file.close()

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{files.file_name(self.base_offset, suffix)}{files.CLEANED}"
