"""Where SCRAM finds what it compares with: users' credentials, and those of delegation tokens.

Users are in the metadata. A node that has not heard what is committed yet, but must let the other controllers in so
that they can agree on it, goes by what its own disk says: its metadata log, and what `format` wrote.

A delegation token's password is its secret. The keys for it are derived, off the loop, when the token is published.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from ottla.controller.token_control import token_hmac
from ottla.security.scram import ALGORITHMS, NUMBERS, Credential, TokenOwner, credential_of, salted_password

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.images import MetadataImage
    from ottla.metadata.records import MetadataRecord
    from ottla.wire.messages.delegation_token_record import DelegationTokenRecord
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

TOKEN_ITERATIONS = 4_096
_SALT_BYTES = 24


class Credentials:
    """One instance a node."""

    def __init__(self, services: Services, secrets: Random) -> None:
        self._services = services
        self._secrets = secrets
        self._first: dict[tuple[str, int], UserScramCredentialRecord] | None = {}
        """Until the first metadata is published."""
        self._tokens: dict[tuple[str, int], TokenOwner] = {}

    def begin_with(self, bootstrap: Iterable[MetadataRecord], image: MetadataImage) -> None:
        """What this node's disk knows before it has heard from anybody."""
        from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

        self._first = {}
        for record in bootstrap:
            if isinstance(record.message, UserScramCredentialRecord):
                self._first[record.message.name, record.message.mechanism] = record.message
        self._first |= dict(image.scram_credentials.items())

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        self._first = None
        for token_id, token in delta.delegation_tokens_changed.items():
            if token is None:
                for number in NUMBERS.values():
                    self._tokens.pop((token_id, number), None)
            else:
                self._on_token(token)

    def _on_token(self, token: DelegationTokenRecord) -> None:
        secret = self._services.config.find_text("delegation.token.secret.key")
        if secret is None:
            return
        known = [number for number in NUMBERS.values() if (token.token_id, number) in self._tokens]
        for number in known:
            self._tokens[token.token_id, number] = self._owner(token, self._tokens[token.token_id, number].credential)
        if not known:
            self._services.spawn(self._derive(token, secret))

    async def _derive(self, token: DelegationTokenRecord, secret: str) -> None:
        password = b64encode(token_hmac(token.token_id, secret)).decode()
        salt = self._secrets.randbytes(_SALT_BYTES)

        def derived() -> dict[int, Credential]:
            return {
                NUMBERS[mechanism]: credential_of(
                    salted_password(password, salt, TOKEN_ITERATIONS, algorithm), salt, TOKEN_ITERATIONS, algorithm
                )
                for mechanism, algorithm in ALGORITHMS.items()
            }

        credentials = await self._services.offload.run(derived)
        newest = self._services.image.delegation_tokens.get(token.token_id)
        if newest is not None:  # Else it was taken back meanwhile.
            for number, credential in credentials.items():
                self._tokens[token.token_id, number] = self._owner(newest, credential)

    @staticmethod
    def _owner(token: DelegationTokenRecord, credential: Credential) -> TokenOwner:
        return TokenOwner(credential, token.owner.partition(":")[2], token.expiration_timestamp)

    def find(self, user: str, mechanism: int) -> Credential | None:
        if self._first is not None:
            record = self._first.get((user, mechanism))
        else:
            record = self._services.image.scram_credentials.get((user, mechanism))
        if record is None:
            return None
        return Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)

    def find_token(self, token_id: str, mechanism: int) -> TokenOwner | None:
        return self._tokens.get((token_id, mechanism))
