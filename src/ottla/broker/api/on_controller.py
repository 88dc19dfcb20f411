"""Whatever only the active controller decides, on the controller's listener: all of `Controller.METHODS`.

Brokers and other controllers send here, and so do admin clients that were given controllers to bootstrap from
(KIP-919). A node that is not the active controller says NOT_CONTROLLER, and whoever asked finds the one that is.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.access.admin_rights import Refused, add, take_forbidden
from ottla.broker.api.refusals import refusal
from ottla.broker.bounds.client_quotas import throttle
from ottla.broker.context import Context
from ottla.controller.requester import Requester
from ottla.errors import KafkaError
from ottla.wire.message import Message


def handle(context: Context, request: Message) -> Message | Awaitable[Message]:
    allowed, refused = take_forbidden(context, request)
    requester = context.requester
    try:
        # In this very turn, so that requests which come together share a flush.
        deciding = context.services.control.submit_request(allowed, requester)
    except KafkaError as error:
        return refusal(request, error, context.api_version)
    return _answer(context, request, requester, deciding, refused)


async def _answer(
    context: Context, request: Message, requester: Requester, deciding: Awaitable[Message], refused: Refused | None
) -> Message:
    try:
        response = await deciding
        if requester.throttle_ms:
            throttle(context, response, requester.throttle_ms)
        return response if refused is None else add(response, refused)
    except KafkaError as error:
        return refusal(request, error, context.api_version)
