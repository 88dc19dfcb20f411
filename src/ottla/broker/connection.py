"""One client's connection: cuts frames, starts requests in order, and sends replies in that same order.

A request has two phases. The first runs as soon as its frame is whole, synchronously, so requests of one connection
start in order and their bytes are free to be overwritten when it returns. The second, if there is one, ends whenever
the reply is ready; replies wait for those before them. The next request may start between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from ottla.broker.bounds.limits import FLUSH_BYTES_MIN, REQUEST_BYTES_MAX, TURN_SECONDS_MAX
from ottla.broker.buffers import POOLED_BYTES, ReceiveBuffers
from ottla.broker.monitoring.http_responder import (
    HEAD_BYTES_MAX,
    LEAST_LENGTH,
    REQUEST_LENGTHS,
    HttpResponder,
    speaks_http,
)
from ottla.broker.reply import CloseConnection, Deferred, Ready, Reply
from ottla.errors import Malformed
from ottla.model import ANONYMOUS
from ottla.runtime import Connection, FileSpan
from ottla.runtime.timers import Timer, TimerWheel

if TYPE_CHECKING:
    from ottla.broker.doors.authentication import Authentication
    from ottla.broker.fetching.steady_fetches import SteadyFetch

IN_FLIGHT_MAX = 128
"""Requests of one connection that may be started and not yet answered; then reading stops until replies have left."""

SMALL_REPLY_BYTES = 256
"""What a produce request gets, or any other that cost little: the clock is looked at after sixteen of them."""

STASH_BYTES_MAX = 16 * 1024
"""The beginning of a frame up to this size is kept aside, so that slow senders do not hold receive buffers."""

FRAME_BYTES_MIN = 8

_LENGTH = Struct(">i")
_PRODUCE_KEY = (b"", b"\0", b"\0\0")
"""The API key of Produce, or as much of it as has arrived."""


class Service(Protocol):
    """What a connection needs of the server behind it."""

    buffers: ReceiveBuffers
    frame_bytes_max: int

    def start_request(
        self, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        """Phase one of the request in `buffer[start:end]`. Raises `Malformed` or `CloseConnection`."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` when the others have had their turn."""
        ...

    def limit_closing(self, call: Callable[[], None]) -> Timer:
        """Call `call` when a connection has been closing for too long."""
        ...

    def end_of_turn(self) -> None:
        """The replies of this turn are on their way; now wake those who waited for what the requests did."""
        ...

    def opened(self, connection: ClientConnection) -> bool: ...

    def closed(self, connection: ClientConnection, reason: str | None) -> None: ...

    def crashed(self, connection: ClientConnection, error: BaseException) -> None:
        """A bug, not a bad request."""
        ...


class Gate(Protocol):
    """What stands before a connection whose client has yet to prove who it is: the service gives it every request."""

    @property
    def frame_bounds(self) -> tuple[int, int]:
        """The least and the most bytes of what may come next."""
        ...

    def start_request(self, frame: bytes) -> Reply:
        """Phase one of a request, as `Service.start_request`."""
        ...


class ClientConnection:
    """States: open → closed. Owned by the listener's service; driven by the network."""

    __slots__ = (
        "_answered_http",
        "_buffer",
        "_closed",
        "_closing_timer",
        "_end",
        "_held",
        "_http",
        "_http_timer",
        "_listener",
        "_mute_timer",
        "_muted_until_ms",
        "_out_of_memory",
        "_outgoing",
        "_paused",
        "_peer_host",
        "_plain_length_max",
        "_running",
        "_service",
        "_start",
        "_stash",
        "_transport",
        "_view",
        "_waiting",
        "_write_blocked",
        "_yielded",
        "authentication",
        "borrowed_host",
        "by_token",
        "client_id",
        "close_reason",
        "commit_size",
        "gate",
        "last_active",
        "malformed",
        "opening_size",
        "principal",
        "received_bytes",
        "requests",
        "requests_seen",
        "sent_bytes",
        "software",
        "steady_fetch",
    )

    def __init__(self, service: Service, listener: str, http: HttpResponder | None = None) -> None:
        self._service = service
        self._listener = listener
        self._http = http
        self._http_timer: Timer | None = None
        self._answered_http = False
        self._plain_length_max = min(service.frame_bytes_max, LEAST_LENGTH - 1)
        self._transport: Connection | None = None
        self._peer_host = ""
        self._buffer: bytearray | None = None
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._stash = b""
        self._outgoing: list[bytes] = []
        self._waiting: deque[Reply] = deque()
        self._running = False
        self._paused = False
        self._write_blocked = False
        self._out_of_memory = False
        self._yielded = False
        self._held = False
        self._mute_timer: Timer | None = None
        self._muted_until_ms = 0.0
        self._closed = False
        self._closing_timer: Timer | None = None
        self.gate: Gate | None = None
        self.authentication: Authentication | None = None
        """How the client proved who it is, on a listener that asked for it."""
        self.principal = ANONYMOUS
        self.borrowed_host = ""
        """Where the client is for whom the other side, a node with a gateway, speaks (`gateway/speaking`)."""
        self.by_token = False
        """Did the client log in with a delegation token?"""
        self.client_id: str | None = None
        self.software: tuple[str, str] | None = None
        self.close_reason: str | None = None
        self.last_active = 0.0
        self.opening_size = 0
        """How long the beginning of this peer's last produce request was (`wire/produce_codec`); 0 if unknown."""
        self.commit_size = 0
        """The same of its last plain offset commit (`coordinators/known_commits`)."""
        self.steady_fetch: SteadyFetch | None = None
        """This peer's last fetch, if the next one may go on from it."""
        self.malformed = False
        self.received_bytes = 0
        self.requests = 0
        self.requests_seen = 0
        self.sent_bytes = 0

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def peer(self) -> tuple[str, int]:
        assert self._transport is not None
        return self._transport.peer

    @property
    def host(self) -> str:
        """Where the client is whose rights count."""
        return self.borrowed_host or self._peer_host

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    # What the network calls.

    def connection_made(self, connection: Connection) -> None:
        self._transport = connection
        self._peer_host = connection.peer[0]
        if not self._service.opened(self):
            self.close("too many connections")

    def get_buffer(self) -> memoryview:
        if self._buffer is None:
            self._buffer = self._service.buffers.lend()
            self._view = memoryview(self._buffer)
            if self._stash:
                self._end = len(self._stash)
                self._buffer[: self._end] = self._stash
                self._stash = b""
        assert self._view is not None
        if self._service.buffers.is_short and len(self._buffer) == POOLED_BYTES:
            # What cannot be kept where it is has to be put aside, so it is taken in small pieces.
            return self._view[self._end : self._end + STASH_BYTES_MAX]
        return self._view[self._end :] if self._end else self._view

    def buffer_updated(self, size: int) -> None:
        self._end += size
        self.received_bytes += size
        self._process()

    def write_blocked(self) -> None:
        self._write_blocked = True
        self._pause()

    def write_resumed(self) -> None:
        self._write_blocked = False
        if self._answered_http:
            self.close()
        else:
            self._resume()

    def connection_lost(self) -> None:
        for timer in (self._http_timer, self._closing_timer, self._mute_timer):
            if timer is not None:
                timer.cancel()
        if not self._closed:
            self._closed = True
            self._forget()

    # What the server calls.

    def close(self, reason: str | None = None) -> None:
        """Stop serving this peer; replies already given to the network still leave."""
        if not self._closed:
            self._closed = True
            self.close_reason = reason
            assert self._transport is not None
            # A peer that reads no more would keep the rest, and the socket, for ever.
            self._closing_timer = self._service.limit_closing(self._transport.abort)
            self._transport.close()
            self._forget()

    def cut_off(self, error: Malformed) -> None:
        """What the peer sent is no request."""
        self.malformed = True
        self.close(str(error) or "malformed request")

    def set_gate(self, gate: Gate | None) -> None:
        self.gate = gate
        # Where there is a gate every frame is out of the ordinary.
        self._plain_length_max = -1 if gate is not None else min(self._service.frame_bytes_max, LEAST_LENGTH - 1)

    def hold(self) -> None:
        """Start no request after the one being started, which has not done its work yet, until `release`."""
        self._held = True
        self._pause()

    def release(self) -> None:
        self._held = False
        self._resume()

    def mute(self, timers: TimerWheel, wait_ms: float) -> None:
        """Read nothing and start nothing for so long: the peer has to wait. What is under way is answered. Of several
        such times the one that ends last counts."""
        until_ms = timers.now_ms() + wait_ms
        if self._closed or until_ms <= self._muted_until_ms:
            return
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._muted_until_ms = until_ms
        self._mute_timer = timers.after(wait_ms, self._unmute)
        self._pause()

    def _unmute(self) -> None:
        self._mute_timer = None
        self._resume()

    # Requests.

    def _process(self) -> None:
        """Start every whole request that has arrived, then send what is ready."""
        buffer, view = self._buffer, self._view
        if buffer is None or self._running:
            return
        assert view is not None
        service = self._service
        start, end = self._start, self._end
        missing = 0
        turn_ends_s = 0.0
        self._running = True
        try:
            while not self._closed and not self._paused:
                if end - start < 4:
                    break
                length: int = _LENGTH.unpack_from(buffer, start)[0]
                if not FRAME_BYTES_MIN <= length <= self._plain_length_max and not self._is_frame(
                    length, view[start:end]
                ):
                    break
                frame_end = start + 4 + length
                if frame_end > end:
                    if length > REQUEST_BYTES_MAX and view[start + 4 : min(start + 6, end)] not in _PRODUCE_KEY:
                        raise Malformed(f"a request of {length} bytes that is not Produce")
                    missing = length + 4
                    break
                self.requests += 1
                reply = service.start_request(self, buffer, view, start + 4, frame_end)
                start = frame_end
                if self._waiting:
                    self._hold(reply)
                elif type(reply) is bytes:
                    self._outgoing.append(reply)
                    if len(reply) < SMALL_REPLY_BYTES and self.requests & 15:
                        continue  # Such a request costs less than a dozen looks at the clock.
                    if len(reply) >= FLUSH_BYTES_MIN:
                        self._flush()
                elif reply is not None:
                    self._send_or_hold(reply)
                if end - start >= 4:
                    if turn_ends_s == 0.0:
                        turn_ends_s = service.now() + TURN_SECONDS_MAX
                    elif service.now() > turn_ends_s:
                        self._yielded = True
                        self._pause()
                        service.soon(self._on_next_turn)
        except Malformed as error:
            self._flush()
            self.cut_off(error)
        except CloseConnection as error:
            self._flush()
            self.close(str(error))
        except Exception as error:
            self._flush()
            service.crashed(self, error)
            self.close("internal error")
        finally:
            self._running = False
        self._start = start
        if self._closed:
            self._release_buffer()
        else:
            if self._outgoing:
                self._flush()
            self._settle(missing)
        service.end_of_turn()

    def _is_frame(self, length: int, received: memoryview) -> bool:
        """A length out of the ordinary: too large or too small, or the first bytes of an HTTP request."""
        http = self._http
        if http is not None and not self.requests and length in REQUEST_LENGTHS:
            if self._http_timer is None:
                self._http_timer = http.limit(self._on_http_deadline)
            begun = bytes(received[: HEAD_BYTES_MAX + 1])
            spoken = speaks_http(begun)
            if spoken is None:
                return False
            if spoken:
                answer = http.answer(begun)
                if answer is not None:
                    self._answer_http(answer)
                return False
            self._http_timer.cancel()
        least, most = FRAME_BYTES_MIN, self._service.frame_bytes_max
        if self.gate is not None:
            least, most = self.gate.frame_bounds
        if not least <= length <= most:
            raise Malformed(f"a frame of {length} bytes")
        return True

    def _answer_http(self, answer: bytes) -> None:
        """The one answer, after which the connection closes: at once, or when the peer has taken most of it."""
        self.requests += 1
        self._answered_http = True
        self._outgoing.append(answer)
        self._flush()
        if not self._write_blocked:
            self.close()

    def _on_http_deadline(self) -> None:
        """Too slow in asking, or in taking the answer, of which some may still be queued after `close`."""
        assert self._transport is not None
        self._transport.abort()

    def _settle(self, missing: int) -> None:
        """Decide what becomes of the buffer: `missing` is the size of the frame whose beginning it holds, if known."""
        buffer, view = self._buffer, self._view
        if buffer is None:
            return
        assert view is not None
        start, end = self._start, self._end
        left = end - start
        if not left:
            self._release_buffer()
            return
        if left <= STASH_BYTES_MAX or not self._service.buffers.hold(buffer):
            # If paused, whole requests may be among them: `_resume` takes them up again.
            self._stash = bytes(view[start:end])
            self._release_buffer()
            if left > STASH_BYTES_MAX and not self._paused:
                self._out_of_memory = True
                self._pause()
                self._service.buffers.when_held_by_fewer(self._on_memory_freed)
            return
        if self._paused:
            return
        if start and start + missing > len(buffer):
            buffer[:left] = buffer[start:end]
            self._start, self._end = 0, left
        if self._end == len(buffer):
            self._grow(missing)

    def _grow(self, missing: int) -> None:
        assert self._buffer is not None
        larger = self._service.buffers.grow(self._buffer, missing)
        if larger is None:
            self._out_of_memory = True
            self._pause()
            self._service.buffers.when_freed(self._on_memory_freed)
        else:
            self._buffer, self._view = larger, memoryview(larger)

    def _on_next_turn(self) -> None:
        self._yielded = False
        self._resume()

    def _on_memory_freed(self) -> None:
        self._out_of_memory = False
        self._resume()

    def _release_buffer(self) -> None:
        if self._buffer is not None:
            self._service.buffers.give_back(self._buffer)
            self._buffer = None
            self._view = None
        self._start = self._end = 0

    # Replies.

    def _hold(self, reply: Reply) -> None:
        if reply is None:
            return
        if isinstance(reply, Deferred) and not reply.done:
            reply.when_done(self._on_ready)
        self._waiting.append(reply)
        if len(self._waiting) >= IN_FLIGHT_MAX:
            self._pause()

    def _send_or_hold(self, reply: Reply) -> None:
        if isinstance(reply, Deferred):
            if not reply.done:
                self._hold(reply)
                return
            reply = reply.reply
        self._send(reply)

    def _on_ready(self) -> None:
        """Some deferred reply is there: send all that are first in line."""
        if self._closed:
            return
        waiting = self._waiting
        while waiting:
            reply = waiting[0]
            if isinstance(reply, Deferred):
                if not reply.done:
                    break
                reply = reply.reply
            waiting.popleft()
            self._send(reply)
        if not self._running:
            self._flush()
            if self._paused:
                self._resume()

    def _send(self, reply: Ready) -> None:
        if reply is None:
            return
        if type(reply) is bytes:
            self._outgoing.append(reply)
            return
        if len(reply) == 1 and type(reply[0]) is bytes:
            self._outgoing.append(reply[0])
            return
        self._flush(more=True)
        transport = self._transport
        assert transport is not None
        last = len(reply) - 1
        for index, chunk in enumerate(reply):
            if isinstance(chunk, FileSpan):
                self.sent_bytes += chunk.size
                transport.write_file_span(chunk.file, chunk.position, chunk.size)
            else:
                assert isinstance(chunk, bytes)
                self.sent_bytes += len(chunk)
                transport.write(chunk, index < last)

    def _flush(self, more: bool = False) -> None:
        outgoing = self._outgoing
        if outgoing:
            assert self._transport is not None
            data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
            outgoing.clear()
            self.sent_bytes += len(data)
            self._transport.write(data, more)

    # Back-pressure: nothing is read while the peer owes us reading, or has too much in flight.

    def _pause(self) -> None:
        if not self._paused and not self._closed:
            self._paused = True
            assert self._transport is not None
            self._transport.pause_reading()

    def _resume(self) -> None:
        if (
            self._paused
            and not self._closed
            and not self._write_blocked
            and not self._out_of_memory
            and not self._yielded
            and not self._held
            and self._mute_timer is None
            and len(self._waiting) < IN_FLIGHT_MAX // 2
        ):
            self._paused = False
            assert self._transport is not None
            self._transport.resume_reading()
            if self._stash:
                self.get_buffer()
            self._process()

    def _forget(self) -> None:
        for reply in self._waiting:
            if isinstance(reply, Deferred):
                reply.abandon()
        self._waiting.clear()
        self._outgoing.clear()
        self._stash = b""
        if not self._running:  # Else the request being started still reads it, and `_process` lets go of it.
            self._release_buffer()
        self._service.closed(self, self.close_reason)
