"""The indexes of sealed segments that were looked at lately, shared by all logs of a node and bounded in bytes.

An active segment, and one whose indexes are not on the disk yet, holds its own; everything else comes through here,
with one read of the file on a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ottla.log import offset_index, time_index
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex

if TYPE_CHECKING:
    from ottla.log.segment import Segment

DEFAULT_MAX_BYTES = 64 << 20
_OVERHEAD = 256
"""What an entry costs besides its arrays, about."""


class IndexCache:
    __slots__ = ("_entries", "_max_bytes", "_size")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[Segment, tuple[OffsetIndex | None, TimeIndex | None]] = OrderedDict()

    def offset_index(self, segment: Segment) -> OffsetIndex:
        pair = self._entries.get(segment)
        if pair is not None and pair[0] is not None:
            self._entries.move_to_end(segment)
            return pair[0]
        index = segment.load_offset_index()
        self.put(segment, index, pair[1] if pair else None)
        return index

    def time_index(self, segment: Segment) -> TimeIndex:
        pair = self._entries.get(segment)
        if pair is not None and pair[1] is not None:
            self._entries.move_to_end(segment)
            return pair[1]
        index = segment.load_time_index()
        self.put(segment, pair[0] if pair else None, index)
        return index

    def put(self, segment: Segment, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        """Keep `segment`'s indexes as the latest used, and let the oldest go for them."""
        self.forget(segment)
        self._entries[segment] = (offsets, times)
        self._size += _cost(offsets, times)
        while self._size > self._max_bytes and len(self._entries) > 1:
            _, (old_offsets, old_times) = self._entries.popitem(last=False)
            self._size -= _cost(old_offsets, old_times)

    def forget(self, segment: Segment) -> None:
        pair = self._entries.pop(segment, None)
        if pair is not None:
            self._size -= _cost(*pair)

    @property
    def size_bytes(self) -> int:
        return self._size


def _cost(offsets: OffsetIndex | None, times: TimeIndex | None) -> int:
    return (
        _OVERHEAD
        + offset_index.ENTRY_SIZE * (len(offsets) if offsets is not None else 0)
        + time_index.ENTRY_SIZE * (len(times) if times is not None else 0)
    )
