"""Finding records by their timestamps (KIP-79, KIP-734), exact to the record.

Timestamps need not rise with offsets, so the time index only says where not to look; batches that may hold the answer
are read, and only those are unpacked.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log import scan
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.records import BatchHeader, Record, iterate

_CHUNK = 64 << 10


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Segments, timestamp: int, log_start_offset: int) -> TimestampOffset | None:
    """The first record at or above `log_start_offset` that is stamped `timestamp` or later."""
    cache = segments.cache
    for slot, segment in enumerate(segments):
        if segment.largest_timestamp() < timestamp:
            continue
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= log_start_offset:
            continue
        start = max(segment.time_index(cache).floor(timestamp), log_start_offset - segment.base_offset)
        position = segment.offset_index(cache).floor_position(start)
        for at, header in scan.headers(segment.file, position, segment.size, _CHUNK):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            for record in _records(segment, at, header):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def latest(segments: Segments) -> TimestampOffset | None:
    """The first record with the largest timestamp of all."""
    cache = segments.cache
    best: Segment | None = None
    largest = -1
    for segment in segments:
        if segment.largest_timestamp() > largest:
            best, largest = segment, segment.largest_timestamp()
    if best is None:
        return None
    # The index may point a little before the batch, never after it.
    position = best.offset_index(cache).floor_position(best.max_timestamp_offset - best.base_offset)
    for at, header in scan.headers(best.file, position, best.size, _CHUNK):
        if header.max_timestamp == largest:
            for record in _records(best, at, header):
                if record.timestamp == largest:
                    return TimestampOffset(largest, record.offset, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return list(iterate(segment.file.read(position, header.size)))
