"""`ottla user`: SCRAM's users of a running cluster, as kafka-configs manages them.

A password is asked for, or read from standard input; it is never an argument, which everybody on the machine could
read. It is salted here, so that the cluster never sees it either.
"""

from __future__ import annotations

import getpass
import random
import sys
from pathlib import Path
from typing import TypeVar

from ottla.cli.settings import read_properties
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.security.scram import ALGORITHMS, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, salted_password
from ottla.wire.message import Message
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from ottla.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from ottla.wire.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse

M = TypeVar("M", bound=Message)

_SALT_BYTES = 24


def set_user(name: str, *, bootstrap: str, command_config: Path | None, mechanism: str, iterations: int) -> None:
    number = _number(mechanism)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise StartupError(f"--iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    password = _password()
    salt = random.SystemRandom().randbytes(_SALT_BYTES)
    salted = salted_password(password, salt, iterations, ALGORITHMS[mechanism])
    _alter(
        AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion(name, number, iterations, salt, salted)]),
        bootstrap,
        command_config,
    )
    print(f"user {name} can log in with {mechanism}")


def remove_user(name: str, *, bootstrap: str, command_config: Path | None, mechanism: str) -> None:
    deletion = ScramCredentialDeletion(name, _number(mechanism))
    _alter(AlterUserScramCredentialsRequest(deletions=[deletion]), bootstrap, command_config)
    print(f"user {name} cannot log in with {mechanism} any more")


def list_users(*, bootstrap: str, command_config: Path | None) -> None:
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = _ask(request, DescribeUserScramCredentialsResponse, bootstrap, command_config)
    _check(answer.error_code, answer.error_message)
    mechanisms = {number: mechanism for mechanism, number in NUMBERS.items()}
    for user in sorted(answer.results, key=lambda result: result.user):
        known = [
            f"{mechanisms.get(info.mechanism, info.mechanism)} ({info.iterations} iterations)"
            for info in user.credential_infos
        ]
        print(f"{user.user}: {', '.join(known)}")


def _number(mechanism: str) -> int:
    if mechanism not in NUMBERS:
        raise StartupError(f"--mechanism {mechanism} is none of {', '.join(NUMBERS)}.")
    return NUMBERS[mechanism]


def _password() -> str:
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass("password: ")
        if getpass.getpass("again: ") != password:
            raise StartupError("The two passwords are not the same.")
    if not password:
        raise StartupError("The password is empty.")
    return password


def _alter(request: AlterUserScramCredentialsRequest, bootstrap: str, command_config: Path | None) -> None:
    answer = _ask(request, AlterUserScramCredentialsResponse, bootstrap, command_config)
    for result in answer.results:
        _check(result.error_code, result.error_message)


def _check(code: int, message: str | None) -> None:
    if code:
        raise StartupError(message or ErrorCode(code).name)


def _ask(request: Message, response: type[M], bootstrap: str, command_config: Path | None) -> M:
    options = {} if command_config is None else read_properties(command_config)
    try:
        settings = ClientSettings.parse({**options, "bootstrap.servers": bootstrap})
    except InvalidClientConfig as error:
        raise StartupError(str(error)) from None
    with BlockingClient(settings) as client:
        try:
            return client.ask_any(request, response)
        except KafkaError as error:
            raise StartupError(error.message or error.code.name) from None
