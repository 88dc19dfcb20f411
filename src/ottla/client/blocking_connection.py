"""One connection to a broker for programs that wait: greeting, authentication, requests and their answers in order.

Drives `Conversation` over a `BlockingStream`. A request may be sent before earlier ones are answered (`send`), and is
waited for later (`receive`): the broker works while the caller does something else. Whatever goes wrong on the way is
`PeerLost`, after which the connection is closed: the broker may have acted on what was unanswered.

`blocking` has many of these and knows the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.client.conversation import Answer, Conversation, LoginRefused, Ready, Send
from ottla.client.login import login_of
from ottla.client.peer import PeerLost
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.runtime.blocking import BlockingStream, monotonic_s, nonce
from ottla.security.sasl import OAUTHBEARER, ClientMechanism
from ottla.security.scram import salted_password
from ottla.wire.message import Message

if TYPE_CHECKING:
    import ssl

SESSION_SHARE = 0.85
"""After how much of the time that a login lasts (KIP-368) a connection is rather opened anew."""


class BlockingConnection:
    """Open from its making on. Raises `PeerLost`, or `KafkaError` where the broker refuses the credentials."""

    def __init__(self, settings: ClientSettings, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port = host, port
        self._settings = settings
        self._conversation: Conversation[int] = Conversation(
            settings.client_id, login=None if settings.sasl is None else self._login
        )
        self._answers: dict[int, Message] = {}
        self._has_answered = False
        self._next_token = 0
        self._used_at_s = monotonic_s()
        self._expires_at_s = float("inf")
        self.is_closed = False
        deadline_s = self._used_at_s + settings.connect_timeout_ms / 1000
        self._stream = _connect(host, port, settings.connect_timeout_ms / 1000, tls)
        try:
            self._write([self._conversation.hello()], deadline_s)
            while not self._conversation.is_open:
                self._hear(deadline_s)
        except BaseException:
            self.close()  # Also where it is not the peer's fault: a token that is not to be had.
            raise

    def _login(self) -> ClientMechanism:
        assert self._settings.sasl is not None
        return login_of(self._settings.sasl, nonce())

    def send(self, request: Message, response: type[Message], *, timeout_ms: int, max_version: int = 1000) -> int:
        """Sends; what it returns is for `receive`. Raises `KafkaError` (UNSUPPORTED_VERSION), then nothing was sent."""
        return self._ask(request, response, monotonic_s() + timeout_ms / 1000, max_version)

    def receive(self, token: int, *, timeout_ms: int) -> Message:
        """The answer to what was sent with `token`; answers to earlier requests are kept until they are asked for."""
        return self._wait(token, monotonic_s() + timeout_ms / 1000)

    def has_come(self, token: int) -> bool:
        """Would `receive` hardly wait? The answer is here, or something is that may be it, or none will ever come."""
        return token in self._answers or self.is_closed or self._stream.has_something()

    def version_of(self, request: Message, max_version: int = 1000) -> int:
        return self._conversation.version_of(request, max_version)

    @property
    def is_usable(self) -> bool:
        """May something be asked here? Not if the connection ended, or was idle or authenticated for too long."""
        if self.is_closed:
            return False
        if self._conversation.unanswered:
            return True
        now_s = monotonic_s()
        fresh = now_s < self._expires_at_s and now_s - self._used_at_s < self._settings.idle_ms_max / 1000
        return fresh and self._stream.is_quiet()

    def close(self) -> None:
        self.is_closed = True
        self._stream.close()

    def _ask(self, request: Message, response: type[Message], deadline_s: float, max_version: int = 1000) -> int:
        token = self._next_token
        pieces = self._conversation.ask_in_pieces(request, response, token, max_version=max_version)
        self._next_token += 1
        self._write(pieces, deadline_s)
        return token

    def _wait(self, token: int, deadline_s: float) -> Message:
        while token not in self._answers:
            if self.is_closed:
                raise PeerLost(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port} was lost before it answered")
            self._hear(deadline_s)
        return self._answers.pop(token)

    def _write(self, pieces: Sequence[bytes | memoryview], deadline_s: float) -> None:
        try:
            self._stream.write(pieces, deadline_s - monotonic_s())
        except OSError as error:
            raise self._ended(error) from error
        self._used_at_s = monotonic_s()

    def _hear(self, deadline_s: float) -> None:
        try:
            size = self._stream.read_into(self._conversation.get_buffer(), deadline_s - monotonic_s())
            if not size:
                doubt = "" if self._has_answered else " (does security.protocol fit that listener?)"
                raise self._lost(f"hung up{doubt}")
            heard = self._conversation.on_received(size)
        except OSError as error:
            raise self._ended(error) from error
        except Malformed as error:
            raise self._lost(f"does not speak the protocol: {error}") from error
        except LoginRefused as error:
            self.close()
            keys = "sasl.mechanism, sasl.username and sasl.password"
            if self._settings.sasl is not None and self._settings.sasl.mechanism == OAUTHBEARER:
                keys = "sasl.oauthbearer.*"
            message = f"{self.host}:{self.port} does not let us in: {str(error).rstrip('.')}. See {keys}."
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message) from error
        for each in heard:
            if isinstance(each, Answer):
                self._has_answered = True
                self._answers[each.token] = each.response
            elif isinstance(each, Send):
                self._write([each.data], deadline_s)
            elif isinstance(each, Ready):
                if each.session_ms:
                    self._expires_at_s = monotonic_s() + each.session_ms / 1000 * SESSION_SHARE
            else:
                key = salted_password(each.password, each.salt, each.iterations, each.algorithm)
                self._write([self._conversation.on_derived(key).data], deadline_s)

    def _ended(self, error: OSError) -> PeerLost:
        if isinstance(error, TimeoutError):
            return self._lost("did not answer in time", ErrorCode.REQUEST_TIMED_OUT)
        return self._lost(f"was lost ({_reason(error)})")

    def _lost(self, reason: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> PeerLost:
        self.close()
        return PeerLost(code, f"{self.host}:{self.port} {reason}")


def _connect(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None) -> BlockingStream:
    try:
        return BlockingStream(host, port, timeout_s=timeout_s, tls=tls)
    except (OSError, ValueError, OverflowError) as error:
        if tls is not None and type(error).__module__ == "ssl":
            # Like wrong credentials: trying again does not help.
            message = f"The TLS handshake with {host}:{port} failed: {_reason(error)}."
            if type(error).__name__ == "SSLEOFError" or "WRONG_VERSION_NUMBER" in str(error):
                message += " Perhaps that port is without TLS: then leave out security.protocol, or name another."
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message) from error
        raise PeerLost(ErrorCode.NETWORK_EXCEPTION, f"{host}:{port} cannot be reached ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
