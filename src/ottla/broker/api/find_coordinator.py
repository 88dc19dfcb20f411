"""FindCoordinator (key 10): where groups and transactions live. This node does not coordinate any yet."""

from __future__ import annotations

import logging

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

_log = logging.getLogger(__name__)

_KEY_TYPES = (0, 1, 2)
_MESSAGE = "The coordinator is not available."


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    services = context.services
    if not services.told_of_groups:
        services.told_of_groups = True
        _log.warning(
            "client %r asks for a group or a transaction, which this release does not serve: assign partitions instead",
            context.client_id,
        )
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
