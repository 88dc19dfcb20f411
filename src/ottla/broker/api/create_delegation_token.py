"""CreateDelegationToken (key 38, KIP-48): for whoever asks, or, with the right to, for somebody else (KIP-373)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.api import on_controller
from ottla.broker.context import Context
from ottla.broker.forwarding import forward
from ottla.broker.token_rights import may_ask_for_tokens
from ottla.controller.token_control import owner_of
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.wire.message import Message
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse


def handle(context: Context, request: CreateDelegationTokenRequest) -> Message | Awaitable[Message]:
    owner = owner_of(request, context.principal)
    if not may_ask_for_tokens(context):
        return _refusal(context, owner, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != context.principal and not context.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return _refusal(context, owner, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return on_controller.handle(context, request) if context.on_controller else forward(context, request)


def _refusal(context: Context, owner: str, code: ErrorCode) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = context.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
