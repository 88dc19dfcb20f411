"""What a group has committed.

It is looked up at one moment (`look_up`), which is quick, and read when it is told (`Found`), which is not: a group may
have tens of thousands of offsets, and whoever tells them may let others have their turns meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.groups import GroupDirectory
from ottla.coordinator.offsets.codec import decode_value
from ottla.coordinator.offsets.state import OffsetState
from ottla.coordinator.offsets.table import value_of
from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NOTHING = -1
"""The offset of a partition for which nothing was committed."""

_UNSTABLE: Final = b""
"""Stands for what an open transaction has staged. What a table keeps is never empty."""

Kept = tuple[int, bytes | None]
"""A partition, and what the table has of it."""


class Found:
    """The offsets of one group as they were when they were looked up."""

    __slots__ = ("_response", "_topics", "count")

    def __init__(self, group_id: str) -> None:
        self._response = OffsetFetchResponseGroup(group_id=group_id)
        self._topics: deque[tuple[str, Uuid, list[Kept]]] = deque()
        self.count = 0
        """Of partitions, and of topics of which there are none."""

    def add(self, topic: str, topic_id: Uuid, partitions: list[Kept]) -> None:
        self._topics.append((topic, topic_id, partitions))
        self.count += len(partitions) or 1

    def tell(self, step: int) -> Iterator[int]:
        """Read them, at most so many at a time: how many they were this time."""
        topics = self._topics
        while topics:
            name, topic_id, partitions = topics.popleft()
            told: list[OffsetFetchResponsePartitions] = []
            self._response.topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=told))
            for first in range(0, len(partitions), step):
                some = partitions[first : first + step]
                told += [_answer(index, kept, topic_id) for index, kept in some]
                yield len(some)
            if not partitions:
                yield 1

    def told(self) -> OffsetFetchResponseGroup:
        """The answer: all that has not been told yet is told now."""
        if self._topics:
            for _ in self.tell(self.count):
                pass
        return self._response


def look_up(
    state: OffsetState, groups: GroupDirectory, request: OffsetFetchRequestGroup, require_stable: bool
) -> Found:
    """Of the topics that the request names, each with its name and perhaps its id; of all if it names none.

    With `require_stable` it answers from the newest state, and the answer must wait until that is committed. Then a
    partition for which an open transaction has staged an offset is UNSTABLE_OFFSET_COMMIT (KIP-447). Without it, from
    committed state. Raises `KafkaError` for the whole group.
    """
    group_id = request.group_id
    group = groups.group(group_id)
    # Of a group that is gone, but not yet for good, the committed offsets are still there.
    if group is not None:
        group.check_offset_fetch(request.member_id, request.member_epoch)
    found = Found(group_id)
    table = state.table
    if request.topics is not None and not request.topics:
        return found
    is_checked = require_stable and state.has_staged(group_id)
    if request.topics is None:
        topics: Mapping[str, Mapping[int, bytes]]
        topics = table.topics(group_id) if require_stable else table.committed_topics(group_id)
        for name, partitions in topics.items():
            kept: list[Kept] = list(partitions.items())
            found.add(name, ZERO_UUID, _checked(state, group_id, name, kept) if is_checked else kept)
        return found
    get = table.get if require_stable else table.committed
    for wanted in request.topics:
        name = wanted.name
        kept = [(index, get(group_id, name, index)) for index in wanted.partition_indexes]
        found.add(name, wanted.topic_id, _checked(state, group_id, name, kept) if is_checked else kept)
    return found


def _checked(state: OffsetState, group_id: str, topic: str, partitions: Iterable[Kept]) -> list[Kept]:
    """With what is staged marked as such."""
    return [(index, _UNSTABLE if state.is_staged(group_id, topic, index) else kept) for index, kept in partitions]


def _answer(index: int, kept: bytes | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
    if kept is _UNSTABLE:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NOTHING, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    if kept is not None:
        committed = decode_value(value_of(kept))
        # An offset of an earlier topic of the same name is none of this one's.
        if topic_id == ZERO_UUID or committed.topic_id in (ZERO_UUID, topic_id):
            return OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NOTHING)
