"""A server that says what a test tells it to say, honest or not."""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime import Connection
from ottla.wire.apis import APIS
from ottla.wire.frames import RequestHead, read_request_header, response_frame
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse


class StandIn:
    """One accepted connection. What is asked is kept in `asked`, as (head, body); greetings it answers itself."""

    def __init__(
        self, versions: dict[int, tuple[int, int]], *, on_request: Callable[[StandIn], None] | None = None
    ) -> None:
        self._versions = versions
        self._on_request = on_request
        self._view = memoryview(bytearray(1 << 16))
        self._received = bytearray()
        self.connection: Connection | None = None
        self.greetings: list[int] = []
        self.greets = True
        self.asked: list[tuple[RequestHead, bytes]] = []
        self.lost = False

    def answer(self, response: Message) -> None:
        """Answer the oldest question."""
        head, _ = self.asked.pop(0)
        self.say(frame(head, response))

    def say(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.write(data)

    def hang_up(self) -> None:
        assert self.connection is not None
        self.connection.abort()

    def _greet(self, head: RequestHead) -> None:
        self.greetings.append(head.api_version)
        if not self.greets:
            return
        low, high = self._versions[18]
        keys = [ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in self._versions.items()]
        if low <= head.api_version <= high:
            self.say(frame(head, ApiVersionsResponse(api_keys=keys)))
        else:
            refusal = ApiVersionsResponse(error_code=35, api_keys=keys)
            self.say(response_frame(head.correlation_id, refusal.encode(0), flexible=False))

    # The network's.

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection

    def get_buffer(self) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        self._received += self._view[:size]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            data = bytes(self._received[4:end])
            del self._received[:end]
            head = read_request_header(data)
            if head.api_key == 18:
                self._greet(head)
                continue
            self.asked.append((head, data[head.body_position :]))
            if self._on_request is not None:
                self._on_request(self)

    def write_blocked(self) -> None: ...

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.lost = True


def frame(head: RequestHead, response: Message) -> bytes:
    flexible = APIS[head.api_key].response_header_version(head.api_version) == 1
    return response_frame(head.correlation_id, response.encode(head.api_version), flexible=flexible)
