"""DescribeDelegationToken (key 41): one's own tokens, those that one may renew, and those that one may describe."""

from __future__ import annotations

from ottla.broker.access.token_rights import may_ask_for_tokens
from ottla.broker.api.create_delegation_token import FIRST_VERSION_WITH_REQUESTERS
from ottla.broker.context import Context
from ottla.controller.token_control import concerns, token_hmac
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
from ottla.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from ottla.wire.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)


def handle(context: Context, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    if not may_ask_for_tokens(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = context.services.config.find_text("delegation.token.secret.key")
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners: set[str] | None = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, secret, context.api_version)
            for token in context.services.image.delegation_tokens.values()
            if (owners is None or any(concerns(token, owner) for owner in owners)) and _may_see(context, token)
        ]
    )


def _may_see(context: Context, token: DelegationTokenRecord) -> bool:
    client = context.silently
    return (
        concerns(token, context.principal)
        or client.may(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        or client.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
    )


def _described(token: DelegationTokenRecord, secret: str, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester = token.requester if version >= FIRST_VERSION_WITH_REQUESTERS else ""
    requester_type, _, requester_name = requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(token.token_id, secret),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
