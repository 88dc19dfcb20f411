"""SASL from the client's side: what to send, and whether the server proved that it knows the secret too.

Sans I/O: whoever drives a machine carries `first` and the answers to `on_challenge` in SaslAuthenticate requests, until
`on_challenge` returns None. A server that cannot prove itself (SCRAM), or refuses, is `KafkaError` with
SASL_AUTHENTICATION_FAILED. Chance (the nonce) is handed in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from ottla.errors import ErrorCode, KafkaError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_ITERATIONS_MIN = 4096
_ITERATIONS_MAX = 1_000_000
"""More would keep the client busy for seconds: no server of good will asks for that."""

_CHANNEL_UNBOUND = "biws"
"""The base64 of "n,,": no channel binding and no other identity, as Kafka has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who the client is. Plain data, so that it travels to the processes that open connections."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    by_delegation_token: bool = False
    """Username and password are a delegation token's id and HMAC (KIP-48)."""
    token_provider: str = ""
    """`module:function`, which returns a fresh bearer token whenever it is called."""


class SaslClient(Protocol):
    mechanism: str

    def first(self) -> bytes: ...

    def on_challenge(self, challenge: bytes) -> bytes | None:
        """The answer to what the server said, or None when all is said."""
        ...


def sasl_client(credentials: Credentials, nonce: str) -> SaslClient:
    if credentials.mechanism == "PLAIN":
        return PlainClient(credentials.username, credentials.password)
    if credentials.mechanism == "OAUTHBEARER":
        return BearerClient(_provider(credentials.token_provider)())
    return ScramClient(credentials, nonce)


def _provider(name: str) -> Callable[[], str]:
    module, _, function = name.partition(":")
    try:
        found: Callable[[], str] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise _refused(f"The token provider {name!r} cannot be loaded ({error}); name it as module:function.") from None
    return found


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class PlainClient:
    """RFC 4616: name and password as they are, which only TLS keeps secret."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def on_challenge(self, challenge: bytes) -> bytes | None:
        return None


class BearerClient:
    """RFC 7628: a token that somebody else issued. A refusal comes as a challenge, which is answered with one byte."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def first(self) -> bytes:
        return self._message

    def on_challenge(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise _refused(f"The server does not take the bearer token: {challenge.decode(errors='replace')}")
        return None


class ScramClient:
    """RFC 5802: neither side says the password, and both prove that they know it.

    my name and nonce → both nonces, salt, iterations → my proof → the server's proof → done
    """

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        self.mechanism = credentials.mechanism
        self._hash = "sha256" if credentials.mechanism == "SCRAM-SHA-256" else "sha512"
        self._password = credentials.password.encode()
        self._nonce = nonce
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if credentials.by_delegation_token else ""
        self._first_bare = f"n={name},r={nonce}{extension}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def on_challenge(self, challenge: bytes) -> bytes | None:
        text = challenge.decode(errors="replace")
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if "e" in fields:
            raise _refused(f"The server refuses the credentials: {fields['e']}")
        if self._server_signature is None:
            return self._prove(text, fields)
        if not hmac.compare_digest(fields.get("v", ""), base64.b64encode(self._server_signature).decode()):
            raise _refused("The server does not know the password either: is it the server that you mean?")
        return None

    def _prove(self, server_first: str, fields: dict[str, str]) -> bytes:
        server_nonce = fields.get("r", "")
        try:
            salt, iterations = base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError, binascii.Error):
            raise _refused("The server's first SCRAM message makes no sense.") from None
        if not server_nonce.startswith(self._nonce) or server_nonce == self._nonce:
            raise _refused("The server's nonce does not continue the client's.")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise _refused(f"The server asks for {iterations} iterations; {_ITERATIONS_MIN} to {_ITERATIONS_MAX} pass.")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        final_bare = f"c={_CHANNEL_UNBOUND},r={server_nonce}"
        said = f"{self._first_bare},{server_first},{final_bare}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), said, self._hash)
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
