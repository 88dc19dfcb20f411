"""One connection between two simulated hosts: two pipes, one each way, over links that may be cut.

What is written arrives, in order, after the latency of the link. What is under way on a link that is cut waits, as it
does in TCP, and arrives when the link is whole again, unless one of the ends has lost patience. A send buffer takes so
many bytes; the rest waits in the sender, and a span of a file among it is read only when its turn comes, as `sendfile`
does it. Driven by the `Fabric` of `network.py`, which carries the bytes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.runtime.seams import Buffer, ConnectionHandler, DiskError, File
from ottla.sim.loop import DEAD, NodeDied, SimLoop

if TYPE_CHECKING:
    from ottla.sim.network import Fabric

SEND_BUFFER_BYTES = 256 * 1024
"""What the kernel takes before the sender has to wait."""


class Link:
    """One direction between two hosts."""

    __slots__ = ("cut", "latency_s", "reset_next", "source", "stalled", "target")

    def __init__(self, source: str, target: str, latency_s: float) -> None:
        self.source = source
        self.target = target
        self.latency_s = latency_s
        self.cut = 0
        """By how many faults at once."""
        self.stalled: dict[Pipe, None] = {}
        """Pipes with something to deliver when the link is whole again."""
        self.reset_next = False
        """Whatever is sent next is lost, and its connection reset."""


class Pipe:
    """One direction of a connection. `source` writes, `target` reads."""

    __slots__ = ("arrivals", "at", "last_arrival", "link", "source", "target", "unread")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.source: SimConnection
        self.target: SimConnection
        self.arrivals: deque[tuple[float, bytes | None]] = deque()
        """(when, what) in order; None is the end of the stream."""
        self.last_arrival = 0.0
        self.unread = 0
        """Bytes that were sent and not taken yet."""
        self.at = 0
        """How much of the first arrival has been taken."""


class SimConnection:
    """One end of a connection. States: open → closing (what is queued still leaves) → closed."""

    __slots__ = (
        "_blocked",
        "_closed",
        "_closing",
        "_delivering",
        "_fabric",
        "_handler",
        "_incoming",
        "_loop",
        "_made",
        "_outgoing",
        "_peer",
        "_queue",
        "_reading",
        "_scheduled",
        "number",
    )

    def __init__(
        self,
        fabric: Fabric,
        loop: SimLoop,
        peer: tuple[str, int],
        handler: ConnectionHandler,
        incoming: Pipe,
        outgoing: Pipe,
        number: int,
    ) -> None:
        self._fabric = fabric
        self._loop = loop
        self._peer = peer
        self._handler = handler
        self._incoming = incoming
        self._outgoing = outgoing
        incoming.target = self
        outgoing.source = self
        self._queue: deque[bytes | tuple[File, int, int]] = deque()
        self._reading = True
        self._blocked = False
        self._closing = False
        self._closed = False
        self._scheduled = False
        self._delivering = False
        self._made = False
        """Does its handler know of it?"""
        self.number = number

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def loop(self) -> SimLoop:
        return self._loop

    def start(self) -> None:
        self._made = True
        self._handler.connection_made(self)

    # What the owner calls.

    def write(self, data: Buffer, more: bool = False) -> None:
        if self._closed or self._closing:
            return
        if self._loop.state == DEAD:
            raise NodeDied
        if self._queue or self._outgoing.unread >= SEND_BUFFER_BYTES:
            self._enqueue(bytes(data))
        else:
            self._fabric.send(self._outgoing, bytes(data))

    def write_file_span(self, file: File, position: int, size: int) -> None:
        if self._closed or self._closing:
            return
        if self._queue or self._outgoing.unread >= SEND_BUFFER_BYTES:
            self._enqueue((file, position, size))
        else:
            self._send_span(file, position, size)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closed and not self._closing:
            self._reading = True
            self._schedule()

    def close(self) -> None:
        if self._closed or self._closing:
            return
        self._closing = True
        self._reading = False
        if not self._queue:
            self._fabric.send(self._outgoing, None)
            self._lose()

    def abort(self) -> None:
        if not self._closed:
            self._fabric.reset(self._outgoing)
            self._lose()

    # Sending.

    def _enqueue(self, item: bytes | tuple[File, int, int]) -> None:
        self._queue.append(item)
        if not self._blocked:
            self._blocked = True
            self._handler.write_blocked()

    def _send_span(self, file: File, position: int, size: int) -> bool:
        try:
            data = file.read(position, size)
        except DiskError:
            data = b""
        if len(data) < size:
            # The file was cut short under us; the length is promised already, so the stream cannot go on.
            self.abort()
            return False
        self._fabric.send(self._outgoing, data)
        return True

    def on_room(self) -> None:
        """The peer has taken some: send what waits."""
        if self._closed:
            return
        queue = self._queue
        while queue and self._outgoing.unread < SEND_BUFFER_BYTES:
            item = queue.popleft()
            if isinstance(item, bytes):
                self._fabric.send(self._outgoing, item)
            elif not self._send_span(*item):
                return
        if queue:
            return
        if self._closing:
            self._fabric.send(self._outgoing, None)
            self._lose()
        elif self._blocked:
            self._blocked = False
            self._handler.write_resumed()

    # Receiving.

    def _schedule(self) -> None:
        """Have `_deliver` called when the first arrival is due."""
        arrivals = self._incoming.arrivals
        if arrivals and not self._scheduled and not self._delivering and self._reading and not self._closed:
            link = self._incoming.link
            if link.cut:
                link.stalled[self._incoming] = None
                return
            self._scheduled = True
            self._loop.at(arrivals[0][0], self._deliver)

    def on_sent(self) -> None:
        self._schedule()

    def _deliver(self) -> None:
        """Hand over what has arrived, as far as the handler wants it."""
        self._scheduled = False
        pipe = self._incoming
        if pipe.link.cut:
            link = pipe.link
            link.stalled[pipe] = None
            return
        arrivals, now = pipe.arrivals, self._loop.scheduler.now
        handler = self._handler
        trace = self._fabric.trace
        self._delivering = True
        taken = 0
        try:
            while arrivals and self._reading and not self._closed and arrivals[0][0] <= now:
                data = arrivals[0][1]
                if data is None:
                    arrivals.popleft()
                    self._fabric.answer_end(self._outgoing)
                    self._lose()
                    break
                buffer = handler.get_buffer()
                at = pipe.at
                size = min(len(buffer), len(data) - at)
                buffer[:size] = data[at : at + size] if size < len(data) else data
                if at + size == len(data):
                    arrivals.popleft()
                    pipe.at = 0
                else:
                    pipe.at = at + size
                pipe.unread -= size
                taken += size
                trace.received(now, self.number, data)
                handler.buffer_updated(size)
        finally:
            self._delivering = False
        if taken:
            pipe.source.told_of_room()
        self._schedule()

    def told_of_room(self) -> None:
        if (self._queue or self._blocked) and not self._closed:
            self._loop.at(self._loop.scheduler.now + self._outgoing.link.latency_s, self.on_room)

    def lost(self) -> None:
        """The peer, or the network, broke the connection."""
        if not self._closed:
            self._lose()

    def _lose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.clear()
        self._incoming.arrivals.clear()
        self._fabric.forget(self)
        if self._made:
            self._handler.connection_lost()
