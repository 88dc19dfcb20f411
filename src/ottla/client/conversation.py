"""One connection to another node, without the connection: which request each arriving byte answers.

Sans I/O. Whoever drives it (`network_peer.py`) sends what `hello` and `ask` return, puts what arrives into `get_buffer`
and hears from `on_received` what it meant. A connection begins with ApiVersions, so that every request goes out in the
newest version that both sides speak; answers come in the order of the requests, and each must carry its request's
correlation id. Anything else is `Malformed`, after which the connection is of no use.

    greeting → (logging in) → (introducing) → open: Ready is returned, and `ask` may be called
                    ▲                          │
                    └──────────────────────────┘ log_in, before the session that the peer has granted is over (KIP-368)

A peer is another node of the cluster, but its word is not trusted further than a client's: a frame has a greatest size,
and a response a greatest number of elements. A frame that came whole is copied out of the buffer that all small ones
share; of a larger one the rest is received where it stays, so that the records of a fetch are views of the bytes as
they came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.security.sasl import AuthenticationFailed, ClientMechanism, Derive, MakeClient
from ottla.wire.apis import API_VERSIONS, APIS, Api
from ottla.wire.frames import LENGTH_SIZE, read_response_header, request_head
from ottla.wire.message import Message

T = TypeVar("T")

SCRATCH_BYTES = 32 * 1024
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Larger than any answer: a fetch is bounded by its request, or by the largest batch that a topic takes."""

ELEMENTS_MAX = 1_000_000
"""Elements of all arrays of a response together: a fetch has one a partition, and one an aborted transaction."""

_LENGTH = Struct(">i").unpack_from
_METADATA = 3
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_CORRELATION_IDS = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """These bytes go to the peer."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The peer has said which versions it speaks, and has let us in."""

    session_ms: int = 0
    """How long the login lasts; 0 for as long as the connection does."""


class LoginRefused(Exception):
    """The peer does not let us in, or is not the one that it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """The response to what was asked with `token`."""

    token: T
    response: Message


class _Question(NamedTuple, Generic[T]):
    correlation_id: int
    api: Api
    version: int
    response: type[Message]
    token: T | None
    """None for the greeting and the login, whose answers stay here."""


Heard = Answer[T] | Send | Ready | Derive


class Conversation(Generic[T]):
    """`T` is what the driver knows a request by."""

    def __init__(
        self,
        client_id: str,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        login: MakeClient | None = None,
        introduction: Message | None = None,
    ) -> None:
        """`login` makes the SASL exchange that comes before everything else; None where the peer asks for no name.
        `introduction` is a request that every login is followed by: the peer lets us in if it has no error to tell."""
        self._client_id = client_id
        self._make_login = login
        self._login: ClientMechanism | None = None
        self._introduction = introduction
        self._session_ms = 0
        self._let_in = login is None and introduction is None
        self._frame_bytes_max = frame_bytes_max
        self._questions: deque[_Question[T]] = deque()
        self._versions: dict[int, tuple[int, int]] | None = None
        self._correlation_id = 0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_end = 0
        self._frame = memoryview(b"")
        """The frame that is larger than what has come of it; its bytes go where they will be read."""
        self._frame_end = 0

    @property
    def is_open(self) -> bool:
        return self._versions is not None and self._let_in

    @property
    def unanswered(self) -> list[T]:
        """The tokens of what was asked and is not answered, oldest first."""
        return [question.token for question in self._questions if question.token is not None]

    # Asking.

    def hello(self) -> bytes:
        """The greeting, which opens every connection."""
        return self._greet(APIS[API_VERSIONS].last_version)

    def ask(self, request: Message, response: type[Message], token: T, *, max_version: int = 1000) -> bytes:
        """What to send. Raises `KafkaError` (UNSUPPORTED_VERSION) where there is no version that both sides speak, or
        where that version cannot say what the request has to say, or (MISMATCHED_ENDPOINT_TYPE) where a controller is
        taken for a broker; then nothing was asked."""
        return b"".join(self.ask_in_pieces(request, response, token, max_version=max_version))

    def ask_in_pieces(
        self, request: Message, response: type[Message], token: T, *, max_version: int = 1000
    ) -> list[bytes | memoryview]:
        """The same, piece after piece: records are sent from where they are, and must stay until then."""
        return self._pieces_of(request, self.version_of(request, max_version), response, token)

    def version_of(self, request: Message, max_version: int = 1000) -> int:
        assert self._versions is not None, "the peer has not answered the greeting"
        assert request.API_KEY is not None
        api = APIS[request.API_KEY]
        if api.key == _METADATA and _METADATA not in self._versions:
            # Every broker serves it, and no controller does.
            raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "A controller was asked for what brokers know.")
        low, high = self._versions.get(api.key, (0, -1))
        version = min(high, api.last_version, max_version)
        if version < max(low, api.first_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The peer does not serve {api.name} in a version from {api.first_version} "
                f"to {min(api.last_version, max_version)}.",
            )
        return version

    def _greet(self, version: int) -> bytes:
        from ottla import __version__
        from ottla.wire.messages.api_versions_request import ApiVersionsRequest
        from ottla.wire.messages.api_versions_response import ApiVersionsResponse

        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        return self._frame_of(request, version, ApiVersionsResponse, None)

    def _frame_of(self, request: Message, version: int, response: type[Message], token: T | None) -> bytes:
        return b"".join(self._pieces_of(request, version, response, token))

    def _pieces_of(
        self, request: Message, version: int, response: type[Message], token: T | None
    ) -> list[bytes | memoryview]:
        assert request.API_KEY is not None
        body = request.pieces(version)
        size = sum(map(len, body))
        head = request_head(request.API_KEY, version, self._correlation_id, self._client_id, size)
        question = _Question(self._correlation_id, APIS[request.API_KEY], version, response, token)
        self._questions.append(question)
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        return [head, *body]

    # Hearing.

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        if len(self._frame):
            return self._frame[self._frame_end :]
        return self._scratch[self._scratch_end :]

    def on_received(self, size: int) -> list[Heard[T]]:
        """`size` bytes have come into the buffer last given. Raises `Malformed` and `LoginRefused`."""
        if len(self._frame):
            self._frame_end += size
            if self._frame_end < len(self._frame):
                return []
            frame, self._frame, self._frame_end = self._frame, memoryview(b""), 0
            return self._read(frame)
        heard: list[Heard[T]] = []
        end = self._scratch_end + size
        position = 0
        while end - position >= LENGTH_SIZE:
            (length,) = _LENGTH(self._scratch, position)
            if not LENGTH_SIZE <= length <= self._frame_bytes_max:
                raise Malformed(f"a response of {length} bytes")
            stop = position + LENGTH_SIZE + length
            if stop > end:
                self._frame = memoryview(bytearray(length))
                self._frame_end = end - position - LENGTH_SIZE
                self._frame[: self._frame_end] = self._scratch[position + LENGTH_SIZE : end]
                position = end
                break
            heard += self._read(memoryview(bytes(self._scratch[position + LENGTH_SIZE : stop])))
            position = stop
        self._scratch_end = end - position
        if position and self._scratch_end:
            self._scratch[: self._scratch_end] = bytes(self._scratch[position:end])
        return heard

    def _read(self, frame: memoryview) -> list[Heard[T]]:
        if not self._questions:
            raise Malformed("an answer to nothing")
        question = self._questions[0]
        head = read_response_header(frame, question.api.response_header_version(question.version) == 1)
        if head.correlation_id != question.correlation_id:
            raise Malformed(f"answer {head.correlation_id} where {question.correlation_id} is due")
        version = question.version
        body = head.body_position
        if question.api.key == API_VERSIONS and frame[body : body + 2] == _UNSUPPORTED_VERSION:
            version = 0  # A peer that does not know our version says which it knows in the oldest one (KIP-511).
        response, _ = question.response.read(frame, head.body_position, version, ELEMENTS_MAX)
        self._questions.popleft()
        if question.token is not None:
            return [Answer(token=question.token, response=response)]
        if question.api.key == API_VERSIONS:
            return self._on_versions(response, question.version)
        if self._introduction is not None and question.api.key == self._introduction.API_KEY:
            return self._on_introduced(response)
        return self._on_login(response)

    def _on_versions(self, response: Message, asked: int) -> list[Heard[T]]:
        from ottla.wire.messages.api_versions_response import ApiVersionsResponse

        assert isinstance(response, ApiVersionsResponse)
        versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and asked:
            return [Send(data=self._greet(max(0, min(asked - 1, versions.get(API_VERSIONS, (0, 0))[1]))))]
        if response.error_code:
            raise Malformed(f"the greeting is answered with error {response.error_code}")
        self._versions = versions
        return self._introduce(0) if self._make_login is None else [self.log_in()]

    # Logging in.

    def log_in(self) -> Send:
        """Begin the login, the first or the next: until it is over, nothing may be asked."""
        from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
        from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

        assert self._make_login is not None
        self._let_in = False
        self._login = self._make_login()
        request = SaslHandshakeRequest(mechanism=self._login.name)
        return Send(data=self._frame_of(request, self.version_of(request), SaslHandshakeResponse, None))

    def on_derived(self, key: bytes) -> Send:
        """The key that a `Derive` asked for."""
        assert self._login is not None
        return self._show(self._login.on_derived(key))

    def _show(self, token: bytes) -> Send:
        from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
        from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

        request = SaslAuthenticateRequest(auth_bytes=token)
        return Send(data=self._frame_of(request, self.version_of(request), SaslAuthenticateResponse, None))

    def _on_login(self, response: Message) -> list[Heard[T]]:
        from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
        from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

        assert self._login is not None
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                offered = ", ".join(response.mechanisms)
                if not offered:
                    raise LoginRefused("nobody logs in on that port: leave out security.protocol, or name another")
                raise LoginRefused(f"{self._login.name} is not enabled there, but {offered}")
            return [self._show(self._login.first())]
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise LoginRefused(response.error_message or ErrorCode(response.error_code).name)
        try:
            answer = self._login.on_challenge(bytes(response.auth_bytes))
        except AuthenticationFailed as error:
            raise LoginRefused(str(error)) from None
        if isinstance(answer, Derive):
            return [answer]
        if answer is not None:
            return [self._show(answer)]
        self._login = None
        return self._introduce(response.session_lifetime_ms)

    def _introduce(self, session_ms: int) -> list[Heard[T]]:
        self._session_ms = session_ms
        request = self._introduction
        if request is None:
            self._let_in = True
            return [Ready(session_ms=session_ms)]
        assert request.API_KEY is not None
        # Nodes speak it among themselves, and tell clients nothing of it.
        api = APIS[request.API_KEY]
        return [Send(data=self._frame_of(request, api.last_version, api.response, None))]

    def _on_introduced(self, response: Message) -> list[Heard[T]]:
        if code := getattr(response, "error_code", 0):
            raise LoginRefused(f"it takes no introduction ({ErrorCode(code).name})")
        self._let_in = True
        return [Ready(session_ms=self._session_ms)]
