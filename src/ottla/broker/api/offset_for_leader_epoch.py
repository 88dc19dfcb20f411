"""OffsetForLeaderEpoch (key 23): where an epoch ended, so that a reader can tell how far its log and ours agree."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from ottla.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    replicas = context.services.replicas
    for_cluster = context.silently.may_cluster(Operation.CLUSTER_ACTION)
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        may_describe = for_cluster or context.may_topic(Operation.DESCRIBE, topic.topic)
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            result.partitions.append(answer)
            hosted = replicas.partition(topic.topic, wanted.partition)
            try:
                if not may_describe:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if hosted is None:
                    raise KafkaError(context.services.missing_partition(topic.topic, wanted.partition))
                replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            answer.leader_epoch, answer.end_offset = hosted.log.end_offset_for_epoch(wanted.leader_epoch)
    return response
