"""Envelope (key 58, KIP-590): a client's request that a broker hands on, with the client's name and address.

Served on the controller's listener alone. What is inside is handled as if the client had sent it here itself; its
answer travels back inside the envelope's, in the client's version. Errors of the envelope are the broker's affair:
NOT_CONTROLLER, which makes it look for the active controller, also where only the inner answer says so.
"""

from __future__ import annotations

from ottla.broker.access.authorisation import call
from ottla.broker.api import CONTROLLER_HANDLERS, load
from ottla.broker.api.refusals import says
from ottla.broker.context import Context
from ottla.broker.forwarding import FORWARDABLE, pack_response, read_address, read_principal, read_request
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.wire.message import Message
from ottla.wire.messages.envelope_request import EnvelopeRequest
from ottla.wire.messages.envelope_response import EnvelopeResponse


async def handle(context: Context, request: EnvelopeRequest) -> EnvelopeResponse:
    try:
        return await _handle(context, request)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    except Malformed:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)


async def _handle(context: Context, request: EnvelopeRequest) -> EnvelopeResponse:
    inner, head = read_request(request.request_data)
    module = CONTROLLER_HANDLERS.get(head.api_key)
    if head.api_key not in FORWARDABLE or module is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {head.api_key} is not eligible for forwarding.")
    if not context.services.control.is_active_controller:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    as_client = context._replace(
        api_key=head.api_key,
        api_version=head.api_version,
        client_id=head.client_id,
        principal=read_principal(request.request_principal),
        host=read_address(request.client_host_address),
    )
    result = call(as_client, load(module), inner)
    response = result if isinstance(result, Message) else await result
    if says(response, ErrorCode.NOT_CONTROLLER):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=pack_response(head, response))
