"""LeaveGroup (key 13): members go, of their own will or, static ones, by an administrator's."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.coordinator import by_kind
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse

_SEVERAL_FROM = 3
"""The version from which on several members leave at once (KIP-345), and each has an error code of its own."""


def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse | Promise[LeaveGroupResponse]:
    if not context.may_group(Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if context.api_version < _SEVERAL_FROM:
        request.members = [MemberIdentity(member_id=request.member_id)]
    left: Promise[LeaveGroupResponse] = context.services.groups.write(
        request.group_id, lambda shard, now_ms: by_kind.leave(shard, request, now_ms)
    )
    return left.then(partial(_for_version, context), lambda error: LeaveGroupResponse(error_code=error.code))


def _for_version(context: Context, response: LeaveGroupResponse) -> LeaveGroupResponse:
    if context.api_version < _SEVERAL_FROM:
        (only,) = response.members
        return LeaveGroupResponse(error_code=response.error_code or only.error_code)
    return response
