"""SyncGroup (key 14): what a member of a classic group owns. The leader brings what everybody gets."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.coordinator import by_kind
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

_PROTOCOL_REQUIRED_FROM = 5


def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | Promise[SyncGroupResponse]:
    if not context.may_group(Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= _PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    synced: Promise[SyncGroupResponse] = context.services.groups.write_waiting(
        request.group_id, lambda shard, token, now_ms: by_kind.sync(shard, request, token, now_ms)
    )
    return synced.otherwise(lambda error: SyncGroupResponse(error_code=error.code))
