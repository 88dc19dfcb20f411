"""OffsetForLeaderEpoch (key 23): where an epoch ended, so that a reader can tell how far its log and ours agree."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import KafkaError
from ottla.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from ottla.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    replicas = context.services.replicas
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            result.partitions.append(answer)
            hosted = replicas.partition(topic.topic, wanted.partition)
            try:
                if hosted is None:
                    raise KafkaError(context.services.missing_partition(topic.topic, wanted.partition))
                replicas.leader_or_refuse(hosted, wanted.current_leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            answer.leader_epoch, answer.end_offset = hosted.log.end_offset_for_epoch(wanted.leader_epoch)
    return response
