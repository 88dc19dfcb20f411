"""A client of one blocking socket that speaks in messages, for what real clients would not say."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TypeVar

from ottla.wire.apis import APIS
from ottla.wire.message import Message

R = TypeVar("R", bound=Message)


class WireClient:
    def __init__(self, address: tuple[str, int], client_id: str = "tester") -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self._client_id = client_id.encode()
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, request: Message, response: type[R], version: int | None = None) -> R:
        assert request.API_KEY is not None
        api = APIS[request.API_KEY]
        version = api.last_version if version is None else version
        self._correlation_id += 1
        head = b"".join(part.to_bytes(2, "big") for part in (api.key, version))
        head += self._correlation_id.to_bytes(4, "big") + len(self._client_id).to_bytes(2, "big") + self._client_id
        if api.is_flexible(version):
            head += b"\0"
        frame = head + request.encode(version)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = self._read(int.from_bytes(self._read(4), "big"))
        assert int.from_bytes(answer[:4], "big") == self._correlation_id
        decoded, _ = response.read(answer, 4 + api.response_header_version(version), version)
        return decoded

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the connection was closed"
            data += more
        return data
