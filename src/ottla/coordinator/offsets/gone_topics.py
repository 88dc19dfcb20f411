"""Offsets of topics that are gone go too.

There may be a million of one topic, in as many groups: they are taken back a slice at a time, each when the one before
is committed, so that nobody else is held up. What is left to do is in no record. Whoever has loaded the partition after
this coordinator looks at every offset once, and finishes it.

Invariant: nothing goes that was written after the topic was known to be gone, since it may be of another topic of the
same name. Where a transaction has staged such an offset, the older one in its place stays until a marker or the next
look decides: its tombstone would take away both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ottla.coordinator.groups import Shared
from ottla.coordinator.offsets.codec import decode_value
from ottla.coordinator.offsets.deletion import tombstone
from ottla.coordinator.offsets.state import OffsetState
from ottla.coordinator.offsets.table import record_offset_of, value_of
from ottla.coordinator.outcome import AnyEffect, Outcome, SetTimer
from ottla.coordinator.stored import AnyRecord
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage, TopicImage
from ottla.model import GROUP_TOPIC, ZERO_UUID, Uuid

TIMER = ("offsets", "gone")
SLICE_OFFSETS = 2_000
"""Offsets looked at in one go: a few milliseconds."""
PAUSE_MS = 5
"""Between two slices."""
AGAIN_MS = 500
"""After a slice that could not be written."""


class _Search:
    """For offsets of a topic that is gone, under the name that it had."""

    __slots__ = ("_is_of_it", "_last_offset", "groups", "name")

    def __init__(self, name: str, is_of_it: Callable[[bytes], bool], last_offset: int) -> None:
        """`last_offset` is of the last record that may be of the topic."""
        self.name = name
        self._is_of_it = is_of_it
        self._last_offset = last_offset
        self.groups: list[str] | None = None
        """Where it has yet to look, the next one last. None: everywhere, and they are not listed yet."""

    def finds(self, kept: bytes) -> bool:
        return record_offset_of(kept) <= self._last_offset and self._is_of_it(kept)


def _of(topic_id: Uuid) -> Callable[[bytes], bool]:
    """Of the topic that was deleted; also those that do not say of which topic they are."""
    return lambda kept: kept.endswith(topic_id) or decode_value(value_of(kept)).topic_id in (ZERO_UUID, topic_id)


def _of_none(kept: bytes) -> bool:
    """There is no topic of the name: it was that of one that is gone."""
    return True


def _of_another_than(topic_id: Uuid) -> Callable[[bytes], bool]:
    """Of one that had the name before the topic that has it now."""

    def is_of_another(kept: bytes) -> bool:
        # As nearly all are written, the id comes last: there is no need to read them.
        return not kept.endswith(topic_id) and decode_value(value_of(kept)).topic_id not in (ZERO_UUID, topic_id)

    return is_of_another


class GoneTopics:
    """Soft: made anew with the shard, by `on_loaded`."""

    __slots__ = ("_searches", "_shared", "_state")

    def __init__(self, shared: Shared, state: OffsetState) -> None:
        self._shared = shared
        self._state = state
        self._searches: deque[_Search] = deque()

    def on_loaded(self, image: MetadataImage) -> list[AnyEffect]:
        """Topics may have gone while the partition had another leader, or none, or before that one was done."""
        if image.topic(GROUP_TOPIC) is None:
            return []  # Whoever does not know of the partition itself does not know what else there is.
        self._begin_everywhere(image)
        if not self._next_slice()[0] and not self._searches:
            return []
        self._begin_everywhere(image)
        return [SetTimer(key=TIMER, delay_ms=PAUSE_MS)]

    def _begin_everywhere(self, image: MetadataImage) -> None:
        self._searches.clear()
        for name in self._state.topic_names():
            known = image.topic(name)
            self._begin(name, _of_none if known is None else _of_another_than(known.topic_id))

    def on_deleted(self, topics: Sequence[TopicImage]) -> Outcome[None]:
        for topic in topics:
            self._begin(topic.name, _of(topic.topic_id))
        return self.on_timer() if topics else Outcome()

    def _begin(self, name: str, is_of_it: Callable[[bytes], bool]) -> None:
        self._searches.append(_Search(name, is_of_it, self._shared.timeline.offset))

    def on_timer(self) -> Outcome[None]:
        records, searches = self._next_slice()
        if records:
            # The next one follows when this one is committed.
            return Outcome(records=records, tag=(TIMER[0], searches), atomic=False)
        return Outcome(effects=self._next_timer(PAUSE_MS))

    def on_written(self, searches: tuple[_Search, ...], error: ErrorCode) -> Outcome[None]:
        if error is ErrorCode.NONE:
            return Outcome(effects=self._next_timer(PAUSE_MS))
        # What was found has been undone, and is found again; if it is committed after all, it is not.
        for search in searches:
            search.groups = None
            if search not in self._searches:
                self._searches.append(search)
        return Outcome(effects=self._next_timer(AGAIN_MS))

    def _next_timer(self, delay_ms: int) -> list[AnyEffect]:
        return [SetTimer(key=TIMER, delay_ms=delay_ms)] if self._searches else []

    def _next_slice(self) -> tuple[list[AnyRecord], tuple[_Search, ...]]:
        """Tombstones of what was found, and by which searches."""
        records: list[AnyRecord] = []
        searches: list[_Search] = []
        looked_at = 0
        while self._searches and looked_at < SLICE_OFFSETS:
            search = self._searches[0]
            found = len(records)
            if search.groups is None:
                search.groups = self._state.groups_of(search.name)
                search.groups.reverse()
                looked_at += 1
            while search.groups and looked_at < SLICE_OFFSETS:
                looked_at += 1 + self._look_at(search, search.groups.pop(), records)
            if len(records) > found:
                searches.append(search)
            if not search.groups:
                self._searches.popleft()
        return records, tuple(searches)

    def _look_at(self, search: _Search, group_id: str, records: list[AnyRecord]) -> int:
        """How many offsets were looked at."""
        found: dict[int, bool] = {}
        for partition, kept in self._state.kept_of(group_id, search.name):
            found[partition] = search.finds(kept) and found.get(partition, True)
        records.extend(tombstone(group_id, search.name, partition) for partition, gone in found.items() if gone)
        return len(found)
