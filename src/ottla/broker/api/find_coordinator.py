"""FindCoordinator (key 10): where groups and transactions live. This node does not coordinate any yet."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

_KEY_TYPES = (0, 1, 2)
_MESSAGE = "The coordinator is not available."


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.key_type in _KEY_TYPES:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, _MESSAGE
    else:
        code, message = ErrorCode.INVALID_REQUEST, f"Key type {request.key_type} does not exist."
    if context.api_version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )
