"""RenewDelegationToken (key 39) and ExpireDelegationToken (key 40): by its owner, or by whom the owner named."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.access.token_rights import may_ask_for_tokens
from ottla.broker.api import on_controller
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse


def handle(
    context: Context, request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest
) -> Message | Awaitable[Message]:
    if not may_ask_for_tokens(context):
        renews = isinstance(request, RenewDelegationTokenRequest)
        response = RenewDelegationTokenResponse() if renews else ExpireDelegationTokenResponse()
        response.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        response.expiry_timestamp_ms = -1
        return response
    return on_controller.handle(context, request) if context.on_controller else forward(context, request)
