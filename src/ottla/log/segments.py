"""The segments of one log in order, and finding things in them that are not at hand.

Owns the list and the bases by which it is searched; `Log` appends to the last and decides what goes. Reading here costs
the same few reads of the disk however many segments there are: one bisection finds the segment, its index the place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ottla.log import txn_index
from ottla.log.index_cache import IndexCache
from ottla.log.segment import Segment
from ottla.log.txn_index import AbortedTxn
from ottla.runtime.seams import FileSpan

_SLACK = 4096
"""Read this much more than an index interval when looking for a batch, so that its header is most likely there too."""


class Segments:
    __slots__ = ("_list", "bases", "cache")

    def __init__(self, segments: list[Segment], cache: IndexCache) -> None:
        self._list = segments
        self.bases = [segment.base_offset for segment in segments]
        self.cache = cache

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __getitem__(self, slot: int) -> Segment:
        return self._list[slot]

    def between(self, start: int, stop: int | None = None) -> list[Segment]:
        return self._list[start:stop]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._list)

    def slot_of(self, offset: int) -> int:
        """The last segment that begins at or before `offset`, or the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def add(self, segment: Segment) -> None:
        self._list.append(segment)
        self.bases.append(segment.base_offset)

    def replace(self, slot: int, count: int, segment: Segment) -> None:
        """`segment` in the place of `count` others."""
        self._list[slot : slot + count] = [segment]
        self.bases[slot : slot + count] = [segment.base_offset]

    def take_first(self, count: int) -> list[Segment]:
        taken = self._list[:count]
        del self._list[:count]
        del self.bases[:count]
        return taken

    def take_from(self, slot: int) -> list[Segment]:
        taken = self._list[slot:]
        del self._list[slot:]
        del self.bases[slot:]
        return taken

    def find(
        self, offset: int, *, max_bytes: int, upper_bound: int, log_end_offset: int, min_one: bool, interval: int
    ) -> tuple[Segment, int, int] | None:
        """Segment, start and end position of what `Log.read` promises."""
        segments, cache, chunk = self._list, self.cache, interval + _SLACK
        slot = bisect_right(self.bases, offset) - 1
        while slot < len(segments):
            segment = segments[slot]
            found = segment.locate(offset, cache, chunk)
            slot += 1
            if found is None:
                continue  # A gap in offsets reaches to the segment's end.
            start, first_size = found
            end = segment.size
            following = self.bases[slot] if slot < len(segments) else log_end_offset
            if upper_bound < following:
                beyond = segment.locate(upper_bound, cache, chunk)
                if beyond is not None:
                    end = beyond[0]
                if end <= start:
                    return None
            if end - start > max_bytes:
                if first_size > max_bytes:
                    if not min_one:
                        return None
                    end = start + first_size
                else:
                    boundary = segment.offset_index(cache).boundary_at_or_before(start + max_bytes)
                    end = max(boundary, start + first_size)
            return segment, start, end
        return None

    def aborted_transactions(self, first: int, upper: int) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        for segment in self._list[self.slot_of(first) :]:
            if txn_index.collect(segment.aborted_transactions(self.cache), first, upper, found):
                break
        return found

    def end_of(self, offset: int, span: FileSpan, log_end_offset: int) -> int:
        """An offset beyond all that `span`, which `find` gave for `offset`, holds; near its end, without a read."""
        slot = bisect_right(self.bases, offset) - 1
        while self._list[slot].file is not span.file:
            slot += 1
        segment = self._list[slot]
        position = span.position + span.size
        relative = segment.offset_index(self.cache).offset_at_or_after(position) if position < segment.size else None
        if relative is not None:
            return segment.base_offset + relative
        return self.bases[slot + 1] if slot + 1 < len(self._list) else log_end_offset
