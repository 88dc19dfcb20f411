"""FindCoordinator (key 10): which broker leads the partition that holds a group or a transactional id.

The topics of coordinators come to be when they are first asked for. Kafka answers that first question with
COORDINATOR_NOT_AVAILABLE, and lets the client ask again; waiting for the creation saves it that round.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

_GROUP = 0
_TRANSACTION = 1
_KINDS = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_FORBIDDEN = {
    _GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    _TRANSACTION: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}
_TOPICS = {_GROUP: GROUP_TOPIC, _TRANSACTION: TRANSACTION_TOPIC}

Found = tuple[int, str, int]
"""Id, host and port of a broker."""
NOWHERE: Found = (-1, "", -1)


def handle(
    context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    topic = _TOPICS.get(request.key_type)
    if topic is None:
        # Share groups, which Kafka knows by the next number, have no coordinator in this release.
        return _respond(
            context,
            request,
            {},
            ErrorCode.INVALID_REQUEST,
            f"There are no coordinators of the type {request.key_type}.",
        )
    may_find_any = any(_may_find(context, request, key) for key in _keys(context, request))
    if context.services.image.topic(topic) is None and may_find_any:
        return _create_then_answer(context, request, topic)
    return _answer(context, request, topic)


async def _create_then_answer(context: Context, request: FindCoordinatorRequest, topic: str) -> FindCoordinatorResponse:
    await context.services.coordinator_topics.ensure(topic)
    return _answer(context, request, topic)


def _answer(context: Context, request: FindCoordinatorRequest, topic: str) -> FindCoordinatorResponse:
    services = context.services
    coordinators = services.groups if request.key_type == _GROUP else services.transactions
    known = services.image.topic(topic)
    found: dict[str, Found] = {}
    if known is not None:
        for key in _keys(context, request):
            if not _may_find(context, request, key):
                continue
            partition = known.partitions.get(coordinators.partition_for(key))
            if partition is not None:
                for broker, host, port, _ in services.endpoints_of((partition.leader,), context.listener):
                    found[key] = broker, host, port
    # From version 4 on Kafka leaves the message empty.
    message = "The coordinator is not available." if context.api_version < 4 else ""
    return _respond(context, request, found, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)


def _may_find(context: Context, request: FindCoordinatorRequest, key: str) -> bool:
    kind = _KINDS.get(request.key_type)
    return kind is None or context.may(Operation.DESCRIBE, kind, key)


def _keys(context: Context, request: FindCoordinatorRequest) -> list[str]:
    """Before version 4 there is one."""
    return request.coordinator_keys if context.api_version >= 4 else [request.key]


def _respond(
    context: Context, request: FindCoordinatorRequest, found: dict[str, Found], code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    """`code` is for those that were not found, unless the client may not know of them."""
    if context.api_version < 4:
        if not _may_find(context, request, request.key):
            code, message = _FORBIDDEN[request.key_type]
        broker, host, port = found.get(request.key, NOWHERE)
        if request.key in found:
            code, message = ErrorCode.NONE, "NONE"
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=broker, host=host, port=port)
    response = FindCoordinatorResponse()
    for key in request.coordinator_keys:
        broker, host, port = found.get(key, NOWHERE)
        coordinator = Coordinator(key=key, node_id=broker, host=host, port=port)
        if key not in found:
            if _may_find(context, request, key):
                coordinator.error_code, coordinator.error_message = code, message
            else:
                coordinator.error_code, coordinator.error_message = _FORBIDDEN[request.key_type]
        response.coordinators.append(coordinator)
    return response
