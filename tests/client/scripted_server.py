"""A broker on a real socket that says what a test tells it to say, for clients that block."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ottla.wire.apis import APIS
from ottla.wire.frames import RequestHead, read_request_header
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from tests.client.stand_in import frame

Handler = Callable[[RequestHead, Message], Message | None]
"""The answer to a request; None hangs up."""


class ScriptedServer:
    """Serves connections in threads of its own until it is left. What was asked is kept in `asked`."""

    def __init__(self, handler: Handler, *, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self._handler = handler
        self._versions = versions or {key: (api.first_version, api.last_version) for key, api in APIS.items()}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.asked: list[Message] = []
        self.connections = 0
        self.tls: ssl.SSLContext | None = None
        self._open: list[socket.socket] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            self._open.append(connection)
            with connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    data = stream.read(int.from_bytes(size, "big"))
                    answer = self._answer(data)
                    if answer is None:
                        return
                    connection.sendall(answer)

    def _answer(self, data: bytes) -> bytes | None:
        head = read_request_header(data)
        if head.api_key == 18:
            low, high = self._versions[18]
            known = low <= head.api_version <= high
            keys = [ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in self._versions.items()]
            greeting = ApiVersionsResponse(error_code=0 if known else 35, api_keys=keys)
            return frame(head if known else head._replace(api_version=0), greeting)
        request, _ = APIS[head.api_key].request.read(data, head.body_position, head.api_version)
        self.asked.append(request)
        response = self._handler(head, request)
        return None if response is None else frame(head, response)
