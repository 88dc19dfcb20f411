"""One segment: a file of batches from a base offset on, with its three indexes.

A segment is active (the last one, appended to), then sealed. While it is active, and until a flush has put its indexes
on the disk, it holds them in memory; afterwards they are read on demand through the `IndexCache`. Driven by `Log`,
which keeps the hot path of appends in its own hands and reaches into these fields for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from random import Random

from ottla.log import files, scan, txn_index
from ottla.log.index_cache import IndexCache
from ottla.log.log_config import LogConfig
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.txn_index import AbortedTxn
from ottla.model import NO_TIMESTAMP
from ottla.runtime.seams import Disk, File

MAX_RELATIVE_OFFSET = (1 << 31) - 1
TAIL_BATCHES = 1024
"""How many of the last batches an active segment remembers the boundaries of, at least half of it."""

UNKNOWN_TIMESTAMP = -2
"""A sealed segment's largest timestamp before its time index was looked at."""

_FOREVER = 1 << 63


class Segment:
    __slots__ = (
        "_disk",
        "_index_interval",
        "_open_file",
        "_stem",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "indexed_position",
        "jitter_ms",
        "max_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "preallocated",
        "roll_after_ms",
        "size",
        "tail_last",
        "tail_positions",
        "tail_start",
        "times",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, created_ms: int, index_interval: int
    ) -> None:
        self._disk = disk
        self._stem = f"{directory}/{files.file_name(base_offset, '')}"
        self._open_file: File | None = None
        self.base_offset = base_offset
        self.size = size
        """Bytes of batches; a preallocated file is longer."""
        self.created_ms = created_ms
        self._index_interval = index_interval
        self.jitter_ms = 0
        self.preallocated = False
        self.first_timestamp: int | None = None
        """The largest timestamp of the first batch, from which `segment.ms` counts; None while unknown or empty."""
        self.max_timestamp = UNKNOWN_TIMESTAMP
        """The largest timestamp of any record so far, -1 if there is none. A batch that compaction emptied has none."""
        self.max_timestamp_offset = base_offset
        """The last offset of the first batch that has it."""
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.aborted: list[AbortedTxn] | None = None
        """All three: None if they are on the disk and not held here. A list of no aborted transactions is always held:
        without it each reader of committed records would look for a file that is not there."""
        self.indexed_position = 0
        """Where the batch of the last offset index entry starts; 0 if there is none."""
        self.max_offset = base_offset + MAX_RELATIVE_OFFSET
        """No larger offset fits; below everything once an index is full."""
        self.roll_after_ms = _FOREVER
        """A batch with a larger timestamp goes to the next segment."""
        self.tail_start = -1
        """The tail's arrays cover all offsets from here to the segment's end; -1 if there is no tail."""
        self.tail_last = array("q")
        self.tail_positions = array("q")

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, config: LogConfig, random: Random, now_ms: int
    ) -> Segment:
        """A new active segment. Only the log file is made; the indexes' files come with the first flush or close."""
        segment = cls(
            disk, directory, base_offset, size=0, created_ms=now_ms, index_interval=config.index_interval_bytes
        )
        segment._open_file = file = disk.open(segment.path(files.LOG), create=True)
        file.truncate(0)  # What a crashed process left there was never acknowledged as part of the log.
        if config.preallocate:
            file.preallocate(config.segment_bytes)
            segment.preallocated = True
        jitter_bound_ms = min(config.segment_jitter_ms, config.segment_ms)
        if jitter_bound_ms > 0:
            segment.jitter_ms = random.randrange(jitter_bound_ms)
        segment.hold_empty_indexes()
        segment.tail_start = base_offset
        return segment

    def path(self, suffix: str) -> str:
        return self._stem + suffix

    def on_moved(self, directory: str) -> None:
        """The directory has another name now; a file that is open stays open."""
        self._stem = f"{directory}/{files.file_name(self.base_offset, '')}"

    @property
    def file(self) -> File:
        if self._open_file is None:
            self._open_file = self._disk.open(self.path(files.LOG))
        return self._open_file

    def open_as(self, path: str) -> None:
        """Open the log file, which does not have its name yet."""
        self._open_file = self._disk.open(path)

    def hold_empty_indexes(self) -> None:
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.aborted = []
        self.indexed_position = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset

    def index(self, last_offset: int, position: int, config: LogConfig) -> None:
        """The batch at `position`, which ends with `last_offset`, gets an entry in both indexes."""
        assert self.offsets is not None
        assert self.times is not None
        base = self.base_offset
        self.offsets.append(last_offset - base, position)
        self.times.append(self.max_timestamp, self.max_timestamp_offset - base)
        self.indexed_position = position
        if len(self.offsets) >= config.max_offset_index_entries or len(self.times) >= config.max_time_index_entries:
            self.max_offset = -1

    # The tail: boundaries of the last batches, so that a read at the log's end needs no disk.

    def trim_tail(self) -> None:
        """Forget the older half of the tail."""
        half = len(self.tail_last) // 2
        self.tail_start = self.tail_last[half - 1] + 1
        del self.tail_last[:half]
        del self.tail_positions[:half]

    def drop_tail(self) -> None:
        self.tail_start = -1
        self.tail_last = array("q")
        self.tail_positions = array("q")

    # Finding.

    def offset_index(self, cache: IndexCache) -> OffsetIndex:
        return self.offsets if self.offsets is not None else cache.offset_index(self)

    def time_index(self, cache: IndexCache) -> TimeIndex:
        return self.times if self.times is not None else cache.time_index(self)

    def locate(self, offset: int, cache: IndexCache, chunk: int) -> tuple[int, int] | None:
        """Position and size of the first batch whose last offset is `offset` or more; None if none is.

        One read of `chunk` bytes is enough unless a single batch is larger, whatever the segment's size.
        """
        if self.tail_start >= 0 and offset >= self.tail_start:
            slot = bisect_left(self.tail_last, offset)
            if slot == len(self.tail_last):
                return None
            position = self.tail_positions[slot]
            following = self.tail_positions[slot + 1] if slot + 1 < len(self.tail_last) else self.size
            return position, following - position
        start, guess = self.offset_index(cache).around(max(0, offset - self.base_offset))
        if guess - start > chunk:
            # Large batches, most likely with an entry each: then the one is at the entry and nowhere before it.
            guessed = scan.header_at(self.file, guess, self.size)
            if guessed is not None and guessed.base_offset <= offset:
                return guess, guessed.size
        for position, header in scan.headers(self.file, start, self.size, chunk):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header.size
        return None

    def largest_timestamp(self) -> int:
        """The largest timestamp of any record, or -1."""
        if self.max_timestamp == UNKNOWN_TIMESTAMP:
            timestamp, relative_offset = self._last_time_entry()
            self.max_timestamp = timestamp
            self.max_timestamp_offset = self.base_offset + relative_offset
        return self.max_timestamp

    def _last_time_entry(self) -> tuple[int, int]:
        try:
            file = self._disk.open(self.path(files.TIME_INDEX))
        except FileNotFoundError:
            return self.load_time_index().last
        try:
            size = file.size()
            last = TimeIndex.decode(file.read(size - 12, 12)) if size and size % 12 == 0 else None
        finally:
            file.close()
        if last is None:
            return self.load_time_index().last
        return last.last

    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if the segment is empty."""
        if self.first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            first = scan.header_at(self.file, 0, self.size)
            self.first_timestamp = first.max_timestamp if first is not None else NO_TIMESTAMP
        return self.first_timestamp

    def aborted_transactions(self, cache: IndexCache) -> list[AbortedTxn]:
        return self.aborted if self.aborted is not None else cache.aborted(self)

    def load_aborted(self) -> list[AbortedTxn] | None:
        """From the disk; None if the file makes no sense. That it is missing is no mistake: most segments have none."""
        try:
            data = self._disk.read_file(self.path(files.TXN_INDEX))
        except FileNotFoundError:
            self.aborted = []
            return self.aborted
        return txn_index.decode(data, self.base_offset)

    # Loading and building indexes.

    def load_offset_index(self) -> OffsetIndex:
        """From the disk; built from the log where the file is missing or makes no sense."""
        try:
            index = OffsetIndex.decode(self._disk.read_file(self.path(files.OFFSET_INDEX)), self.size)
        except FileNotFoundError:
            index = None
        return index if index is not None else self.build_indexes()[0]

    def load_time_index(self) -> TimeIndex:
        try:
            index = TimeIndex.decode(self._disk.read_file(self.path(files.TIME_INDEX)))
        except FileNotFoundError:
            index = None
        return index if index is not None else self.build_indexes()[1]

    def build_indexes(self, *, note_end: bool = False) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes as a replay of the segment's headers gives them; with `note_end` as `seal` leaves them."""
        offsets, times = OffsetIndex(), TimeIndex()
        base, interval = self.base_offset, self._index_interval
        largest, largest_offset = NO_TIMESTAMP, base
        last, position = base, -1
        for position, header in scan.headers(self.file, 0, self.size, 1 << 20):
            last = header.base_offset + header.last_offset_delta
            if header.record_count and header.max_timestamp > largest:
                largest, largest_offset = header.max_timestamp, last
            if position - offsets.last_position > interval:
                offsets.append(last - base, position)
                times.append(largest, largest_offset - base)
        if note_end and position >= 0:
            offsets.note_last(last - base, position)
        times.append(largest, largest_offset - base)
        return offsets, times

    # Files.

    def encode_indexes(self) -> list[tuple[str, bytes]]:
        """Suffix and bytes of each index file; a transaction index only if there is anything in it."""
        assert self.offsets is not None
        assert self.times is not None
        encoded = [(files.OFFSET_INDEX, self.offsets.encode()), (files.TIME_INDEX, self.times.encode())]
        if self.aborted:
            encoded.append((files.TXN_INDEX, txn_index.encode(self.aborted)))
        return encoded

    def write_index_files(self, encoded: list[tuple[str, bytes]]) -> None:
        """Put them on the disk for good. Blocks."""
        for suffix, data in encoded:
            file = self._disk.open(self.path(suffix), create=True)
            try:
                if file.size() != len(data):
                    file.truncate(len(data))
                file.write(0, data)
                file.sync()
            finally:
                file.close()
        if len(encoded) < len(files.INDEXES):
            self._disk.remove(self.path(files.TXN_INDEX))

    def trim(self) -> None:
        """Give back what was preallocated and not used."""
        if self.preallocated:
            self.file.truncate(self.size)
            self.preallocated = False

    def seal(self, *, note_end: bool) -> None:
        """No more appends: the time index gets its last entry, the largest timestamp, and with `note_end` the offset
        index its own, the last batch."""
        self.note_largest_timestamp()
        if note_end:
            self.note_last_batch()
        self.trim()
        self.drop_tail()

    def note_last_batch(self) -> None:
        """Make the last batch the offset index's last entry."""
        assert self.offsets is not None
        if self.tail_last:
            self.offsets.note_last(self.tail_last[-1] - self.base_offset, self.tail_positions[-1])
            return
        last = None
        for position, header in scan.headers(self.file, self.offsets.last_position, self.size):
            last = (header.last_offset - self.base_offset, position)
        if last is not None:
            self.offsets.note_last(*last)

    def note_largest_timestamp(self) -> None:
        """Make the largest timestamp the time index's last entry."""
        assert self.times is not None
        self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def cut(self, offset: int, cache: IndexCache) -> int:
        """Become active again without the batches from `offset` on; where the segment then ends.

        That is before `offset` if a batch spans it: half a batch cannot be kept. And it is where the last whole batch
        ends if a damaged disk has left something else behind it: what is appended next must not lie behind that.
        """
        found = self.locate(offset, cache, 1 << 16)
        # Copies: a flush under way must see that its segment is not the one it captured any more.
        self.offsets = self.offset_index(cache).copy()
        self.times = self.time_index(cache).copy()
        self.aborted = list(self.aborted_transactions(cache))
        cache.forget(self)
        if found is not None:
            position = found[0]
            first = scan.header_at(self.file, position, self.size)
            assert first is not None
            offset = min(offset, first.base_offset)
            self._cut_file(position)
        else:
            position, end = self._whole_until()
            if position < self.size:
                offset = min(offset, end)
                self._cut_file(position)
        relative = offset - self.base_offset
        self.offsets.truncate(relative)
        self.times.truncate(relative)
        self.aborted = [txn for txn in self.aborted if txn.last_offset < offset]
        self.indexed_position = self.offsets.last_position
        self.max_offset = self.base_offset + MAX_RELATIVE_OFFSET
        self.max_timestamp, relative = self.times.last
        self.max_timestamp_offset = self.base_offset + relative
        for _, header in scan.headers(self.file, self.indexed_position, self.size):
            if header.record_count and header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self.drop_tail()
        self.tail_start = offset
        if not self.size:
            self.first_timestamp = None
            self.roll_after_ms = _FOREVER
        return offset

    def _cut_file(self, position: int) -> None:
        self.file.truncate(position)
        self.size = position
        self.preallocated = False

    def _whole_until(self) -> tuple[int, int]:
        """Where the last whole batch ends, in the file and in offsets: at the base if there is none."""
        assert self.offsets is not None
        position, end = 0, self.base_offset
        for start in (self.offsets.last_position, 0):
            for at, header in scan.headers(self.file, start, self.size):
                position, end = at + header.size, header.next_offset
            if position:
                break
        return position, end

    def rename_deleted(self) -> list[str]:
        """Mark all files as deleted and return their paths; an open file stays readable until it is closed."""
        renamed = []
        for suffix in (files.LOG, *files.INDEXES):
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + files.DELETED)
                renamed.append(path + files.DELETED)
        return renamed

    def remove_files(self) -> None:
        """The log first: without it the rest is an orphan that the next load removes."""
        self._disk.remove(self.path(files.LOG))
        self.remove_indexes()

    def remove_indexes(self) -> None:
        for suffix in files.INDEXES:
            self._disk.remove(self.path(suffix))

    def close(self) -> None:
        if self._open_file is not None:
            self._open_file.close()
            self._open_file = None
