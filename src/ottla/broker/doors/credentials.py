"""Where SCRAM finds what it compares with: users' credentials, and those of delegation tokens.

Users are in the metadata. A node that has not heard what is committed yet, but must let the other controllers in so
that they can agree on it, goes by what its own disk says: its metadata log, and what `format` wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.security.scram import Credential, TokenOwner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.images import MetadataImage
    from ottla.metadata.records import MetadataRecord
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
