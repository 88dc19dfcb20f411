"""When a log goes on in a new segment, and how: called by `Log`, which goes offline if the disk fails in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment

if TYPE_CHECKING:
    from ottla.log.log import Log

_NEVER = -(1 << 62)


def set_time(log: Log) -> None:
    """From when on `append` must look closer. A segment whose first batch has no timestamp ages by the clock."""
    segment = log._active
    if segment.size:
        first = segment.first_batch_timestamp()
        age = log.config.roll_ms - segment.jitter_ms
        segment.roll_after_ms = first + age if first >= 0 else _NEVER


def is_due(log: Log, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
    """Must a batch like this go to a new segment?"""
    segment = log._active
    position = segment.size
    if (position and position + size > log.config.segment_bytes) or last_offset > segment.max_offset:
        return True
    if not position or max_timestamp <= segment.roll_after_ms:
        return False
    if segment.roll_after_ms != _NEVER:
        return True
    return now_ms - segment.created_ms > log.config.roll_ms - segment.jitter_ms


def roll(log: Log, first_offset: int, last_offset: int, now_ms: int) -> Segment:
    """Start a new segment for a batch of these offsets.

    Its base is where the log ends, so that recovery can tell a lost segment from a gap in offsets; only an offset too
    far away to be relative to that moves it.
    """
    old = log._active
    base = log.log_end_offset
    if last_offset - base > MAX_RELATIVE_OFFSET:
        base = first_offset
    if not log._entries_synced:
        # A power loss may take the first segment's directory entry and leave the second's: nothing would tell that the
        # front is missing. Later ones are missed when they do not begin where the one before ended.
        log._disk.sync_dir(log.directory)
        log._entries_synced = True
    new = create_segment(log, base, now_ms)
    if old.size:
        old.seal(note_end=log.config.compact)
        log.rolled = True
    else:
        # An empty segment that the next offset does not fit in: no trace of it should stay.
        log._segments.take_from(len(log._segments) - 1)
        log._unsealed_from -= 1
        log._retire(old)
        old.remove_files()
    log._segments.add(new)
    log._active = new
    take_snapshot(log, base)
    return new


def create_segment(log: Log, base: int, now_ms: int) -> Segment:
    segment = Segment.create(log._disk, log.directory, base, log.config, log._random, now_ms)
    log._new_files = True
    return segment


def take_snapshot(log: Log, offset: int) -> None:
    """Also removes what the last clean close left at an offset where no segment begins."""
    snapshots = log.snapshots
    snapshots.take(log.producers, offset)
    log._new_files = True
    if len(snapshots.offsets) > 1:
        wanted = set(log._segments.bases)
        wanted.add(offset)
        snapshots.retain(wanted)
