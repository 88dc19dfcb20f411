"""Cutting a log's end off, as a follower does whose leader has another history; called by `Log`, which goes offline if
the disk fails in the middle.

The order makes every moment a moment that recovery can deal with. First the recovery point is lowered, on the disk, so
that a start reads, and does not trust, what may come back from before the cut; and the high watermark with it, if the
cut goes below it. Then segments go from the last to the first, so that no hole is left in the middle. The cut counts
only once it is on the disk itself: until then `Log.cut_unsynced` holds back the next append, or a power loss could put
the tail of one history behind the head of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log import epoch_file, rolling
from ottla.log.producer_replay import replay_producers

if TYPE_CHECKING:
    from ottla.log.log import Log


def truncate(log: Log, offset: int) -> bool:
    """The log ends at `offset`, or before the batch that holds it: a batch is cut whole or not at all. True if records
    went."""
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        epoch_file.settle(log)
        return False
    if offset < log._segments.bases[0]:
        start_over(log, offset, offset, 0)
        return True
    _prepare(log, offset)
    segments = log._segments
    slot = segments.slot_of(offset)
    for segment in reversed(segments.take_from(slot + 1)):
        log._give_up(segment)
    active = log._active = segments[slot]
    log._unsealed_from = min(log._unsealed_from, slot)
    offset = active.cut(offset, segments.cache)
    rolling.set_time(log)
    log.snapshots.retain([at for at in log.snapshots.offsets if at <= offset])
    log.epochs.truncate_from_end(offset)
    epoch_file.settle(log)
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    _lower(log, offset)
    _rebuild_producers(log)
    return True


def start_over(log: Log, offset: int, log_start_offset: int, now_ms: int) -> None:
    """Drop every record and go on at `offset`."""
    _prepare(log, min(offset, log.log_start_offset))
    for segment in reversed(log._segments.take_from(0)):
        log._give_up(segment)
    log.snapshots.retain(())
    log._active = rolling.create_segment(log, offset, now_ms)
    log._segments.add(log._active)
    log._unsealed_from = 0
    log.rolled = False
    log.epochs.clear()
    if log._flush is None:
        epoch_file.write(log, offset)
    epoch_file.settle(log)
    log.producers.clear()
    log.log_end_offset = offset
    log.log_start_offset = log_start_offset
    log.high_watermark = offset
    log.recovery_point = min(log.recovery_point, offset)


def _prepare(log: Log, offset: int) -> None:
    """Before anything is cut: what a start must not trust, unread, any more."""
    log.settle_swap(0)
    log.cuts += 1
    fell = offset < log.high_watermark
    flushed = offset < log.recovery_point
    _lower(log, offset)
    log.cut_unsynced = log._new_files = True  # Directory entries that went must be synced like those that came.
    if log._flush is not None:
        log._flush.covers_cut = False
    if (flushed or fell) and log.before_truncation is not None:
        log.before_truncation(log, fell)


def _lower(log: Log, offset: int) -> None:
    if log._flush is not None:
        log._flush.end_offset = min(log._flush.end_offset, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.high_watermark = min(log.high_watermark, offset)
    if log.first_dirty_offset is not None:
        log.first_dirty_offset = min(log.first_dirty_offset, offset)


def _rebuild_producers(log: Log) -> None:
    """Producer states from the newest snapshot and the batches after it."""
    producers = log.producers
    if not producers.entries and not producers.has_unreplicated:
        return  # Nothing to take back, and no need to read a segment to see that.
    unreplicated = dict(producers.unreplicated)
    producers.clear()
    start = replay_producers(log._segments, producers, log.snapshots, log.log_end_offset, 0)
    producers.restore_unreplicated({first: marker for first, marker in unreplicated.items() if marker < start})
    producers.on_high_watermark(log.high_watermark)
