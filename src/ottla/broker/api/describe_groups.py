"""DescribeGroups (key 15): classic groups with their members, and what the leader assigned to each."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from ottla.broker.access.authorized_operations import on_group
from ottla.broker.bounds.answer_budget import of_each_group
from ottla.broker.context import Context
from ottla.coordinator.offsets.listing import describe_groups
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.message import Message
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse


def handle(context: Context, request: DescribeGroupsRequest) -> Message | Awaitable[Message]:
    describe = partial(_describe, context, request)
    return of_each_group(context, DescribeGroupsResponse, request.groups, describe, lambda group: len(group.members))


def _describe(context: Context, request: DescribeGroupsRequest, group_id: str) -> DescribedGroup:
    version = context.api_version
    try:
        if not context.may_group(Operation.DESCRIBE, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        (described,) = context.services.groups.read(
            group_id, lambda shard, _: describe_groups(shard, (group_id,), version)
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if request.include_authorized_operations and not described.error_code:
        described.authorized_operations = on_group(context, group_id)
    return described
