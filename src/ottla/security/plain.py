"""SASL PLAIN (RFC 4616): the name and the password, as they are. Only for connections that are encrypted.

[authorization id] NUL user NUL password
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from ottla.security.sasl import PLAIN, Authenticated, AuthenticationFailed

_PARTS_COUNTED_MAX = 4
_NOBODY = "\0"
"""Compared with where the user is unknown: no password can be this, since NUL separates."""


class PlainServer:
    """The passwords are those of the listener's login configuration."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes, now_ms: int) -> Authenticated:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("the token is not UTF-8") from None
        if len(parts) != 3:
            counted = min(len(parts), _PARTS_COUNTED_MAX)
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {counted}", tell=True)
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified", tell=True)
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", tell=True)
        expected = self._passwords.get(user)
        if not hmac.compare_digest((expected or _NOBODY).encode(), password.encode()):
            raise AuthenticationFailed("Authentication failed: Invalid username or password", tell=True)
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", tell=True
            )
        return Authenticated(user=user)


class PlainClient:
    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def on_challenge(self, token: bytes) -> None:
        """The server proves nothing of itself; that is what TLS is for."""

    def on_derived(self, key: bytes) -> bytes:
        raise AssertionError("PLAIN derives nothing")
