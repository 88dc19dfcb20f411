"""Offsets that are taken back: by an administrator, or with their group. (With their topic: `gone_topics`.)"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.groups import GroupDirectory
from ottla.coordinator.offsets.codec import encode_key
from ottla.coordinator.offsets.state import OffsetState
from ottla.coordinator.outcome import Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_groups_response import DeletableGroupResult
from ottla.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def tombstone(group_id: str, topic: str, partition: int) -> EncodedRecord:
    return EncodedRecord(encode_key(group_id, topic, partition), None, (group_id, topic, partition))


def delete_offsets(
    state: OffsetState, groups: GroupDirectory, request: OffsetDeleteRequest
) -> Outcome[OffsetDeleteResponse]:
    """Staged offsets go too. Raises `KafkaError` for the whole request."""
    group_id = request.group_id
    group = groups.group(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offset_delete()
    response = OffsetDeleteResponse()
    records: list[AnyRecord] = []
    for topic in request.topics:
        name = topic.name
        subscribed = group.is_subscribed_to(name)
        answer = OffsetDeleteResponseTopic(name=name)
        response.topics.append(answer)
        for wanted in topic.partitions:
            index = wanted.partition_index
            result = OffsetDeleteResponsePartition(partition_index=index)
            answer.partitions.append(result)
            if subscribed:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif state.table.get(group_id, name, index) is not None or state.is_staged(group_id, name, index):
                records.append(tombstone(group_id, name, index))
    return Outcome(response, records)


def delete_groups(
    state: OffsetState, groups: GroupDirectory, group_ids: Iterable[str]
) -> Outcome[list[DeletableGroupResult]]:
    """Each group that may go, with its offsets."""
    results: list[DeletableGroupResult] = []
    records: list[AnyRecord] = []
    for group_id in dict.fromkeys(group_ids):
        result = DeletableGroupResult(group_id=group_id)
        results.append(result)
        group = groups.group(group_id)
        try:
            if group is None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            group.check_delete()
        except KafkaError as error:
            result.error_code = error.code
            continue
        records.extend(_tombstones_of_group(state, group_id))
        records.extend(group.tombstones())
    return Outcome(results, records, atomic=False)


def _tombstones_of_group(state: OffsetState, group_id: str) -> list[EncodedRecord]:
    places = {
        (topic, partition): None
        for topic, partitions in state.table.topics(group_id).items()
        for partition in partitions
    }
    places.update((place, None) for place in state.staged_places(group_id))
    return [tombstone(group_id, topic, partition) for topic, partition in places]
