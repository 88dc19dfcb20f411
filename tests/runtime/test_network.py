"""Real sockets behind the network seam: order, files, back-pressure, and the ends of connections."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.runtime import Connection, ListenOptions
from ottla.runtime.disk import SystemDisk
from ottla.runtime.network import WRITE_HIGH_WATER_BYTES, SocketConnection, SocketListener, SocketNetwork


class Recorder:
    """A handler that keeps what happened."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.received = bytearray()
        self.events: list[str] = []
        self._view = memoryview(bytearray(4096))

    def connection_made(self, connection: Connection) -> None:
        self.connection = connection
        self.events.append("made")

    def get_buffer(self) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        self.received += self._view[:size]

    def write_blocked(self) -> None:
        self.events.append("blocked")

    def write_resumed(self) -> None:
        self.events.append("resumed")

    def connection_lost(self) -> None:
        self.events.append("lost")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[SocketListener, list[Recorder]]]:
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    listener = await SocketNetwork().listen("127.0.0.1", 0, accept)
    listener.start()
    try:
        yield listener, accepted
    finally:
        listener.close()
        for recorder in accepted:
            if recorder.connection is not None:
                recorder.connection.abort()


@asynccontextmanager
async def dialed(listener: SocketListener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*listener.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_bytes_go_both_ways() -> None:
    async with listening() as (listener, accepted):
        async with dialed(listener) as (reader, writer):
            writer.write(b"hello")
            await until(lambda: accepted and bytes(accepted[0].received) == b"hello")
            assert accepted[0].connection is not None
            accepted[0].connection.write(b"world")
            assert await reader.readexactly(5) == b"world"
        await until(lambda: accepted[0].events == ["made", "lost"])


async def test_bytes_and_file_spans_leave_in_order_however_slowly_they_are_read(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "segment"), create=True)
    content = hashlib.shake_256(b"seed").digest(3 << 20)
    file.write(0, content)
    async with listening() as (listener, accepted), dialed(listener) as (reader, _writer):
        await until(lambda: accepted and accepted[0].connection is not None)
        connection = accepted[0].connection
        assert connection is not None
        expected = b""
        for index in range(30):
            head = b"head %d " % index
            connection.write(head, True)
            connection.write_file_span(file, index * 1000, 400_000)
            expected += head + content[index * 1000 : index * 1000 + 400_000]
        connection.write(b"end")
        expected += b"end"
        assert "blocked" in accepted[0].events
        file.close()
        SystemDisk().remove(str(tmp_path / "segment"))
        received = b""
        while len(received) < len(expected):
            received += await reader.read(65536)
        assert received == expected
        await until(lambda: accepted[0].events == ["made", "blocked", "resumed"])


async def test_a_file_cut_short_under_a_response_ends_the_connection(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "segment"), create=True)
    file.write(0, b"short")
    async with listening() as (listener, accepted), dialed(listener) as (reader, _writer):
        await until(lambda: accepted and accepted[0].connection is not None)
        assert accepted[0].connection is not None
        accepted[0].connection.write_file_span(file, 5, 100)
        assert await reader.read() == b""
        assert accepted[0].events == ["made", "lost"]


async def test_closing_sends_what_is_queued_first() -> None:
    async with listening() as (listener, accepted), dialed(listener) as (reader, _writer):
        await until(lambda: accepted and accepted[0].connection is not None)
        connection = accepted[0].connection
        assert connection is not None
        payload = bytes(8 * WRITE_HIGH_WATER_BYTES)
        connection.write(payload)
        connection.close()
        connection.write(b"too late")
        assert len(await reader.read()) == len(payload)


async def test_reading_can_be_paused() -> None:
    async with listening() as (listener, accepted), dialed(listener) as (_, writer):
        await until(lambda: accepted and accepted[0].connection is not None)
        connection = accepted[0].connection
        assert connection is not None
        connection.pause_reading()
        writer.write(b"waits")
        await asyncio.sleep(0.05)
        assert not accepted[0].received
        connection.resume_reading()
        await until(lambda: bytes(accepted[0].received) == b"waits")


async def test_a_port_in_use_is_an_os_error() -> None:
    async with listening() as (listener, _):
        with pytest.raises(OSError, match="in use"):
            await SocketNetwork().listen(*listener.address, Recorder)


async def test_peers_wait_in_the_backlog_until_the_listener_starts() -> None:
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    listener = await SocketNetwork().listen("127.0.0.1", 0, accept)
    peer = socket.create_connection(listener.address)
    peer.sendall(b"early")
    await asyncio.sleep(0.05)
    assert not accepted
    listener.start()
    await until(lambda: accepted and bytes(accepted[0].received) == b"early")
    peer.close()
    await until(lambda: accepted[0].events[-1] == "lost")
    listener.close()


async def test_a_paused_listener_lets_its_peers_wait() -> None:
    async with listening() as (listener, accepted), dialed(listener):
        await until(lambda: len(accepted) == 1)
        listener.pause()
        async with dialed(listener) as (_, writer):
            writer.write(b"patient")
            await asyncio.sleep(0.05)
            assert len(accepted) == 1
            listener.start()
            listener.start()
            await until(lambda: len(accepted) == 2 and bytes(accepted[1].received) == b"patient")


async def test_a_listener_that_is_paused_while_it_accepts_takes_no_other() -> None:
    """Several peers may be ready in one turn of the loop: the first to close the door closes it for the others."""
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        listener.pause()
        accepted.append(Recorder())
        return accepted[-1]

    listener = await SocketNetwork().listen("127.0.0.1", 0, accept)
    peers = [socket.create_connection(listener.address) for _ in range(3)]
    for count in (1, 2, 3):
        listener.start()
        await until(lambda count=count: len(accepted) == count)
        await asyncio.sleep(0.02)
        assert len(accepted) == count
    listener.close()
    for peer in peers:
        peer.close()
    await until(lambda: all(recorder.events[-1] == "lost" for recorder in accepted))


def buffer_sizes(sock: socket.socket) -> tuple[int, int]:
    """As they were asked for: Linux doubles both, to have room for its own book-keeping."""
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2,
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
    )


async def test_accepted_connections_have_the_buffers_that_were_asked_for() -> None:
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    options = ListenOptions(send_buffer_bytes=40_000, receive_buffer_bytes=50_000)
    listener = await SocketNetwork().listen("127.0.0.1", 0, accept, options)
    listener.start()
    async with dialed(listener):
        await until(lambda: accepted and accepted[0].connection is not None)
        connection = accepted[0].connection
        assert isinstance(connection, SocketConnection)
        assert buffer_sizes(connection._socket) == (40_000, 50_000)
    await until(lambda: accepted[0].events[-1] == "lost")
    listener.close()


async def test_no_more_peers_wait_than_the_backlog_holds() -> None:
    listener = await SocketNetwork().listen("127.0.0.1", 0, Recorder, ListenOptions(backlog=2))
    peers: list[socket.socket] = []
    try:
        for _ in range(3):  # Linux lets one more wait than the backlog says.
            peers.append(socket.create_connection(listener.address, timeout=5))
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.address, timeout=0.2)
    finally:
        for peer in peers:
            peer.close()
        listener.close()


async def test_connecting_to_nobody_is_an_os_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(OSError):
            await SocketNetwork().connect("127.0.0.1", unused.getsockname()[1], Recorder())


async def test_a_name_is_tried_at_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` may be ::1 first, and the server listen on 127.0.0.1 alone."""
    async with listening() as (listener, accepted):
        port = listener.address[1]
        found = [(socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port))]

        async def resolve(*arguments: object, **options: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
            return [(family, socket.SOCK_STREAM, 0, "", address) for family, address in found]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        near = Recorder()
        connection = await SocketNetwork().connect("somewhere", port, near)
        await until(lambda: accepted)
        assert near.events == ["made"]
        connection.close()
        found.pop()
        with pytest.raises(ConnectionRefusedError):
            await SocketNetwork().connect("somewhere", port, Recorder())
