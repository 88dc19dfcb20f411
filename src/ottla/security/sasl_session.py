"""A server's side of SASL on one connection: which step is due, and what each step leads to (KIP-43, KIP-152, KIP-368).

    greeting ──ApiVersions──► handshake ──SaslHandshake v0──► raw tokens ─────┐
        └────────SaslHandshake────┘ └──SaslHandshake v1──► SaslAuthenticate ──┴──► authenticated
                                        ▲                                              │ the session's time is up,
                                        └──────────── SaslHandshake ──── expired ◄─────┘ or the client begins again

Any other step ends the connection. Pure: `broker/doors/authentication` reads requests, asks here, and answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.security.sasl import Authenticated, AuthenticationFailed, Challenge, MakeServer, ServerMechanism

AGAIN_MS_MIN = 1_000
"""The least time between two re-authentications, as in Kafka."""


class Step(Enum):
    """What the client is expected to do next."""

    GREETING = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    RAW_TOKEN = "a token without a header"
    TOKEN = "SaslAuthenticate"
    AUTHENTICATED = "anything"
    EXPIRED = "SaslHandshake, and nothing else"


class SaslSession:
    def __init__(self, mechanisms: Mapping[str, MakeServer], max_reauth_ms: Mapping[str, int]) -> None:
        """`mechanisms` are those that the listener offers; `max_reauth_ms` is how long a session by each may last, 0
        for as long as it likes."""
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self.step = Step.GREETING
        self._server: ServerMechanism | None = None
        self.mechanism = ""
        self._other_mechanism = ""
        self.proved: Authenticated | None = None
        self.expires_ms: int | None = None
        """When the session ends, by the wall clock, unless the client authenticates again."""
        self._began_again_ms: int | None = None

    @property
    def offered(self) -> list[str]:
        return list(self._mechanisms)

    @property
    def is_again(self) -> bool:
        """Has the client been here before, and proves itself once more?"""
        return self.proved is not None

    def on_greeting(self) -> bool:
        """ApiVersions: may it be asked now? Once, before everything else."""
        if self.step is not Step.GREETING:
            return False
        self.step = Step.HANDSHAKE
        return True

    def on_handshake(self, mechanism: str, version: int) -> None:
        """Raises `AuthenticationFailed` where the mechanism is not offered. That it is not the one of before is said
        when the token has come, as in Kafka."""
        make = self._mechanisms.get(mechanism)
        if make is None:
            raise AuthenticationFailed(f"Unsupported SASL mechanism {mechanism}")
        if self.is_again and mechanism != self.mechanism:
            self._other_mechanism = mechanism
        else:
            self.mechanism = mechanism
            self._server = make()
        self.step = Step.RAW_TOKEN if version == 0 else Step.TOKEN

    def may_begin_again(self, now_ms: int) -> bool:
        """SaslHandshake on a connection that is authenticated. Only sessions that end can be renewed."""
        return self.expires_ms is not None and (
            self._began_again_ms is None or now_ms - self._began_again_ms >= AGAIN_MS_MIN
        )

    def begin_again(self, now_ms: int) -> None:
        self._began_again_ms = now_ms
        self.step = Step.HANDSHAKE

    def on_token(self, token: bytes, now_ms: int) -> Challenge | Authenticated:
        """Raises `AuthenticationFailed`."""
        if self._other_mechanism:
            raise AuthenticationFailed(
                f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self.mechanism}'",
                tell=True,
            )
        assert self._server is not None
        outcome = self._server.evaluate(token, now_ms)
        if isinstance(outcome, Challenge):
            return outcome
        if self.proved is not None and (outcome.user, outcome.by_token) != (self.proved.user, self.proved.by_token):
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from User.{self.proved.user}: User.{outcome.user}",
                tell=True,
            )
        self._server = None
        self.proved = outcome
        self.step = Step.AUTHENTICATED
        lifetime_ms = self._lifetime_ms(outcome, now_ms)
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return outcome

    def on_expired(self) -> None:
        if self.step is Step.AUTHENTICATED:
            self.step = Step.EXPIRED

    def _lifetime_ms(self, proved: Authenticated, now_ms: int) -> int | None:
        limits = [limit for limit in (self._max_reauth_ms.get(self.mechanism, 0),) if limit > 0]
        if proved.expires_ms is not None:
            limits.append(max(0, proved.expires_ms - now_ms))
        return min(limits, default=None)
