"""What SASL mechanisms have in common, on either side. The mechanisms themselves are in a module each.

Machines: a token comes in, a token goes out, until the exchange is over. No I/O, no clock, no chance of their own.
Servers are driven by `broker/doors`, clients by `client/conversation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

USER = "User"
"""The type of every principal that logs in."""


class AuthenticationFailed(Exception):
    """The client did not prove who it is. `message` is fit for the client; where it is None, only that it failed is."""

    def __init__(self, reason: str, *, tell: bool = False) -> None:
        super().__init__(reason)
        self.message = reason if tell else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The exchange goes on: this is for the client."""

    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The client is who it says it is; the last token is for the client too."""

    token: bytes = b""
    user: str
    expires_ms: int | None = None
    """When what it showed loses its worth, by the wall clock."""
    by_token: bool = False
    """Did it show a delegation token, and not its own credentials?"""


class ServerMechanism(Protocol):
    """One client's exchange."""

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        """Raises `AuthenticationFailed`; then the exchange is over."""
        ...


MakeServer = Callable[[], ServerMechanism]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derive:
    """A key is to be derived from a password, which takes milliseconds: whoever drives the machine has it done."""

    password: str
    salt: bytes
    iterations: int
    algorithm: str


class ClientMechanism(Protocol):
    """One login of this node at another."""

    name: str

    def first(self) -> bytes: ...

    def on_challenge(self, token: bytes) -> bytes | Derive | None:
        """What to answer; None when the exchange is over. Raises `AuthenticationFailed` where the server is not who it
        should be."""
        ...

    def on_derived(self, key: bytes) -> bytes:
        """What follows a `Derive`."""
        ...


MakeClient = Callable[[], ClientMechanism]
