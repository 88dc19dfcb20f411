"""OffsetDelete (key 47): forget what a group has committed, in partitions that it does not consume."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Promise[OffsetDeleteResponse]:
    if not context.may_group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    refused, request.topics = _sort_out(context, request.topics)
    written: Promise[OffsetDeleteResponse] = context.services.groups.write(
        request.group_id, lambda shard, _: shard.offsets.delete(request)
    )
    return written.then(
        lambda response: _merged(refused, response), lambda error: OffsetDeleteResponse(error_code=error.code)
    )


def _sort_out(
    context: Context, topics: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteResponseTopic], list[OffsetDeleteRequestTopic]]:
    """The answers about what does not exist, and what does."""
    refused: list[OffsetDeleteResponseTopic] = []
    existing: list[OffsetDeleteRequestTopic] = []
    for topic in topics:
        known = context.services.image.topic(topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not context.may_topic(Operation.READ, topic.name):
            known, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        there: list[OffsetDeleteRequestPartition] = []
        missing: list[OffsetDeleteResponsePartition] = []
        for each in topic.partitions:
            if known is not None and each.partition_index in known.partitions:
                there.append(each)
            else:
                missing.append(OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code))
        if missing:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
        if there:
            existing.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
    return refused, existing


def _merged(refused: list[OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    if not refused:
        return response
    by_name = {topic.name: topic for topic in refused}
    for topic in response.topics:
        found = by_name.get(topic.name)
        if found is None:
            refused.append(topic)
        else:
            found.partitions += topic.partitions
    return OffsetDeleteResponse(topics=refused)
