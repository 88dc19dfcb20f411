"""Which log is compacted next, and how much of it: Kafka's arithmetic over segments.

A log is clean up to its first dirty offset, and dirty from there on. Compaction never passes the last stable offset,
the active segment, nor the first segment that is younger than `min.compaction.lag.ms` (E12); nor, here, what no flush
has covered yet, so that what it replaces is on the disk. It is due when the dirty share has grown beyond
`min.cleanable.dirty.ratio`, or when a dirty record is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.log.log import Log
from ottla.log.log_config import MAX_LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """One log, as it stands."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that must not be touched."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long a dirty record has been older than `max.compaction.lag.ms`; 0 if none is."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.overdue_ms and self.dirty_bytes:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def survey(logs: Iterable[Log], now_ms: int) -> list[Cleanable]:
    """Every log that is to be compacted and is not empty, the dirtiest first."""
    found = [assess(log, now_ms) for log in logs if log.config.compact and not log.offline]
    found = [each for each in found if each.clean_bytes + each.dirty_bytes]
    return sorted(found, key=lambda each: -each.dirty_ratio)


def assess(log: Log, now_ms: int) -> Cleanable:
    segments = log._segments
    first_dirty = first_dirty_offset(log)
    uncleanable = max(first_dirty, _first_uncleanable_offset(log, first_dirty, now_ms))
    end_offset = segments[segments.slot_of(uncleanable)].base_offset
    lower = min(first_dirty, end_offset)
    clean = dirty = 0
    for slot, segment in enumerate(segments):
        if segment.base_offset < first_dirty:
            clean += segment.size
        if segment.base_offset < end_offset and slot >= segments.slot_of(lower):
            dirty += segment.size
    return Cleanable(
        log=log,
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=clean,
        dirty_bytes=dirty if lower < end_offset else 0,
        overdue_ms=_overdue_ms(log, first_dirty, now_ms),
    )


def first_dirty_offset(log: Log) -> int:
    """From the checkpoint, or the log start where that makes no sense: the log was cut at one end or the other."""
    known = log.first_dirty_offset
    return known if known is not None and log.log_start_offset <= known <= log.log_end_offset else log.log_start_offset


def _first_uncleanable_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    segments = log._segments
    bounds = [log.last_stable_offset, segments[-1].base_offset, segments[log._unsealed_from].base_offset]
    bounds.append(segments[segments.slot_of(log.recovery_point)].base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in segments.between(segments.slot_of(first_dirty), -1):
            if segment.largest_timestamp() > now_ms - lag_ms:
                bounds.append(segment.base_offset)
                break
    return min(bounds)


def _overdue_ms(log: Log, first_dirty: int, now_ms: int) -> int:
    lag_ms = max(0, log.config.max_compaction_lag_ms)
    if lag_ms >= MAX_LONG:
        return 0
    segments = log._segments
    stamps = [segment.first_batch_timestamp() for segment in segments.between(segments.slot_of(first_dirty), -1)]
    oldest = min((stamp for stamp in stamps if stamp > 0), default=MAX_LONG)
    return max(0, now_ms - lag_ms - oldest)
