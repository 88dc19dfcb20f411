"""The indexes of sealed segments that were looked at lately, shared by all logs of a node and bounded in bytes.

An active segment, and one whose indexes are not on the disk yet, holds its own; everything else comes through here,
with one read of the file on a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import offset_index, time_index
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.txn_index import AbortedTxn

if TYPE_CHECKING:
    from ottla.log.segment import Segment

DEFAULT_MAX_BYTES = 64 << 20
_OVERHEAD = 256
"""What an entry costs besides its arrays, about."""
_ABORTED_COST = 200
"""What an aborted transaction costs, about."""


class _Indexes(NamedTuple):
    """What is known of one segment; None: not looked at."""

    offsets: OffsetIndex | None = None
    times: TimeIndex | None = None
    aborted: list[AbortedTxn] | None = None

    @property
    def cost(self) -> int:
        return (
            _OVERHEAD
            + offset_index.ENTRY_SIZE * (len(self.offsets) if self.offsets is not None else 0)
            + time_index.ENTRY_SIZE * (len(self.times) if self.times is not None else 0)
            + _ABORTED_COST * (len(self.aborted) if self.aborted is not None else 0)
        )


_NOTHING = _Indexes()


class IndexCache:
    __slots__ = ("_entries", "_max_bytes", "_size")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[Segment, _Indexes] = OrderedDict()

    def offset_index(self, segment: Segment) -> OffsetIndex:
        known = self._of(segment)
        if known.offsets is not None:
            return known.offsets
        index = segment.load_offset_index()
        self._keep(segment, known._replace(offsets=index))
        return index

    def time_index(self, segment: Segment) -> TimeIndex:
        known = self._of(segment)
        if known.times is not None:
            return known.times
        index = segment.load_time_index()
        self._keep(segment, known._replace(times=index))
        return index

    def aborted(self, segment: Segment) -> list[AbortedTxn]:
        known = self._of(segment)
        if known.aborted is not None:
            return known.aborted
        aborted = segment.load_aborted() or []
        self._keep(segment, known._replace(aborted=aborted))
        return aborted

    def knows_aborted(self, segment: Segment) -> bool:
        return self._entries.get(segment, _NOTHING).aborted is not None

    def put_aborted(self, segment: Segment, aborted: list[AbortedTxn]) -> None:
        """Somebody has read them apart from the loop."""
        self._keep(segment, self._of(segment)._replace(aborted=aborted))

    def put(self, segment: Segment, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        """Keep what `segment` held as the latest used, and let the oldest go for it."""
        self._keep(segment, _Indexes(offsets, times))

    def _of(self, segment: Segment) -> _Indexes:
        known = self._entries.get(segment)
        if known is None:
            return _NOTHING
        self._entries.move_to_end(segment)
        return known

    def _keep(self, segment: Segment, indexes: _Indexes) -> None:
        self.forget(segment)
        self._entries[segment] = indexes
        self._size += indexes.cost
        while self._size > self._max_bytes and len(self._entries) > 1:
            self._size -= self._entries.popitem(last=False)[1].cost

    def forget(self, segment: Segment) -> None:
        known = self._entries.pop(segment, None)
        if known is not None:
            self._size -= known.cost

    @property
    def size_bytes(self) -> int:
        return self._size
