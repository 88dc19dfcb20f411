"""What a group has committed."""

from __future__ import annotations

from collections.abc import Mapping

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


def fetch(
    state: OffsetState, groups: GroupDirectory, request: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Of the topics that the request names, each with its name and perhaps its id; of all if it names none.

    With `require_stable` it answers from the newest state, and the answer must wait until that is committed. Then a
    partition for which an open transaction has staged an offset is UNSTABLE_OFFSET_COMMIT (KIP-447). Without it, from
    committed state. Raises `KafkaError` for the whole group.
    """
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    group_id = request.group_id
    group = groups.group(group_id)
    # Of a group that is gone, but not yet for good, the committed offsets are still there.
    if group is not None:
        group.check_offset_fetch(request.member_id, request.member_epoch)
    if request.topics is None:
        _fetch_all(state, group_id, require_stable, response)
        return response
    table = state.table
    look_up = table.get if require_stable else table.committed
    for wanted in request.topics:
        topic = OffsetFetchResponseTopics(name=wanted.name, topic_id=wanted.topic_id)
        response.topics.append(topic)
        for index in wanted.partition_indexes:
            if require_stable and state.is_staged(group_id, wanted.name, index):
                topic.partitions.append(_unstable(index))
            else:
                kept = look_up(group_id, wanted.name, index)
                topic.partitions.append(_answer(index, kept, wanted.topic_id))
    return response


def _fetch_all(state: OffsetState, group_id: str, require_stable: bool, response: OffsetFetchResponseGroup) -> None:
    table = state.table
    topics: Mapping[str, Mapping[int, bytes]]
    topics = table.topics(group_id) if require_stable else table.committed_topics(group_id)
    for name, partitions in topics.items():
        topic = OffsetFetchResponseTopics(name=name)
        response.topics.append(topic)
        for index, kept in partitions.items():
            if require_stable and state.is_staged(group_id, name, index):
                topic.partitions.append(_unstable(index))
            else:
                topic.partitions.append(_answer(index, kept, ZERO_UUID))


def _answer(index: int, kept: bytes | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
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


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NOTHING, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
