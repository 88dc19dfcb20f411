"""DeleteRecords (key 21): moves a log's start forward, and answers when every live replica has followed."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answered = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answered)
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            answered.partitions.append(result)
            try:
                result.low_watermark = _delete(context, topic.name, wanted.partition_index, wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
    return response


def _delete(context: Context, topic: str, index: int, offset: int) -> int:
    services = context.services
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
    log.advance_log_start(target)
    return log.log_start_offset
