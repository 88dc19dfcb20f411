"""JoinGroup (key 11): become, or stay, a member of a classic group. Answered when the group's join phase ends."""

from __future__ import annotations

import uuid
from functools import partial

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.coordinator import by_kind
from ottla.coordinator.classic import Joiner
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.outcome import Outcome
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse

_REBALANCE_TIMEOUT_FROM = 1
_NO_PROTOCOL_FROM = 7
"""The version from which on there may be no name of a protocol."""


def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse | Promise[JoinGroupResponse]:
    error = _refusal(context, request)
    if error:
        return _refused(context, error, request.member_id)
    if context.api_version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms
    joined: Promise[JoinGroupResponse] = context.services.groups.write_waiting(
        request.group_id, partial(_join, context, request)
    )
    if context.api_version >= _NO_PROTOCOL_FROM:
        return joined.otherwise(lambda refused: _refused(context, refused.code, ""))
    return joined.then(partial(_for_version, context), lambda refused: _refused(context, refused.code, ""))


def _refusal(context: Context, request: JoinGroupRequest) -> ErrorCode:
    """What is wrong with the request whatever the group may be."""
    config = context.services.config
    if not context.may_group(Operation.READ, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest_ms = config.get_int("group.min.session.timeout.ms")
    longest_ms = config.get_int("group.max.session.timeout.ms")
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    # Who has an id has it of a group: it makes no new one.
    if not request.member_id and not context.services.group_cap.has_room_for(request.group_id):
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE


def _join(
    context: Context, request: JoinGroupRequest, shard: GroupShard, token: int, now_ms: int
) -> Outcome[JoinGroupResponse]:
    joiner = Joiner(
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        api_version=context.api_version,
        unique="" if request.member_id else str(uuid.UUID(int=context.services.random.getrandbits(128), version=4)),
        token=token,
        may_describe=context.may_describe,
    )
    return by_kind.join(shard, request, joiner, now_ms)


def _refused(context: Context, error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return _for_version(context, JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id))


def _for_version(context: Context, response: JoinGroupResponse) -> JoinGroupResponse:
    if response.protocol_name is None and context.api_version < _NO_PROTOCOL_FROM:
        response.protocol_name = ""
    return response
