"""Which segments a topic gives up: oldest first, stopping at the first that stays; called by `Log`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.log_config import LogConfig
from ottla.log.segment import Segment
from ottla.log.segments import Segments

if TYPE_CHECKING:
    from ottla.log.log import Log


def detach_expired(log: Log, now_ms: int) -> list[Segment]:
    """Take what goes out of the log, whose start moves with it. If all goes, a new active segment is rolled first."""
    count = expired_count(
        log._segments,
        log.config,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
    )
    if not count:
        return []
    if count == len(log._segments):
        log.roll(now_ms)
    removed = log._segments.take_first(count)
    log._unsealed_from = max(0, log._unsealed_from - count)
    first_base = log._segments.bases[0]
    if first_base > log.log_start_offset:
        log.advance_log_start(first_base)
    log.recovery_point = max(log.recovery_point, log.log_start_offset)
    log._graveyard.detach(removed)
    return removed


def expired_count(
    segments: Segments,
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> int:
    """How many of the oldest segments may go.

    A segment goes if it lies wholly below the log start, or, where the policy is to delete, if the log is too large
    without counting it, or if even its newest record is too old. Nothing at or above the high watermark goes, nor an
    active segment that is empty.
    """
    excess = segments.size_bytes - config.retention_bytes
    by_size = config.delete and config.retention_bytes >= 0
    by_time = config.delete and config.retention_ms >= 0
    count = 0
    for slot, segment in enumerate(segments):
        last = slot + 1 == len(segments)
        end_offset = log_end_offset if last else segments[slot + 1].base_offset
        if end_offset > high_watermark or (last and not segment.size):
            break
        below_start = not last and end_offset <= log_start_offset
        too_large = by_size and excess - segment.size >= 0
        if not (below_start or too_large or (by_time and _is_old(segment, config, now_ms))):
            break
        excess -= segment.size
        count += 1
    return count


def _is_old(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    largest = segment.largest_timestamp()
    if largest < 0:
        # No record has a timestamp: count from when the segment was made, or loaded.
        largest = segment.created_ms
    return now_ms - largest > config.retention_ms
