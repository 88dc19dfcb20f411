"""One pass of compaction over a log's files: learn where each key was last written, then write what stays.

Runs apart from the event loop, in a process of its own where there is one, and sees the log only through its files,
which nobody changes: sealed segments are written once. What it writes are `.cleaned` files, which are nothing until
the loop swaps them in (`swap`). Each segment is reported as soon as it is whole, so that the log shrinks as the pass
goes on.

Of every key below the end of the map the last record stays (E10). Tombstones stay until the delete horizon that the
first pass gives them (E11), and so do markers of transactions of which nothing is left (E13). Offsets and order are
kept. A batch that loses all records stays, empty, where it is the last of an active producer (E14), the last of all
that is compacted, and where nothing else would tell how far a merged segment reaches. Nowhere else: to some clients an
answer of nothing but empty batches looks like a record that is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.errors import Malformed
from ottla.log import files, scan
from ottla.log.cleaner.task import CleaningTask, LogCleaned, SegmentCleaned, SegmentFile
from ottla.log.cleaner.transactions import CleanedTransactions
from ottla.log.cleaner.writing import CleanedSegment
from ottla.log.offset_index import OffsetIndex
from ottla.log.segment import MAX_RELATIVE_OFFSET
from ottla.records import (
    HEADER_SIZE,
    BatchHeader,
    crc_is_valid,
    iterate,
    read_end_txn_marker,
    read_header,
)
from ottla.records.cleaning import add_batch, clean_batch, emptied, map_within, stamp_marker
from ottla.runtime.seams import Apart, Disk, File


class CorruptSegment(Exception):
    """A segment holds bytes that cannot be compacted; nothing was changed."""


def clean(disk: Disk, task: CleaningTask, apart: Apart) -> LogCleaned:
    """Compact as much of the log as the map of keys has room for. Blocks for as long as that takes.

    Raises `CorruptSegment` or `DiskError`. The log may be cut or deleted meanwhile: then it may look corrupt.
    """
    try:
        return _Pass(disk, task, apart).run()
    except (ValueError, Malformed, FileNotFoundError) as error:
        raise CorruptSegment(f"{task.directory} cannot be compacted: {error}") from None


class _Pass:
    def __init__(self, disk: Disk, task: CleaningTask, apart: Apart) -> None:
        self._disk = disk
        self._task = task
        self._apart = apart
        settings = task.settings
        self._piece_bytes = max(HEADER_SIZE, settings.io_bytes // 2)
        dirty_offsets = max(1, task.end_offset - task.first_dirty_offset)
        self._offsets = map_within(settings.map_bytes, settings.map_load_factor, dirty_offsets, task.secret)
        self._offsets.latest_offset = task.first_dirty_offset - 1
        self._pinned = {last.data_offset for last in task.last_of_producers.values() if last.data_offset >= 0}
        self._pinned.add(task.end_offset - 1)
        """Last offsets of batches that stay even without records."""
        self._transactions = CleanedTransactions(task.aborted)
        self._bytes_mapped = self._bytes_read = self._bytes_written = 0

    def run(self) -> LogCleaned:
        self._map_keys()
        next_dirty_offset = self._offsets.latest_offset + 1
        segments = [segment for segment in self._task.segments if segment.base_offset < next_dirty_offset]
        for group in self._groups(segments):
            self._clean_group(group)
        capacity = self._task.settings.map_bytes * self._task.settings.map_load_factor
        return LogCleaned(
            next_dirty_offset=next_dirty_offset,
            bytes_mapped=self._bytes_mapped,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            map_utilization=min(1.0, self._offsets.entries * MAP_ENTRY_BYTES / max(1.0, capacity)),
        )

    # The map.

    def _map_keys(self) -> None:
        """Every key from the first dirty offset on, until the end or until the map is full."""
        task = self._task
        transactions = CleanedTransactions(task.aborted)
        for slot, segment in enumerate(task.segments):
            following = task.segments[slot + 1].base_offset if slot + 1 < len(task.segments) else task.end_offset
            if following <= task.first_dirty_offset:
                continue
            if not self._map_segment(segment, transactions):
                return
            self._offsets.latest_offset = following - 1

    def _map_segment(self, segment: SegmentFile, transactions: CleanedTransactions) -> bool:
        """False if the map became full before the segment's end."""
        offsets, start = self._offsets, self._task.first_dirty_offset

        def map_run(piece: memoryview, position: int) -> int | None:
            reached, full = offsets.add_batches(piece, position, start)
            return None if full else reached

        def map_one(batch: memoryview, header: BatchHeader) -> bool:
            if header.is_control:
                self._end_transaction(transactions, batch, header)
                return True
            return transactions.is_aborted(header) or add_batch(offsets, batch, header, start)

        self._bytes_mapped += segment.size
        return self._walk(segment, map_run, map_one)

    # What stays.

    def _groups(self, segments: list[SegmentFile]) -> Iterator[list[SegmentFile]]:
        """Runs of segments that fit into one, whatever stays of them."""
        task = self._task
        group: list[SegmentFile] = []
        size = offset_index_bytes = time_index_bytes = 0
        for slot, segment in enumerate(segments):
            end = segments[slot + 1].base_offset if slot + 1 < len(segments) else task.end_offset
            offsets = self._file_size(segment, files.OFFSET_INDEX)
            times = self._file_size(segment, files.TIME_INDEX)
            if group and (
                size + segment.size > task.segment_bytes
                or offset_index_bytes + offsets > task.segment_index_bytes
                or time_index_bytes + times > task.segment_index_bytes
                or (segment.size and end - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET)
            ):
                yield group
                group, size, offset_index_bytes, time_index_bytes = [], 0, 0, 0
            group.append(segment)
            size += segment.size
            offset_index_bytes += offsets
            time_index_bytes += times
        if group:
            yield group

    def _clean_group(self, group: list[SegmentFile]) -> None:
        task = self._task
        cleaned = CleanedSegment(self._disk, task.directory, group[0].base_offset, task.index_interval_bytes)
        last, size = group[0], 0
        for segment in group:
            if segment.size:
                last, size = segment, cleaned.size
            self._clean_segment(segment, cleaned)
        if last is not group[0] and cleaned.size == size:
            # A start that has to finish the swap knows by the last batch which segments it takes the place of. Those
            # behind it that an earlier pass has left empty may stay: nothing is read from them.
            self._append(cleaned, emptied(self._last_header_of(last)))
        aborted = self._transactions.index_entries
        self._transactions.index_entries = []
        cleaned.finish(aborted)
        self._bytes_written += cleaned.size
        self._apart.report(
            SegmentCleaned(
                base_offset=cleaned.base_offset,
                replaced=tuple(segment.base_offset for segment in group),
                size=cleaned.size,
                max_timestamp=cleaned.max_timestamp,
                max_timestamp_offset=cleaned.max_timestamp_offset,
                aborted=tuple(aborted),
            )
        )

    def _clean_segment(self, segment: SegmentFile, cleaned: CleanedSegment) -> None:
        now_ms, new_horizon, pinned = self._task.now_ms, self._task.new_horizon, self._pinned

        def clean_run(piece: memoryview, position: int) -> int:
            reached, kept = self._offsets.clean_batches(piece, position, now_ms, new_horizon, pinned)
            self._append(cleaned, kept)
            return reached

        def clean_one(batch: memoryview, header: BatchHeader) -> bool:
            self._append(cleaned, self._clean_one(batch, header))
            return True

        self._bytes_read += segment.size
        self._walk(segment, clean_run, clean_one)

    def _append(self, cleaned: CleanedSegment, batches: bytes | memoryview) -> None:
        if batches:
            cleaned.append(batches)
            self._apart.spent(len(batches))

    def _clean_one(self, batch: memoryview, header: BatchHeader) -> bytes | memoryview:
        """What stays of a batch that is compressed, or part of a transaction, or a marker."""
        now_ms, new_horizon = self._task.now_ms, self._task.new_horizon
        kept: bytes | memoryview | None = batch
        if header.is_control:
            removable = self._end_transaction(self._transactions, batch, header)
            if not header.record_count:
                kept = None
            elif removable and not header.has_delete_horizon:
                kept = stamp_marker(batch, header, new_horizon)
            elif removable and header.base_timestamp <= now_ms and not self._is_last_marker(header):
                kept = None
        elif self._transactions.is_aborted(header):
            kept = None
        else:
            kept = clean_batch(self._offsets, batch, header, now_ms, new_horizon)
        if kept is not None:
            return kept
        return emptied(header) if header.last_offset in self._pinned or self._is_last_marker(header) else b""

    def _is_last_marker(self, header: BatchHeader) -> bool:
        """Is it all that is left to tell an active producer's epoch?"""
        last = self._task.last_of_producers.get(header.producer_id)
        return header.is_control and last is not None and last.data_offset < 0 and header.producer_epoch == last.epoch

    def _end_transaction(self, transactions: CleanedTransactions, batch: memoryview, header: BatchHeader) -> bool:
        """Is nothing left of what this control batch ended? One that was emptied before ended nothing."""
        if not crc_is_valid(batch, 0, len(batch)):
            raise ValueError(f"the batch at offset {header.base_offset} is corrupt")
        record = next(iterate(batch), None)
        if record is None:
            return True
        marker = read_end_txn_marker(record)
        return marker is not None and transactions.is_marker_of_nothing(header, marker)

    # Files.

    def _walk(
        self,
        segment: SegmentFile,
        run: Callable[[memoryview, int], int | None],
        one: Callable[[memoryview, BatchHeader], bool],
    ) -> bool:
        """Read the segment in pieces. `run` takes the plain batches from a position on and says where they end; `one`
        takes each of the others. False as soon as one of them has had enough (None, or False)."""
        file = self._open(segment)
        try:
            position, wanted = 0, self._piece_bytes
            while position < segment.size:
                expected = min(wanted, segment.size - position)
                piece = memoryview(file.read(position, expected))
                if len(piece) < expected:
                    raise ValueError(f"{file.path} is shorter than it was")
                self._apart.spent(len(piece))
                at = 0
                while True:
                    reached = run(piece, at)
                    if reached is None:
                        return False
                    header = _whole_batch(piece, reached)
                    if header is None:
                        at = reached
                        break
                    at = reached + header.size
                    if not one(piece[reached:at], header):
                        return False
                wanted = self._piece_bytes
                if not at:
                    wanted = _size_of_first(piece)
                    if not len(piece) < wanted <= segment.size - position:
                        raise ValueError(f"no batch begins at byte {position} of {file.path}")
                position += at
            return True
        finally:
            file.close()

    def _last_header_of(self, segment: SegmentFile) -> BatchHeader:
        file = self._open(segment)
        try:
            index = OffsetIndex.decode(self._read(segment, files.OFFSET_INDEX), segment.size)
            start = index.last_position if index is not None else 0
            *_, (_, header) = scan.headers(file, start, segment.size)
            return header
        finally:
            file.close()

    def _open(self, segment: SegmentFile) -> File:
        return self._disk.open(self._path(segment, files.LOG))

    def _read(self, segment: SegmentFile, suffix: str) -> bytes:
        try:
            return self._disk.read_file(self._path(segment, suffix))
        except FileNotFoundError:
            return b""

    def _file_size(self, segment: SegmentFile, suffix: str) -> int:
        try:
            return self._disk.file_size(self._path(segment, suffix))
        except FileNotFoundError:
            return 0

    def _path(self, segment: SegmentFile, suffix: str) -> str:
        return f"{self._task.directory}/{files.file_name(segment.base_offset, suffix)}"


MAP_ENTRY_BYTES = 24
"""What a key takes in Kafka's map, and in ours where it is compiled."""


def _whole_batch(piece: memoryview, position: int) -> BatchHeader | None:
    """The header of the batch at `position`, if all of it is there."""
    if len(piece) - position < HEADER_SIZE:
        return None
    header = read_header(piece, position)
    return header if header.size <= len(piece) - position else None


def _size_of_first(piece: memoryview) -> int:
    return read_header(piece).size if len(piece) >= HEADER_SIZE else HEADER_SIZE
