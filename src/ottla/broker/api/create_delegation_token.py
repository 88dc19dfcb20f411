"""CreateDelegationToken (key 38, KIP-48): for whoever asks, or, with the right to, for somebody else (KIP-373)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.access.token_rights import may_ask_for_tokens
from ottla.broker.api import on_controller
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.controller.token_control import owner_of
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.wire.message import Message
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse

FIRST_VERSION_WITH_REQUESTERS = 3


def handle(context: Context, request: CreateDelegationTokenRequest) -> Message | Awaitable[Message]:
    owner = owner_of(request, context.principal)
    if not may_ask_for_tokens(context):
        return _refusal(context, owner, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != context.principal and not context.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return _refusal(context, owner, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if not context.on_controller:
        return forward(context, request)
    deciding = on_controller.handle(context, request)
    return _fit(deciding, context.api_version) if isinstance(deciding, Message) else _fit_later(context, deciding)


async def _fit_later(context: Context, deciding: Awaitable[Message]) -> Message:
    return _fit(await deciding, context.api_version)


def _fit(response: Message, version: int) -> Message:
    """Older versions do not know that somebody may ask for somebody else."""
    assert isinstance(response, CreateDelegationTokenResponse)
    if version < FIRST_VERSION_WITH_REQUESTERS:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response


def _refusal(context: Context, owner: str, code: ErrorCode) -> Message:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = context.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    return _fit(response, context.api_version)
