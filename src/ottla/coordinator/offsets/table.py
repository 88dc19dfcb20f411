"""Offsets by group, topic and partition, in as few objects as can be.

What is kept of a partition is one `bytes`: where in the log the record lies, and its value as it lies there. It is read
when somebody asks. So a million offsets load without being decoded, and cost about as much as their records.

The table lives on the shard's timeline as a `TimelineMap` does: what was changed and is not committed can be undone,
and is not seen by readers of committed state. A group comes with its first offset. When its last one is removed it
stays, without topics, until it is forgotten, so its coming and going are changes of their own.

Invariants: `_groups_of` has a group under a topic exactly while the group has an offset of it; `count` is the number of
offsets, except while loading, when whoever fills partitions does not count (`forget_empty` does, at the end).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from struct import Struct
from typing import Final, cast

from ottla.coordinator.timeline import Reversible, Timeline

_OFFSET = Struct(">q")

Partitions = dict[int, bytes]
Topics = dict[str, Partitions]
Place = tuple[str, str, int]
"""Group, topic, partition."""
Change = Place | str
"""Where an offset changed; or a group that came or went."""

_NO_TOPICS: Final[Topics] = {}
_NO_PARTITIONS: Final[Partitions] = {}
_PRESENT = b""
_STEP_GROUPS = 1_000


def keep(record_offset: int, value: bytes) -> bytes:
    """What the table keeps of a record."""
    return _OFFSET.pack(record_offset) + value


def record_offset_of(kept: bytes) -> int:
    offset: int = _OFFSET.unpack_from(kept)[0]
    return offset


def value_of(kept: bytes) -> bytes:
    return kept[_OFFSET.size :]


class OffsetTable:
    """Reads see the newest state, except those that say `committed`. What they hand out is not to be changed."""

    __slots__ = ("_before", "_groups", "_groups_of", "_timeline", "count")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._groups: dict[str, Topics] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        """By topic."""
        self.count = 0
        self._before: dict[Change, list[bytes | None]] = {}
        """What each changed place held, before its oldest change that is not committed, and before each since. Of a
        group: None if it was not there."""

    # The newest state.

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def topic_names(self) -> list[str]:
        return list(self._groups_of)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have an offset of the topic."""
        return list(self._groups_of.get(topic, ()))

    def topics(self, group_id: str) -> Topics:
        return self._groups.get(group_id, _NO_TOPICS)

    def get(self, group_id: str, topic: str, partition: int) -> bytes | None:
        return self._groups.get(group_id, _NO_TOPICS).get(topic, _NO_PARTITIONS).get(partition)

    def places(self) -> Iterator[Place]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition in partitions:
                    yield group_id, topic, partition

    def put(self, place: Place, kept: bytes) -> None:
        group_id, topic, partition = place
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if partitions is None:
            partitions = self.partitions_to_fill(group_id, topic)
        before = partitions.get(partition)
        if before is None:
            self.count += 1
        if not self._timeline.loading:
            self._remember(place, before)
        partitions[partition] = kept

    def partitions_to_fill(self, group_id: str, topic: str) -> Partitions:
        """While loading, whoever puts many offsets of one topic may put them here."""
        topics = self._groups.get(group_id)
        if topics is None:
            if not self._timeline.loading:
                self._remember(group_id, None)
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        return self._add_topic(topics, group_id, topic) if partitions is None else partitions

    def _add_topic(self, topics: Topics, group_id: str, topic: str) -> Partitions:
        # Thousands of groups name the same few topics.
        topic = sys.intern(topic)
        self._groups_of.setdefault(topic, {})[group_id] = None
        partitions = topics[topic] = {}
        return partitions

    def _remove_topic(self, topics: Topics, group_id: str, topic: str) -> None:
        del topics[topic]
        groups = self._groups_of[topic]
        del groups[group_id]
        if not groups:
            del self._groups_of[topic]

    def remove(self, group_id: str, topic: str, partition: int) -> bytes | None:
        """Remove the offset, if it is there."""
        topics = self._groups.get(group_id, _NO_TOPICS)
        partitions = topics.get(topic, _NO_PARTITIONS)
        if partition not in partitions:
            return None
        if not self._timeline.loading:
            self._remember((group_id, topic, partition), partitions[partition])
        removed = partitions.pop(partition)
        self.count -= 1
        if not partitions:
            self._remove_topic(topics, group_id, topic)
        return removed

    def forget(self, group_id: str) -> None:
        """Drop the group if it has no offset left."""
        if not self._groups.get(group_id, True):
            if not self._timeline.loading:
                self._remember(group_id, _PRESENT)
            del self._groups[group_id]

    def forget_empty(self) -> Iterator[None]:
        """Drop every group that has no offset left, when the log has been read and all of it is committed: there is
        nothing to go back to, and nothing is remembered. The others are counted. In steps, between which nothing
        changes."""
        count = 0
        empty: list[str] = []
        for looked_at, (group_id, topics) in enumerate(self._groups.items(), 1):
            if topics:
                count += sum(map(len, topics.values()))
            else:
                empty.append(group_id)
            if not looked_at % _STEP_GROUPS:
                yield
        self.count = count
        for dropped, group_id in enumerate(empty, 1):
            assert group_id not in self._before, "it may yet come back"
            del self._groups[group_id]
            if not dropped % _STEP_GROUPS:
                yield

    # The committed state.

    def committed(self, group_id: str, topic: str, partition: int) -> bytes | None:
        if self._before:
            before = self._before.get((group_id, topic, partition))
            if before is not None:
                return before[0]
        return self.get(group_id, topic, partition)

    def is_committed(self, group_id: str) -> bool:
        """Is the group there?"""
        before = self._before.get(group_id)
        return group_id in self._groups if before is None else before[0] is not None

    def committed_topics(self, group_id: str) -> Topics:
        if not self._before:
            return self.topics(group_id)
        found = {topic: dict(partitions) for topic, partitions in self.topics(group_id).items()}
        for place, before in self._before.items():
            if isinstance(place, str) or place[0] != group_id:
                continue
            _, topic, partition = place
            if before[0] is not None:
                found.setdefault(topic, {})[partition] = before[0]
            elif topic in found:
                found[topic].pop(partition, None)
        return {topic: partitions for topic, partitions in found.items() if partitions}

    # Going back, by the timeline.

    def _remember(self, change: Change, value: bytes | None) -> None:
        before = self._before.get(change)
        if before is None:
            self._before[change] = [value]
        else:
            before.append(value)
        self._timeline.note(cast("Reversible", self), change)

    def undo(self, change: Change) -> None:
        before = self._before[change]
        value = before.pop()
        if not before:
            del self._before[change]
        if isinstance(change, str):
            if value is None:
                assert not self._groups.pop(change), "a group goes before its offsets"
            else:
                self._groups[change] = {}
            return
        group_id, topic, partition = change
        topics = self._groups[group_id]
        partitions = topics.get(topic)
        if value is not None:
            if partitions is None:
                partitions = self._add_topic(topics, group_id, topic)
            if partition not in partitions:
                self.count += 1
            partitions[partition] = value
            return
        assert partitions is not None
        del partitions[partition]
        self.count -= 1
        if not partitions:
            self._remove_topic(topics, group_id, topic)

    def settle(self, change: Change) -> None:
        before = self._before[change]
        del before[0]
        if not before:
            del self._before[change]
