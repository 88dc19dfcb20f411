"""The gate of a connection on a SASL listener: until the client has proved who it is, every request comes here.

Answers as Kafka does, step by step (`security/sasl_session`). A client that fails hears so after a delay
(`connection.failed.authentication.delay.ms`) and is cut off. Once it has proved itself the gate is taken away, so that
its requests cost nothing more; when its session is over (KIP-368) the gate comes back, and a new handshake alone may
pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.bounds.limits import AUTHENTICATION_MS_MAX, ELEMENTS_MAX
from ottla.broker.reply import CloseConnection, Deferred, Reply
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.runtime.timers import Timer
from ottla.security.sasl import USER, AuthenticationFailed, Challenge
from ottla.security.sasl_session import SaslSession, Step
from ottla.wire.apis import API_VERSIONS, APIS
from ottla.wire.frames import RequestHead, read_request_header, response_frame
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services
    from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

_log = logging.getLogger(__name__)

SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
FRAME_BYTES_MIN = 8
FAREWELL_MS = 50
"""Between a refusal and the end of its connection: some clients (kafka-python) throw away what they were told if the
end comes right behind it, and tell their users that the connection was lost."""

_LENGTH = Struct(">i").pack

StartOther = Callable[["ClientConnection", bytes, int, int], Reply]


class Authentication:
    """One instance a connection; its session outlives the gate."""

    def __init__(
        self,
        services: Services,
        connection: ClientConnection,
        session: SaslSession,
        start_other: StartOther,
    ) -> None:
        """`start_other` serves ApiVersions, the one request that needs no name."""
        config = services.config
        self._services = services
        self._connection = connection
        self._session = session
        self._start_other = start_other
        self._delay_ms = config.get_int("connection.failed.authentication.delay.ms")
        self._bytes_max = config.get_int("sasl.server.max.receive.size")
        self._expiry: Timer | None = None
        self._deadline: Timer | None = services.timers.after(AUTHENTICATION_MS_MAX, self._on_deadline)

    @property
    def frame_bounds(self) -> tuple[int, int]:
        """How small and how large what comes may be, for now. A token without a header may be empty."""
        return (0 if self._session.step is Step.RAW_TOKEN else FRAME_BYTES_MIN), self._bytes_max

    def close(self) -> None:
        for timer in (self._expiry, self._deadline):
            if timer is not None:
                timer.cancel()

    # Requests, while the gate is shut.

    def start_request(self, frame: bytes) -> Reply:
        session = self._session
        try:
            if session.step is Step.RAW_TOKEN:
                return self._on_raw_token(frame)
            head = read_request_header(frame)
            api = APIS[head.api_key]
            if session.step is Step.EXPIRED:
                if head.api_key != SASL_HANDSHAKE:
                    raise CloseConnection("the session has expired, and the client did not authenticate again")
                session.begin_again(self._services.clock.wall_ms())
            if head.api_key == API_VERSIONS and api.serves(head.api_version):
                if session.on_greeting():
                    return self._start_other(self._connection, frame, head.api_key, head.api_version)
            elif head.api_key == API_VERSIONS and session.step is Step.GREETING:
                return self._start_other(self._connection, frame, head.api_key, head.api_version)
            if session.step is Step.TOKEN:
                return self._on_authenticate(frame, head)
            if head.api_key == SASL_HANDSHAKE and api.serves(head.api_version):
                return self._on_handshake(frame, head)
        except Malformed as error:
            return self._fail(f"a malformed request: {error}", None)
        return self._fail(f"Unexpected Kafka request of type {api.name} during SASL handshake.", None)

    def _on_handshake(self, frame: bytes, head: RequestHead) -> Reply:
        from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

        request = SaslHandshakeRequest.decode(frame[head.body_position :], head.api_version)
        response = self._shake_hands(request.mechanism, head.api_version)
        reply = _encode(head, response)
        if response.error_code:
            return self._fail(f"SASL mechanism {request.mechanism!r} is not enabled here", reply)
        return reply

    def _shake_hands(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

        response = SaslHandshakeResponse(mechanisms=self._session.offered)
        try:
            self._session.on_handshake(mechanism, version)
        except AuthenticationFailed:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return response

    def _on_authenticate(self, frame: bytes, head: RequestHead) -> Reply:
        from ottla.broker.api.refusals import refusal
        from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
        from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

        api = APIS[head.api_key]
        if not api.serves(head.api_version):
            return self._fail(f"version {head.api_version} of {api.name} is not served", None)
        if head.api_key != SASL_AUTHENTICATE:
            reason = f"Unexpected Kafka request of type {api.name} during SASL authentication."
            request, _ = api.request.read(frame, head.body_position, head.api_version, ELEMENTS_MAX)
            error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE, reason)
            return self._fail(reason, _encode(head, refusal(request, error, head.api_version)))
        token = SaslAuthenticateRequest.decode(frame[head.body_position :], head.api_version).auth_bytes
        now_ms = self._services.clock.wall_ms()
        response = SaslAuthenticateResponse(error_message=None)
        try:
            outcome = self._session.on_token(bytes(token), now_ms)
        except AuthenticationFailed as error:
            response.error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
            response.error_message = error.message or (
                f"Authentication failed during {'re-' if self._session.is_again else ''}authentication due to invalid "
                f"credentials with SASL mechanism {self._session.mechanism}"
            )
            return self._fail(str(error), _encode(head, response))
        response.auth_bytes = outcome.token
        if not isinstance(outcome, Challenge):
            if self._session.expires_ms is not None:
                response.session_lifetime_ms = self._session.expires_ms - now_ms
            self._open(now_ms)
        return _encode(head, response)

    def _on_raw_token(self, token: bytes) -> Reply:
        """Clients from before KIP-152: a length and the token, both ways; a refusal is silence."""
        now_ms = self._services.clock.wall_ms()
        try:
            outcome = self._session.on_token(token, now_ms)
        except AuthenticationFailed as error:
            return self._fail(str(error), None)
        if not isinstance(outcome, Challenge):
            self._open(now_ms)
        return _LENGTH(len(outcome.token)) + outcome.token

    # Afterwards.

    def renew(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """A handshake on an authenticated connection: the gate is shut for it. None where the session cannot be
        renewed."""
        now_ms = self._services.clock.wall_ms()
        if not self._session.may_begin_again(now_ms):
            return None
        self._session.begin_again(now_ms)
        self._connection.set_gate(self)
        response = self._shake_hands(mechanism, version)
        if response.error_code:
            self._tell_failure(f"SASL mechanism {mechanism!r} is not enabled here")
            self._services.timers.after(self._delay_ms, self._connection.close)
        return response

    def _open(self, now_ms: int) -> None:
        session, connection = self._session, self._connection
        assert session.proved is not None
        self.close()
        connection.principal = f"{USER}:{session.proved.user}"
        connection.by_token = session.proved.by_token
        connection.set_gate(None)
        if session.expires_ms is not None:
            self._expiry = self._services.timers.after(max(0, session.expires_ms - now_ms), self._on_expired)

    def _on_expired(self) -> None:
        """The client may be in the middle of proving itself anew; else the next request has to be a handshake."""
        self._session.on_expired()
        self._connection.set_gate(self)

    def _on_deadline(self) -> None:
        self._connection.close("took too long to authenticate")

    def _tell_failure(self, reason: str) -> None:
        connection = self._connection
        if self._services.connections.lines.may_tell():
            told = (*connection.peer, connection.listener, reason)
            _log.warning("authentication of %s:%d on listener %s failed: %s", *told)
        self._services.audit.login_failed(connection.peer[0], connection.listener, reason)

    def _fail(self, reason: str, reply: bytes | None) -> Reply:
        """Say it late, and hang up: whoever guesses passwords should not guess fast."""
        connection = self._connection
        self._tell_failure(reason)
        self.close()
        connection.hold()
        deferred = Deferred()

        def hang_up() -> None:
            deferred.resolve(reply)
            self._services.timers.after(FAREWELL_MS, connection.close)

        self._services.timers.after(self._delay_ms, hang_up)
        return deferred


def _encode(head: RequestHead, response: Message) -> bytes:
    api = APIS[head.api_key]
    flexible = api.response_header_version(head.api_version) == 1
    return response_frame(head.correlation_id, response.encode(head.api_version), flexible)
