"""Heartbeat (key 12): a member of a classic group lives, and hears whether it is to join again."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.coordinator import by_kind
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse | Promise[HeartbeatResponse]:
    if not context.may_group(Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    heard: Promise[HeartbeatResponse] = context.services.groups.write(
        request.group_id, lambda shard, now_ms: by_kind.heartbeat(shard, request, now_ms)
    )
    return heard.otherwise(_refused)


def _refused(error: KafkaError) -> HeartbeatResponse:
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Whoever is a member has a whole session from the end of the load.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)
