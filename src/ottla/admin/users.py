"""SCRAM's users. Passwords are salted here, so that the cluster never sees them."""

from __future__ import annotations

from dataclasses import dataclass
from random import SystemRandom

from ottla.admin.asking import ask_once, check
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.security.scram import ALGORITHMS, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, salted_password
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from ottla.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.wire.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

MECHANISMS = tuple(NUMBERS)

_SALT_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    name: str
    credentials: tuple[Credential, ...]


def list_users(client: BlockingClient) -> list[User]:
    """Sorted by name."""
    answer = client.ask_any(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message, "The users cannot be listed")
    mechanisms = {number: mechanism for mechanism, number in NUMBERS.items()}
    return [
        User(
            name=user.user,
            credentials=tuple(
                Credential(mechanism=mechanisms.get(each.mechanism, str(each.mechanism)), iterations=each.iterations)
                for each in user.credential_infos
            ),
        )
        for user in sorted(answer.results, key=lambda result: result.user)
    ]


def check_credential(mechanism: str, iterations: int = ITERATIONS_MIN) -> None:
    """Raises `KafkaError` if no user can have it."""
    if mechanism not in NUMBERS:
        message = f"The mechanism {mechanism} is none of {', '.join(NUMBERS)}."
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        message = f"The number of iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}."
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def set_user(client: BlockingClient, name: str, password: str, *, mechanism: str, iterations: int) -> None:
    """Makes a user, or gives one a new password."""
    check_credential(mechanism, iterations)
    salt = SystemRandom().randbytes(_SALT_BYTES)
    salted = salted_password(password, salt, iterations, ALGORITHMS[mechanism])
    upsertion = ScramCredentialUpsertion(name, NUMBERS[mechanism], iterations, salt, salted)
    _alter(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]), name)


def remove_user(client: BlockingClient, name: str, *, mechanism: str) -> None:
    check_credential(mechanism)
    deletion = ScramCredentialDeletion(name, NUMBERS[mechanism])
    _alter(client, AlterUserScramCredentialsRequest(deletions=[deletion]), name)


def _alter(client: BlockingClient, request: AlterUserScramCredentialsRequest, name: str) -> None:
    for result in ask_once(client, request, AlterUserScramCredentialsResponse).results:
        check(result.error_code, result.error_message, f"The user {name} cannot be changed")
