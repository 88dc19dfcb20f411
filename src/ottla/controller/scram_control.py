"""Users' SCRAM credentials (KIP-554). What is kept cannot be turned back into a password, nor be used to log in."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated, check_size
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import has_scram
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_user_scram_credentials_request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""More would let whoever may alter a user make every login of that user expensive for the broker."""

_HASHES = {1: "sha256", 2: "sha512"}
"""By the number of the mechanism: SCRAM-SHA-256 and SCRAM-SHA-512."""


class ScramControl:
    def __init__(self, state: Speculation) -> None:
        self._state = state

    def alter(self, request: AlterUserScramCredentialsRequest) -> Generated[AlterUserScramCredentialsResponse]:
        """Each user succeeds or fails by itself, and may be named once."""
        from ottla.wire.messages.alter_user_scram_credentials_response import (
            AlterUserScramCredentialsResponse,
            AlterUserScramCredentialsResult,
        )

        alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = []
        alterations += request.deletions
        alterations += request.upsertions
        mentions = Counter(alteration.name for alteration in alterations)
        records: list[MetadataRecord] = []
        results: dict[str, AlterUserScramCredentialsResult] = {}
        for alteration in alterations:
            name = alteration.name
            if name in results:
                continue
            result = results[name] = AlterUserScramCredentialsResult(user=name, error_message=None)
            try:
                if mentions[name] > 1:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE, "A user's credentials can be altered once in a request."
                    )
                records.append(self._alter(alteration))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        check_size(records)
        return Generated(records, AlterUserScramCredentialsResponse(results=list(results.values())))

    def _alter(self, alteration: ScramCredentialDeletion | ScramCredentialUpsertion) -> MetadataRecord:
        from ottla.wire.messages.alter_user_scram_credentials_request import ScramCredentialUpsertion
        from ottla.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord

        image = self._state.image
        if not has_scram(image.features.metadata_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The cluster's metadata.version is older than SCRAM credentials."
            )
        if not alteration.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The name of the user is empty.")
        if alteration.mechanism not in _HASHES:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"There is no SCRAM mechanism {alteration.mechanism}."
            )
        if isinstance(alteration, ScramCredentialUpsertion):
            return _credential(alteration)
        if (alteration.name, alteration.mechanism) not in image.scram_credentials:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "The user has no such credential.")
        return MetadataRecord(RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism), 0)


def _credential(upsertion: ScramCredentialUpsertion) -> MetadataRecord:
    """RFC 5802: the client has salted the password already; of that only two derived keys are kept."""
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

    if upsertion.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"There are too few iterations: {ITERATIONS_MIN} at least.")
    if upsertion.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"There are too many iterations: {ITERATIONS_MAX} at most.")
    algorithm = _HASHES[upsertion.mechanism]
    salted_password = bytes(upsertion.salted_password)
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return MetadataRecord(
        UserScramCredentialRecord(
            name=upsertion.name,
            mechanism=upsertion.mechanism,
            salt=bytes(upsertion.salt),
            stored_key=hashlib.new(algorithm, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", algorithm),
            iterations=upsertion.iterations,
        ),
        0,
    )
