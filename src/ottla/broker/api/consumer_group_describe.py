"""ConsumerGroupDescribe (key 69): consumer groups, and what each member has and shall have (KIP-848)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from ottla.broker.access.authorized_operations import on_group
from ottla.broker.api.consumer_group_heartbeat import GROUP_VERSION
from ottla.broker.bounds.answer_budget import of_each_group
from ottla.broker.context import Context
from ottla.coordinator.group_shard import GroupShard
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup


def handle(context: Context, request: ConsumerGroupDescribeRequest) -> Message | Awaitable[Message]:
    describe = partial(_describe, context, request)
    return of_each_group(context, ConsumerGroupDescribeResponse, request.group_ids, describe, _elements)


def _describe(context: Context, request: ConsumerGroupDescribeRequest, group_id: str) -> DescribedGroup:
    services = context.services

    def describe(shard: GroupShard, now_ms: int) -> DescribedGroup:
        return shard.consumer.describe(group_id)

    try:
        if not services.image.features.levels.get(GROUP_VERSION, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not context.may_group(Operation.DESCRIBE, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        described = services.groups.read(group_id, describe)
        if not all(context.may_topic(Operation.DESCRIBE, topic) for topic in _topics(described)):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        if request.include_authorized_operations:
            described.authorized_operations = on_group(context, group_id)
        return described
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _elements(group: DescribedGroup) -> int:
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment)]
    return len(group.members) + sum(len(topic.partitions) for each in assignments for topic in each.topic_partitions)


def _topics(group: DescribedGroup) -> set[str]:
    """All that the description would tell of."""
    return {
        name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for name in (*member.subscribed_topic_names, *(topic.topic_name for topic in assignment.topic_partitions))
    }
