"""DeleteRecords (key 21): moves a log's start forward, and answers when every live replica has followed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.hosted import HostedPartition
from ottla.broker.purgatory import DelayedDeleteRecords
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.model import INTERNAL_TOPICS
from ottla.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waits: list[tuple[HostedPartition, int, DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        answered = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answered)
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            answered.partitions.append(result)
            try:
                hosted, target = _delete(context, topic.name, wanted.partition_index, wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
                continue
            assert hosted.leader is not None
            low_watermark = hosted.leader.low_watermark(hosted.log.log_start_offset)
            if low_watermark >= target:
                result.low_watermark = low_watermark
            else:
                waits.append((hosted, target, result))
    if not waits:
        return response
    return _wait(context, request.timeout_ms, response, waits)


async def _wait(
    context: Context,
    timeout_ms: int,
    response: DeleteRecordsResponse,
    waits: list[tuple[HostedPartition, int, DeleteRecordsPartitionResult]],
) -> DeleteRecordsResponse:
    """Followers give up what lies before the log start that a fetch told them of, and say so with the next one."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(low_watermarks: dict[HostedPartition, int], errors: dict[HostedPartition, ErrorCode]) -> None:
        for hosted, _, result in waits:
            result.low_watermark = low_watermarks.get(hosted, -1)
            result.error_code = errors.get(hosted, ErrorCode.NONE)
        done.set_result(None)

    delayed = DelayedDeleteRecords(finish)
    for hosted, target, _ in waits:
        delayed.wait_for(hosted, target)
    delayed.start(context.services.timers, timeout_ms)
    await done
    return response


def _delete(context: Context, topic: str, index: int, offset: int) -> tuple[HostedPartition, int]:
    services = context.services
    if not context.may_topic(Operation.DELETE, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    hosted = services.replicas.partition(topic, index)
    if hosted is None:
        raise KafkaError(services.missing_partition(topic, index))
    services.replicas.leader_or_refuse(hosted)
    log = hosted.log
    if not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Records of a topic that is only compacted cannot be deleted.")
    target = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if log.advance_log_start(target):
        services.replicas.touch(hosted)
    return hosted, target
