"""Batches that a leader has given offsets, appended as they came: what a follower does, of a topic or of the metadata.

Two halves, called by `Log.append_replicated`. `check` reads the headers and sums of everything that was fetched before
a byte of it is written; `write` then puts whole runs of batches into the file with one call each, and keeps what is
derived from them (indexes, epochs, producer states) in step. No record is looked at but
those that end a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.log import epoch_file, rolling
from ottla.log.append import AppendInfo
from ottla.log.markers import read_marker
from ottla.log.segment import TAIL_BATCHES
from ottla.records import HEADER_SIZE, BatchHeader, crc_is_valid, read_header

if TYPE_CHECKING:
    from ottla.log.log import Log

_MAGIC = 2
_OVERHEAD = 12
_CONTROL = 0x20


class UnexpectedOffset(KafkaError):
    """Replicated batches that do not begin at or after the log's end."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Batch {first_offset}..{last_offset} does not follow the log end {log_end_offset}.",
        )
        self.first_offset = first_offset
        self.last_offset = last_offset


def check(records: memoryview, log_end_offset: int, leader_epoch: int | None) -> list[BatchHeader]:
    """The headers of all whole batches in `records`, each with its CRC checked, in rising offsets from the log's end on
    (compaction leaves gaps). Raises `KafkaError` at the first that is not right.

    A batch of a newer epoch than `leader_epoch` ends them: the leader we fetch from cannot have written it, so it is
    left to the leader who did (KAFKA-18723).
    """
    found: list[BatchHeader] = []
    position, end, expected = 0, len(records), log_end_offset
    while end - position >= HEADER_SIZE:
        try:
            header = read_header(records, position)
        except Malformed as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"At offset {expected}: {error}.") from None
        size = header.batch_length + _OVERHEAD
        if position + size > end:
            break
        if header.magic != _MAGIC or header.last_offset_delta < 0 or not crc_is_valid(records, position, size):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A replicated batch at offset {expected} is corrupt.")
        if header.base_offset < expected:
            raise UnexpectedOffset(header.base_offset, header.last_offset, expected)
        if header.attributes & _CONTROL:
            _check_marker(records[position : position + size], expected)
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            break
        found.append(header)
        expected = header.base_offset + header.last_offset_delta + 1
        position += size
    return found


def _check_marker(batch: memoryview, offset: int) -> None:
    """Before anything is written: a marker that cannot be read must not be found in the middle of the write."""
    try:
        read_marker(batch)
    except Malformed as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"At offset {offset}: {error}.") from None


def append(log: Log, records: memoryview, now_ms: int, leader_epoch: int | None) -> AppendInfo | None:
    """Check all of `records`, then write them; None if there is not one whole batch."""
    try:
        found = check(records, log.log_end_offset, leader_epoch)
    except UnexpectedOffset as error:
        if not error.first_offset < log.log_end_offset == log.log_start_offset <= error.last_offset:
            raise
        # The log starts in the middle of a batch, as the leader's does after DeleteRecords: the whole of it is kept,
        # and the log start stays where it is.
        found = check(records, error.first_offset, leader_epoch)
        if found:
            _start_at_batch(log, error.first_offset, now_ms)
    if not found:
        return None
    if log.cut_unsynced:
        log.settle_cut()
    write(log, records, found, now_ms)
    return AppendInfo(found[0].base_offset, log.log_end_offset - 1)


def _start_at_batch(log: Log, offset: int, now_ms: int) -> None:
    log_start_offset, high_watermark = log.log_start_offset, log.high_watermark
    log.truncate_fully_and_start_at(offset, log_start_offset=log_start_offset, now_ms=now_ms)
    log.high_watermark = high_watermark


def write(log: Log, records: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
    """One write for each segment that the batches reach into, and for each epoch that begins in them."""
    segment_bytes = log.config.segment_bytes
    segment, settled_epoch = log._active, log._settled_epoch
    start = at = first = 0
    before = segment.size
    for slot, header in enumerate(headers):
        size = header.batch_length + _OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        if (
            header.leader_epoch != settled_epoch
            or before + at - start + size > segment_bytes
            or header.max_timestamp > segment.roll_after_ms
            or last_offset > segment.max_offset
        ):
            # Something may have to happen before this batch lands: what came before it is written first.
            if at > start:
                _write_run(log, records[start:at], headers[first:slot])
                start, first = at, slot
            if header.leader_epoch >= 0 and header.leader_epoch != log._settled_epoch:
                epoch_file.begin(log, header.leader_epoch, header.base_offset)
            if rolling.is_due(log, size, header.max_timestamp, last_offset, now_ms):
                rolling.roll(log, header.base_offset, last_offset, now_ms)
            segment, settled_epoch = log._active, log._settled_epoch
            before = segment.size
        at += size
    _write_run(log, records[start:at], headers[first:])


def _write_run(log: Log, data: memoryview, run: list[BatchHeader]) -> None:
    segment = log._active
    base = position = segment.size
    segment.file.write(position, data)
    tail_last, tail_positions = segment.tail_last, segment.tail_positions
    interval = log.config.index_interval_bytes
    for header in run:
        size = header.batch_length + _OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        tail_last.append(last_offset)
        tail_positions.append(position)
        if header.max_timestamp > segment.max_timestamp and header.record_count:
            segment.max_timestamp = header.max_timestamp
            segment.max_timestamp_offset = last_offset
        segment.size = position + size
        if position - segment.indexed_position > interval:
            segment.index(last_offset, position, log.config)
        elif not position:
            segment.first_timestamp = header.max_timestamp
            rolling.set_time(log)
        if header.producer_id >= 0:
            if not header.attributes & _CONTROL:
                log.producers.record(header, header.base_offset, last_offset)
            elif (marker := read_marker(data[position - base : position - base + size])) is not None:
                log.complete(segment, header, marker[0], header.base_offset, marker[1])
        position += size
    log.log_end_offset = last_offset + 1
    while len(tail_last) > TAIL_BATCHES:
        segment.trim_tail()
