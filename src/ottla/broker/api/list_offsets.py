"""ListOffsets (key 2): the earliest, the latest, the newest timestamp, or the first record at or after a time."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from ottla.broker.bounds.answer_budget import in_turns
from ottla.broker.bounds.limits import ELEMENTS_A_TURN_MAX
from ottla.broker.context import Context
from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_READ_COMMITTED = 1
_CONSUMER = -1
_DEBUGGER = -2
"""Compares replicas: it sees to the end of the log, and asks whichever replica it likes."""

_SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    response = ListOffsetsResponse()
    count = sum(1 + len(topic.partitions) for topic in request.topics)
    return in_turns(count, _answer(context, request, response), response)


def _answer(context: Context, request: ListOffsetsRequest, response: ListOffsetsResponse) -> Iterator[int]:
    """Each step is of one topic or partition, or of some that are looked through."""
    asked: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            asked[key] = asked.get(key, 0) + 1
            if not len(asked) % ELEMENTS_A_TURN_MAX:
                yield ELEMENTS_A_TURN_MAX
    # What is answered is let go of: what is kept, the garbage collector walks time and again.
    topics, request.topics = request.topics, []
    topics.reverse()
    while topics:
        topic = topics.pop()
        answered = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answered)
        may_describe = context.may_topic(Operation.DESCRIBE, topic.name)
        yield 1
        for partition in topic.partitions:
            try:
                if not may_describe:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if asked[topic.name, partition.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                found = _look_up(context, request, topic.name, partition)
            except KafkaError as error:
                found = ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
            answered.partitions.append(found)
            yield 1


def _look_up(
    context: Context, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    replicas = context.services.replicas
    hosted = replicas.partition(topic, wanted.partition_index)
    if hosted is None:
        raise KafkaError(context.services.missing_partition(topic, wanted.partition_index))
    timestamp = wanted.timestamp
    if timestamp < 0 and context.api_version < _SINCE_VERSION.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.replica_id == _DEBUGGER:
        replicas.replica_or_refuse(hosted, wanted.current_leader_epoch)
    else:
        replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
    found = _offset(hosted, request, timestamp)
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    if found is not None:
        answer.timestamp, answer.offset, epoch = found
        if context.api_version >= 4:
            answer.leader_epoch = epoch
    return answer


def _offset(hosted: HostedPartition, request: ListOffsetsRequest, timestamp: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch), or none when no record qualifies."""
    log, leader = hosted.log, hosted.leader
    from_consumer = request.replica_id == _CONSUMER
    if not from_consumer:
        readable = log.log_end_offset
    elif request.isolation_level == _READ_COMMITTED:
        readable = log.last_stable_offset
    else:
        readable = log.high_watermark
    # A new leader does not know yet how much its predecessor had committed (KIP-207).
    settled = not from_consumer or leader is None or log.high_watermark >= leader.start_offset
    if timestamp == LATEST:
        if not settled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, readable, hosted.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        epoch = log.epochs.epoch_for_offset(start)
        return -1, start, -1 if epoch is None else epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is not None and found.offset < readable:
        return found.timestamp, found.offset, found.leader_epoch
    if not settled:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None
