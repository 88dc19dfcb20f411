"""A small blocking client for tests that speak Kafka's protocol message by message.

Owns one socket. It sends any request of `ottla.wire` in any version, whole or as raw bytes, and decodes what comes back
to the last byte: an answer with bytes left over is malformed, and fails the test that asked. It hides nothing, retries
nothing and batches nothing, so that a test sees exactly what a server says and in which order.
"""

from __future__ import annotations

import socket
from itertools import count
from struct import Struct
from types import TracebackType
from typing import Self, TypeVar

from ottla.wire.apis import APIS
from ottla.wire.frames import LENGTH_SIZE, read_response_header, request_frame
from ottla.wire.message import Message

R = TypeVar("R", bound=Message)

_LENGTH = Struct(">i")
_CORRELATION_ID = Struct(">i")


class WireClient:
    """One connection. Requests may be pipelined: `send` several, then `receive` their answers in order."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        client_id: str | None = "test",
        timeout_s: float = 60,
        host: str | None = None,
    ) -> None:
        """`host` is the address to come from, where that matters."""
        source = None if host is None else (host, 0)
        self._socket = socket.create_connection(address, timeout=timeout_s, source_address=source)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_ids = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # One request, one answer.

    def call(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Send `request` in `version` (the API's last stable one unless said) and decode its answer."""
        if version is None:
            version = last_version(request)
        correlation_id = self.send(request, version)
        return self.receive(response, version, correlation_id)

    # Halves, for pipelining.

    def send(self, request: Message, version: int) -> int:
        """Send a request and return its correlation id."""
        frame, correlation_id = self.frame(request, version)
        self.send_raw(frame)
        return correlation_id

    def frame(self, request: Message, version: int) -> tuple[bytes, int]:
        """A whole request and its correlation id, not sent."""
        assert request.API_KEY is not None
        correlation_id = next(self._correlation_ids)
        body = request.encode(version)
        return request_frame(request.API_KEY, version, correlation_id, self._client_id, body), correlation_id

    def receive(self, response: type[R], version: int, correlation_id: int) -> R:
        """The next answer, which must be the one to `correlation_id`."""
        frame = self.receive_frame()
        assert response.API_KEY is not None
        flexible = APIS[response.API_KEY].response_header_version(version) == 1
        head = read_response_header(frame, flexible)
        assert head.correlation_id == correlation_id, f"answer {head.correlation_id} where {correlation_id} is due"
        return response.decode(memoryview(frame)[head.body_position :], version)

    # Raw bytes.

    def send_raw(self, data: bytes | memoryview) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next frame without its length. EOFError if the server has hung up instead."""
        (size,) = _LENGTH.unpack(self._receive_exactly(LENGTH_SIZE))
        return self._receive_exactly(size)

    def receive_correlation_id(self) -> int:
        """The correlation id of the next answer, whatever its kind; the rest is dropped."""
        correlation_id: int = _CORRELATION_ID.unpack_from(self.receive_frame())[0]
        return correlation_id

    def is_silent(self, seconds: float) -> bool:
        """Did the server send nothing, and keep the connection open, for so long?"""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(before)
        return False

    def is_hung_up(self) -> bool:
        """Did the server close the connection without another byte? Waits for whichever comes first."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        filled = 0
        while filled < size:
            got = self._socket.recv_into(view[filled:])
            if not got:
                raise EOFError(f"the server hung up after {filled} of {size} bytes")
            filled += got
        return bytes(data)


def last_version(request: Message) -> int:
    """The last stable version of the request's API."""
    assert request.API_KEY is not None
    return APIS[request.API_KEY].last_version
