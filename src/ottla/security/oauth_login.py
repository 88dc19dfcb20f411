"""OAUTHBEARER from the other side: how a token is shown (RFC 7628), read out of an answer, and when it is renewed.

Whose the token is, and whether it is any good, is for the server to say; here nothing of it is read but its end. Nodes
get theirs by `broker/doors/token_source`, clients by `client/login`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.security.oauth import TOKEN_CHARS_MAX, expiry_of
from ottla.security.sasl import OAUTHBEARER, AuthenticationFailed

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_PLACES = ("access_token", "id_token")


class BearerClient:
    """A token that somebody else issued. A refusal comes as a challenge."""

    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = "".join(f"{key}={value}\x01" for key, value in (extensions or {}).items())
        self._message = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def first(self) -> bytes:
        return self._message

    def on_challenge(self, token: bytes) -> None:
        if token:
            raise AuthenticationFailed(f"the server does not take the bearer token: {token.decode(errors='replace')}")

    def on_derived(self, key: bytes) -> bytes:
        raise AssertionError("OAUTHBEARER derives nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    text: str
    expires_ms: int
    """By the wall clock."""


def read_token(text: str) -> IssuedToken:
    """A token as a file holds it. Raises `ValueError`, which repeats nothing of it."""
    text = text.strip()
    if len(text) > TOKEN_CHARS_MAX or _TOKEN.fullmatch(text) is None:
        raise ValueError("what was read is not a token")
    try:
        return IssuedToken(text=text, expires_ms=expiry_of(text))
    except AuthenticationFailed as error:
        raise ValueError(str(error)) from None


def read_answer(document: bytes) -> IssuedToken:
    """The token in the answer of an identity provider (RFC 6749, 5.1). Raises `ValueError`, as above."""
    try:
        answer = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    for place in _PLACES:
        found = answer.get(place) if isinstance(answer, dict) else None
        if isinstance(found, str) and found.strip():
            return read_token(found)
    raise ValueError(f"the answer has no {_PLACES[0]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """When a token is renewed: `sasl.login.refresh.*`."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    period_ms_min: int = 60_000
    buffer_ms: int = 300_000

    def delay_ms(self, now_ms: int, expires_ms: int, chance: float) -> int:
        """From now to the renewal of a token that was issued now; `chance` is from 0 to 1. As Kafka's: after a share of
        its life, but not too soon, and well before its end; if it is too short for both of these, neither counts."""
        life_ms = max(0, expires_ms - now_ms)
        wanted_ms = int(life_ms * (self.window_factor + self.window_jitter * chance))
        if life_ms < self.period_ms_min + self.buffer_ms:
            return wanted_ms
        return max(self.period_ms_min, min(wanted_ms, life_ms - self.buffer_ms))
