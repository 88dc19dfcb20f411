"""Surroundings of a node that are all in memory: a network, work that runs in place, and clocks that a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from ottla.runtime import Apart, ConnectionHandler, File, ListenOptions, Runtime
from ottla.runtime.seams import DEFAULT_LISTEN_OPTIONS, Buffer
from tests.log.faulty_disk import FaultyDisk

T = TypeVar("T")


class LoopClock:
    """Monotonic time is the event loop's; wall time is what the test says."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, milliseconds: int) -> None:
        self._wall_ms += milliseconds

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class InlineOffload:
    """Blocking work, done at once."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def run_apart(
        self, work: Callable[[Apart], T], *, bytes_per_second: float, on_report: Callable[[Any], None]
    ) -> Awaitable[T]:
        return self.run(lambda: work(InlineApart(on_report)))

    def stop_apart(self) -> None:
        pass  # It is over before anybody can ask for that.

    def close(self) -> None:
        pass


class InlineApart:
    """What work that is done apart asks of whoever has it done: facts are told at once, and time does not matter."""

    def __init__(self, on_report: Callable[[Any], None] = lambda fact: None) -> None:
        self.report = on_report

    def spent(self, size: int) -> None:
        pass


class MemoryConnection:
    """One end of a pair; what is written comes out at the other end in a later turn of the loop."""

    def __init__(self, peer: tuple[str, int], handler: ConnectionHandler) -> None:
        self.peer = peer
        self._handler = handler
        self._other: MemoryConnection | None = None
        self._incoming = bytearray()
        self._reading = True
        self._closed = False

    @staticmethod
    def pair(client: ConnectionHandler, server: ConnectionHandler, port: int) -> MemoryConnection:
        near = MemoryConnection(("memory", port), client)
        far = MemoryConnection(("memory", 1), server)
        near._other, far._other = far, near
        server.connection_made(far)
        client.connection_made(near)
        return near

    def write(self, data: Buffer, more: bool = False) -> None:
        assert self._other is not None
        if not self._closed:
            self._other._incoming += data
            asyncio.get_running_loop().call_soon(self._other._deliver)

    def write_file_span(self, file: File, position: int, size: int) -> None:
        self.write(file.read(position, size))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        asyncio.get_running_loop().call_soon(self._deliver)

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.abort)

    def abort(self) -> None:
        for end in (self, self._other):
            if end is not None and not end._closed:
                end._closed = True
                end._handler.connection_lost()

    def _deliver(self) -> None:
        while self._incoming and self._reading and not self._closed:
            buffer = self._handler.get_buffer()
            size = min(len(buffer), len(self._incoming))
            buffer[:size] = self._incoming[:size]
            del self._incoming[:size]
            self._handler.buffer_updated(size)


class MemoryListener:
    def __init__(
        self, address: tuple[str, int], accept: Callable[[], ConnectionHandler], options: ListenOptions
    ) -> None:
        self.address = address
        self.accept = accept
        self.options = options
        self.open = False
        self.closed = False
        self.waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        self.open = True
        while self.open and self.waiting:
            self.waiting.pop(0)()

    def pause(self) -> None:
        self.open = False

    def close(self) -> None:
        self.open = False
        self.closed = True


class MemoryNetwork:
    def __init__(self) -> None:
        self._listeners: dict[int, MemoryListener] = {}

    @property
    def listeners(self) -> list[MemoryListener]:
        return list(self._listeners.values())

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[], ConnectionHandler],
        options: ListenOptions = DEFAULT_LISTEN_OPTIONS,
    ) -> MemoryListener:
        listener = self._listeners[port] = MemoryListener((host, port), accept, options)
        return listener

    async def connect(self, host: str, port: int, handler: ConnectionHandler) -> MemoryConnection:
        listener = self._listeners.get(port)
        if listener is None or listener.closed:
            raise ConnectionRefusedError
        connected: asyncio.Future[MemoryConnection] = asyncio.get_running_loop().create_future()
        listener.waiting.append(lambda: connected.set_result(MemoryConnection.pair(handler, listener.accept(), port)))
        if listener.open:
            listener.start()
        return await connected


def memory_runtime(disk: FaultyDisk, clock: LoopClock, network: MemoryNetwork, seed: int = 1) -> Runtime:
    return Runtime(clock=clock, disk=disk, network=network, random=Random(seed), offload=InlineOffload())
