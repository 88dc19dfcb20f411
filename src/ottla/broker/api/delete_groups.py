"""DeleteGroups (key 42): groups that nobody is in go, with their offsets."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse


def handle(context: Context, request: DeleteGroupsRequest) -> Awaitable[DeleteGroupsResponse]:
    by_partition: dict[int, list[str]] = {}
    refused: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        if not context.may_group(Operation.DELETE, group_id):
            refused.append(DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        by_partition.setdefault(context.services.groups.partition_for(group_id), []).append(group_id)
    # Each shard writes its own, all at once; then they are waited for.
    return _gather([_delete(context, group_ids) for group_ids in by_partition.values()], refused)


async def _gather(
    written: list[Promise[list[DeletableGroupResult]]], refused: list[DeletableGroupResult]
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for promise in written for result in await promise] + refused)


def _delete(context: Context, group_ids: list[str]) -> Promise[list[DeletableGroupResult]]:
    written: Promise[list[DeletableGroupResult]] = context.services.groups.write(
        group_ids[0], lambda shard, _: shard.offsets.delete_groups(group_ids)
    )
    return written.otherwise(
        lambda error: [DeletableGroupResult(group_id=group_id, error_code=error.code) for group_id in group_ids]
    )
