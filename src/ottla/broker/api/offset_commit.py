"""OffsetCommit (key 8): how far a group has come in each partition."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_IDS = 10


def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    refused, request.topics = _sort_out(context, request.topics)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    version = context.api_version
    written = context.services.groups.write(
        request.group_id, lambda shard, now_ms: shard.offsets.commit(request, version, now_ms)
    )
    return written.then(
        lambda response: _merged(refused, response.topics),
        lambda error: _merged(refused, _refuse_all(request, error)),
    )


def _sort_out(
    context: Context, topics: list[OffsetCommitRequestTopic]
) -> tuple[list[OffsetCommitResponseTopic], list[OffsetCommitRequestTopic]]:
    """The answers about what does not exist, and what does: each topic by name and by id."""
    image = context.services.image
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    refused: list[OffsetCommitResponseTopic] = []
    existing: list[OffsetCommitRequestTopic] = []
    for topic in topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_answer(topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = known.name, known.topic_id
        missing = [each for each in topic.partitions if each.partition_index not in known.partitions]
        if missing:
            refused.append(_answer(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if each.partition_index in known.partitions]
        if topic.partitions:
            existing.append(topic)
    return refused, existing


def _answer(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in partitions
        ],
    )


def _refuse_all(request: OffsetCommitRequest, error: KafkaError) -> list[OffsetCommitResponseTopic]:
    return [_answer(topic, topic.partitions, error.code) for topic in request.topics]


def _merged(refused: list[OffsetCommitResponseTopic], others: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """One answer a topic, also for one of which some partitions exist and some do not."""
    if not refused:
        return OffsetCommitResponse(topics=others)
    by_key = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in others:
        found = by_key.get((topic.name, topic.topic_id))
        if found is None:
            refused.append(topic)
        else:
            found.partitions += topic.partitions
    return OffsetCommitResponse(topics=refused)
