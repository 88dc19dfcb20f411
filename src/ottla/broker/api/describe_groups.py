"""DescribeGroups (key 15): classic groups with their members, and what the leader assigned to each.

A group is described once, however often it is named: it may have very many members.
"""

from __future__ import annotations

from ottla.broker.access.authorized_operations import on_group
from ottla.broker.bounds.answer_budget import AnswerBudget
from ottla.broker.context import Context
from ottla.coordinator.offsets.listing import describe_groups
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse


def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    budget = AnswerBudget()
    described = [_describe(context, group_id, budget) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = on_group(context, group.group_id)
    return DescribeGroupsResponse(groups=described)


def _describe(context: Context, group_id: str, budget: AnswerBudget) -> DescribedGroup:
    version = context.api_version
    try:
        if not context.may_group(Operation.DESCRIBE, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        budget.check()
        (described,) = context.services.groups.read(
            group_id, lambda shard, _: describe_groups(shard, (group_id,), version)
        )
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    budget.spend(len(described.members))
    return described
