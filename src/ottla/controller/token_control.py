"""Delegation tokens (KIP-48, KIP-373): who made one for whom, who may renew it, and until when it counts.

A token's secret is never stored: it is made of the token's id and a key that all nodes are configured with, whenever
it is needed. Times are the wall clock's, since they outlive the process.
"""

from __future__ import annotations

import hmac
from copy import copy
from random import Random
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated
from ottla.controller.requester import Requester
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import has_delegation_tokens
from ottla.metadata.ids import random_uuid
from ottla.metadata.records import MetadataRecord
from ottla.model import uuid_to_text

if TYPE_CHECKING:
    from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
    from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
    from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
    from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
    from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
    from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
    from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

_NO_TIME = -1
SWEPT_MAX = 1_000
"""Tokens that one step of the clock's work removes."""


def token_hmac(token_id: str, secret: str) -> bytes:
    """What the holder of a token knows, and nobody else."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """For whom the token is: for whoever asks, unless the request names somebody else."""
    if request.owner_principal_name:
        return f"{request.owner_principal_type}:{request.owner_principal_name}"
    return requester


def concerns(token: DelegationTokenRecord, principal: str) -> bool:
    """Is it the principal's own token, or was it made by him, or may he renew it?"""
    return principal in (token.owner, token.requester, *token.renewers)


class TokenControl:
    def __init__(self, state: Speculation, settings: ControllerSettings, random: Random) -> None:
        self._state = state
        self._settings = settings
        self._random = random

    def create(
        self, request: CreateDelegationTokenRequest, now_ms: int, requester: Requester
    ) -> Generated[CreateDelegationTokenResponse]:
        from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
        from ottla.wire.messages.delegation_token_record import DelegationTokenRecord

        owner = owner_of(request, requester.principal)
        owner_type, _, owner_name = owner.partition(":")
        requester_type, _, requester_name = requester.principal.partition(":")
        response = CreateDelegationTokenResponse(
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=_NO_TIME,
            expiry_timestamp_ms=_NO_TIME,
            max_timestamp_ms=_NO_TIME,
        )
        try:
            secret = self._secret()
            if any(renewer.principal_type != "User" for renewer in request.renewers) or owner_type != "User":
                raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        except KafkaError as error:
            response.error_code = error.code
            return Generated([], response)
        lifetime_ms = self._settings.token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        token_id = uuid_to_text(random_uuid(self._random))
        record = DelegationTokenRecord(
            owner=owner,
            requester=requester.principal,
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=now_ms + lifetime_ms,
            expiration_timestamp=min(now_ms + lifetime_ms, now_ms + self._settings.token_expiry_ms),
            token_id=token_id,
        )
        response.issue_timestamp_ms = record.issue_timestamp
        response.expiry_timestamp_ms = record.expiration_timestamp
        response.max_timestamp_ms = record.max_timestamp
        response.token_id = token_id
        response.hmac = token_hmac(token_id, secret)
        return Generated([MetadataRecord(record, 0)], response)

    def renew(
        self, request: RenewDelegationTokenRequest, now_ms: int, requester: Requester
    ) -> Generated[RenewDelegationTokenResponse]:
        from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

        try:
            token = self._find(bytes(request.hmac), requester)
            if _is_expired(token, now_ms):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        except KafkaError as error:
            return Generated([], RenewDelegationTokenResponse(error_code=error.code))
        period_ms = self._settings.token_expiry_ms
        if request.renew_period_ms >= 0:
            period_ms = min(period_ms, request.renew_period_ms)
        renewed = _until(token, now_ms + period_ms)
        response = RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expiration_timestamp)
        return Generated([MetadataRecord(renewed, 0)], response)

    def expire(
        self, request: ExpireDelegationTokenRequest, now_ms: int, requester: Requester
    ) -> Generated[ExpireDelegationTokenResponse]:
        """A negative period ends the token at once."""
        from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

        try:
            token = self._find(bytes(request.hmac), requester)
            if request.expiry_time_period_ms < 0:
                return Generated([_removed(token)], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
            if _is_expired(token, now_ms):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        except KafkaError as error:
            return Generated([], ExpireDelegationTokenResponse(error_code=error.code))
        changed = _until(token, now_ms + request.expiry_time_period_ms)
        response = ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp)
        return Generated([MetadataRecord(changed, 0)], response)

    def sweep(self, now_ms: int) -> list[MetadataRecord]:
        """Let go of tokens that count no more."""
        expired = (token for token in self._state.image.delegation_tokens.values() if _is_expired(token, now_ms))
        return [_removed(token) for token, _ in zip(expired, range(SWEPT_MAX), strict=False)]

    def _secret(self) -> str:
        if self._settings.token_secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if not has_delegation_tokens(self._state.image.features.metadata_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return self._settings.token_secret

    def _find(self, secret_hmac: bytes, requester: Requester) -> DelegationTokenRecord:
        """The token that whoever asks knows the secret of, and may renew."""
        secret = self._secret()
        for token in self._state.image.delegation_tokens.values():
            if hmac.compare_digest(token_hmac(token.token_id, secret), secret_hmac):
                # Not by whoever had it made for somebody else.
                if requester.principal not in (token.owner, *token.renewers):
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
                return token
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _until(token: DelegationTokenRecord, expires_ms: int) -> DelegationTokenRecord:
    changed = copy(token)
    changed.expiration_timestamp = min(token.max_timestamp, expires_ms)
    return changed


def _is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _removed(token: DelegationTokenRecord) -> MetadataRecord:
    from ottla.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord

    return MetadataRecord(RemoveDelegationTokenRecord(token_id=token.token_id), 0)
