"""The `Network` seam in memory: hosts, links between them that a simulation can spoil, and how connections come to be.

A `Fabric` joins all hosts and carries what their connections (`streams.py`) write. A link has a direction, and may be
cut. A process that dies takes its connections with it, and the kernel tells the peers; a machine that dies tells
nobody, and whoever still sends to it learns of it only from a host that is up again and knows nothing of the
connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ottla.runtime.seams import ConnectionHandler
from ottla.sim.loop import DEAD, SimLoop
from ottla.sim.streams import Link, Pipe, SimConnection

if TYPE_CHECKING:
    from ottla.sim.trace import Trace

CONNECT_PATIENCE_S = 20.0
"""When a connect to a host that does not answer gives up."""


class SimListener:
    def __init__(self, host: Host, port: int, accept: Callable[[], ConnectionHandler], loop: SimLoop) -> None:
        self._host = host
        self._address = (host.name, port)
        self.accept = accept
        self.loop = loop
        self.started = False
        self.backlog: dict[Handshake, None] = {}
        """Those who knock and have not been let in."""

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def start(self) -> None:
        self.started = True
        for handshake in list(self.backlog):
            handshake.accept(self)

    def pause(self) -> None:
        self.started = False

    def close(self) -> None:
        if self._host.listeners.get(self._address[1]) is self:
            del self._host.listeners[self._address[1]]
        backlog, self.backlog = self.backlog, {}
        for handshake in backlog:
            handshake.turn_away()


class Host:
    """One machine on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        """Does its kernel answer?"""
        self.listeners: dict[int, SimListener] = {}
        self.connections: dict[SimConnection, None] = {}
        self.next_port = 40_000


class Fabric:
    """All hosts, and the links between them."""

    def __init__(self, random: Random, trace: Trace, *, latency_s: float = 0.0005, jitter: float = 1.0) -> None:
        self._random = random
        self.trace = trace
        self._latency_s = latency_s
        self._jitter = jitter
        self.hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._numbers = 0
        self.stall_chance = 0.0
        """Of each packet being lost and sent again, much later."""
        self.stall_s = 0.3
        self.reset_chance = 0.0
        """Of each packet bringing its connection down instead."""
        self.resets = 0
        self.stalls = 0

    def host(self, name: str) -> Host:
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(name)
        return found

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            latency_s = self._latency_s * (0.5 + self._random.random()) if source != target else 0.00002
            found = self._links[source, target] = Link(source, target, latency_s)
        return found

    def links(self) -> list[Link]:
        return list(self._links.values())

    # Spoiling.

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` until `heal`. Cuts nest."""
        self.link(source, target).cut += 1

    def heal(self, source: str, target: str) -> None:
        link = self.link(source, target)
        if link.cut:
            link.cut -= 1
        if not link.cut:
            stalled, link.stalled = link.stalled, {}
            for pipe in stalled:
                now = pipe.target.loop.scheduler.now
                # What was lost meanwhile is sent again some time after.
                resent = now + link.latency_s + 0.2 * self._random.random()
                pipe.arrivals = deque((max(when, resent), data) for when, data in pipe.arrivals)
                pipe.last_arrival = max(pipe.last_arrival, resent)
                pipe.target.on_sent()

    def heal_all(self) -> None:
        self.stall_chance = self.reset_chance = 0.0
        for link in self.links():
            link.reset_next = False
            while link.cut:
                self.heal(link.source, link.target)

    def reset_connections(self, one: str, other: str) -> int:
        """Break every connection between two hosts, both ways at once. How many there were."""
        found = [
            connection
            for name in (one, other)
            for connection in self.host(name).connections
            if {connection._outgoing.link.source, connection._outgoing.link.target} == {one, other}
        ]
        for connection in found:
            connection.loop.call_soon(connection.lost)
        self.resets += len(found)
        return len(found)

    # Carrying.

    def send(self, pipe: Pipe, data: bytes | None) -> None:
        """Put `data`, or the end of the stream, on its way."""
        link = pipe.link
        target = pipe.target
        now = target.loop.scheduler.now
        random = self._random.random
        if link.reset_next and data:
            link.reset_next = False
            self.resets += 1
            self._break(pipe)
            return
        if self.reset_chance and data and random() < self.reset_chance:
            self.resets += 1
            self._break(pipe)
            return
        if target.closed:
            # The other end has hung up: its kernel says so when the bytes arrive.
            if self.host(link.target).up:
                self._refuse(pipe)
            return
        arrives = now + link.latency_s * (1.0 + self._jitter * random())
        if self.stall_chance and random() < self.stall_chance:
            self.stalls += 1
            arrives += self.stall_s * (0.5 + random())
        if arrives < pipe.last_arrival:
            arrives = pipe.last_arrival
        arrivals = pipe.arrivals
        if data is not None:
            pipe.unread += len(data)
        arrivals.append((arrives, data))
        pipe.last_arrival = arrives
        if len(arrivals) == 1:
            target.on_sent()

    def _break(self, pipe: Pipe) -> None:
        for end in (pipe.source, pipe.target):
            end.loop.call_soon(end.lost)

    def _refuse(self, pipe: Pipe) -> None:
        source, link = pipe.source, pipe.link
        back = self.link(link.target, link.source)
        if not link.cut and not back.cut:
            source.loop.at(source.loop.scheduler.now + link.latency_s + back.latency_s, source.lost)

    def reset(self, pipe: Pipe) -> None:
        """Tell the other end that this one is gone at once."""
        if not pipe.link.cut and not pipe.target.closed:
            target = pipe.target
            target.loop.at(target.loop.scheduler.now + pipe.link.latency_s, target.lost)

    def answer_end(self, pipe: Pipe) -> None:
        """The stream towards us has ended; ours ends with it."""
        if not pipe.target.closed:
            self.reset(pipe)

    def forget(self, connection: SimConnection) -> None:
        self.host(connection._outgoing.link.source).connections.pop(connection, None)

    def vanish(self, name: str, *, machine: bool) -> None:
        """A host's process is gone. If only that, its kernel hangs up for it; if the machine is, there is silence."""
        host = self.host(name)
        host.up = not machine
        for listener in list(host.listeners.values()):
            listener.close()
        for connection in list(host.connections):
            connection._closed = True
            connection._queue.clear()
            connection._incoming.arrivals.clear()
            if not machine:
                self.send(connection._outgoing, None)
        host.connections.clear()

    def connect(self, source: str, loop: SimLoop, target: str, port: int, handler: ConnectionHandler) -> Handshake:
        return Handshake(self, source, loop, target, port, handler)

    def establish(
        self, source: str, loop: SimLoop, listener: SimListener, handler: ConnectionHandler, port: int
    ) -> tuple[SimConnection, SimConnection]:
        """Both ends of a new connection, not yet told to their handlers."""
        target = listener.address[0]
        host = self.host(source)
        host.next_port += 1
        self._numbers += 2
        there, back = Pipe(self.link(source, target)), Pipe(self.link(target, source))
        near = SimConnection(self, loop, (target, port), handler, back, there, self._numbers)
        far = SimConnection(
            self, listener.loop, (source, host.next_port), listener.accept(), there, back, self._numbers + 1
        )
        host.connections[near] = None
        self.host(target).connections[far] = None
        return near, far


class Handshake:
    """A connect under way: the packet there, the listener's part, the packet back."""

    def __init__(
        self, fabric: Fabric, source: str, loop: SimLoop, target: str, port: int, handler: ConnectionHandler
    ) -> None:
        self._fabric = fabric
        self._source = source
        self._loop = loop
        self._target = target
        self._port = port
        self._handler = handler
        self.done: asyncio.Future[SimConnection] = loop.create_future()
        self._deadline = loop.scheduler.now + CONNECT_PATIENCE_S
        self._retry_s = 0.25
        self._send()

    def _send(self) -> None:
        """The first packet; lost packets are sent again, later and later."""
        loop = self._loop
        if self.done.done():
            return
        now = loop.scheduler.now
        there, back = self._fabric.link(self._source, self._target), self._fabric.link(self._target, self._source)
        host = self._fabric.hosts.get(self._target)
        if host is None or not host.up or there.cut or back.cut:
            if now >= self._deadline:
                self.done.set_exception(TimeoutError(f"{self._target} does not answer"))
            else:
                loop.at(now + self._retry_s, self._send)
                self._retry_s *= 2
            return
        arrives = now + there.latency_s
        loop.scheduler.world.at(arrives, self._arrive)

    def _arrive(self) -> None:
        listener = self._fabric.host(self._target).listeners.get(self._port)
        if self.done.done():
            return
        if listener is None:
            self.turn_away()
            return
        # A process that dies before it has let us in closes its listener, which turns away who is still there.
        listener.backlog[self] = None
        if listener.started:
            listener.loop.call_soon(self.accept, listener)

    def turn_away(self) -> None:
        """Nobody listens: the kernel says so, if there is one."""
        if self._fabric.host(self._target).up:
            self._loop.call_soon(self._fail, ConnectionRefusedError(111, f"{self._target}:{self._port} refused"))
        else:
            self._loop.call_soon(self._send)

    def accept(self, listener: SimListener) -> None:
        """On the listener's side."""
        if self not in listener.backlog:
            return  # It was let in, or turned away.
        del listener.backlog[self]
        if self.done.done() or self._loop.state == DEAD:
            return
        near, far = self._fabric.establish(self._source, self._loop, listener, self._handler, self._port)
        far.start()
        back = self._fabric.link(self._target, self._source)
        self._loop.at(self._loop.scheduler.now + back.latency_s, self._finish, near)

    def _finish(self, near: SimConnection) -> None:
        if self.done.done():
            near.abort()  # Whoever asked has given up.
        elif near.closed:
            self.done.set_exception(ConnectionResetError("reset while connecting"))
        else:
            near.start()
            self.done.set_result(near)

    def _fail(self, error: OSError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class SimNetwork:
    """One incarnation's way to the fabric."""

    def __init__(self, fabric: Fabric, host: str, loop: SimLoop) -> None:
        self._fabric = fabric
        self._host = host
        self._loop = loop

    async def listen(
        self, host: str, port: int, accept: Callable[[], ConnectionHandler], options: object = None
    ) -> SimListener:
        machine = self._fabric.host(self._host)
        if port == 0:
            machine.next_port += 1
            port = machine.next_port
        if port in machine.listeners:
            raise OSError(98, "Address already in use")
        listener = machine.listeners[port] = SimListener(machine, port, accept, self._loop)
        return listener

    async def connect(self, host: str, port: int, handler: ConnectionHandler) -> SimConnection:
        return await self._fabric.connect(self._host, self._loop, host, port, handler).done
