"""What a disk has lost of a log since it was written, as far as its files tell without a batch being read whole.

Three things tell. Where one segment ends the next begins, unless compaction left a gap between them. The index of a
sealed segment was written with it, and that of a compacted log ends with the last batch (`offset_index`). And a log
that was closed in order has a producer snapshot where it ended. A bit that flipped inside a batch is for its CRC.

Read is the end of each segment only, from its last index entry on. Driven by `recovery`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import StartupError
from ottla.log import files, offset_index, scan
from ottla.log.offset_index import OffsetIndex
from ottla.log.segment import Segment
from ottla.records import HEADER_SIZE
from ottla.runtime.seams import Disk


def find_hole(disk: Disk, segments: Sequence[Segment], *, gaps_until: int, preallocate: bool) -> int | None:
    """The first sealed segment that does not reach the next, or ends with what is no batch: nobody wrote that, so that
    a disk has lost the rest. Below `gaps_until` compaction may have left gaps."""
    for slot, segment in enumerate(segments[:-1]):
        index = _read_index(disk, segment)
        end, whole = _last_batch_end(segment, index)
        if is_rest(segment, whole, preallocate=preallocate):
            return slot  # Compaction leaves gaps, but never half a batch.
        following = segments[slot + 1].base_offset
        # An index may be older than its segment, and tell of more: after a cut it is written with the next flush, and
        # before that the segment is not compacted. So where there is a gap, and a batch is missing of which the index
        # tells, it is not compaction that took it: that writes both anew.
        if end != following and (following > gaps_until or (index is not None and index.is_beyond(segment.size))):
            return slot
    return None


def refuse_losses(disk: Disk, directory: str, segments: Sequence[Segment], closed_at: int) -> None:
    """Look whether a log without gaps that was closed in order is all there, and change nothing; the newest of its
    producer snapshots is at `closed_at`. Raises `StartupError`."""
    hole = find_hole(disk, segments, gaps_until=0, preallocate=False)
    end, is_whole = 0, hole is None
    if segments:
        last = segments[-1 if hole is None else hole]
        end, whole = _last_batch_end(last, _read_index(disk, last))
        is_whole = is_whole and not is_rest(last, whole, preallocate=False)
    if not is_whole or end < closed_at:
        raise StartupError(
            f"the metadata log in {directory} is damaged: it was closed in order, and what was behind offset {end} is "
            f"gone: bring the directory back from a backup, or take this node out of the quorum, format it anew and "
            f"let it join again"
        )


def is_rest(segment: Segment, position: int, *, preallocate: bool) -> bool:
    """Is there anything from `position` on, but for room that was never written to?"""
    if position >= segment.size:
        return False
    return not preallocate or any(segment.file.read(position, HEADER_SIZE))


def _last_batch_end(segment: Segment, index: OffsetIndex | None) -> tuple[int, int]:
    """Where the last whole batch ends, in offsets and in the file."""
    known = 0 if index is None or index.is_beyond(segment.size) else index.last_position
    end = whole = 0
    for start in (known, 0):
        end, whole = segment.base_offset, start
        for position, header in scan.headers(segment.file, start, segment.size):
            end, whole = header.next_offset, position + header.size
        if whole > start:
            break
    return end, whole


def _read_index(disk: Disk, segment: Segment) -> OffsetIndex | None:
    """The offset index, also where it tells of more than there is; None if it is missing or makes no sense."""
    try:
        return OffsetIndex.decode(disk.read_file(segment.path(files.OFFSET_INDEX)), offset_index.ANY_SIZE)
    except FileNotFoundError:
        return None
