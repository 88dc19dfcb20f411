"""Plain TCP behind the `Network` seam.

The socket belongs to us rather than to an asyncio transport, for one reason: the bytes of a response and the spans of
files that follow them must leave in order, and `sendfile` needs the socket. Reads go straight into the handler's
buffer; one read a connection and loop turn, so that a busy peer cannot starve the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

from ottla.runtime.disk import Handle, SystemFile
from ottla.runtime.seams import DEFAULT_LISTEN_OPTIONS, Buffer, ConnectionHandler, File, ListenOptions

WRITE_HIGH_WATER_BYTES = 256 * 1024
"""Unsent bytes, files included, beyond which the handler is told to hold back."""

Address = tuple[str, int] | tuple[str, int, int, int]

ACCEPTS_PER_TURN = 16
"""About a millisecond: ten thousand that come at once are not to be felt by who is there already."""
ACCEPT_PAUSE_SECONDS = 0.1
"""How long to leave the backlog alone when the process has run out of descriptors."""


SEND_BUFFER_BYTES = 1024 * 1024
"""An answer of many megabytes to a reader on the same machine moves a fifth faster when it is handed over bit by bit,
out of the processor's cache, than all at once. Where the system allows less, its own tuning is better."""


class _Span:
    """What is left to send of a file; holds its descriptor open."""

    __slots__ = ("handle", "position", "size")

    def __init__(self, handle: Handle, position: int, size: int) -> None:
        self.handle = handle
        self.position = position
        self.size = size


class SocketConnection:
    """One TCP connection. States: open → closing (the queue drains) → closed."""

    __slots__ = (
        "_blocked",
        "_closed",
        "_closing",
        "_fd",
        "_handler",
        "_loop",
        "_peer",
        "_queue",
        "_queued_bytes",
        "_quiet",
        "_reading",
        "_socket",
        "_writing",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, peer: tuple[str, int], handler: ConnectionHandler
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._peer = peer
        self._handler = handler
        self._queue: deque[memoryview | _Span] = deque()
        self._queued_bytes = 0
        self._quiet = True
        self._reading = False
        self._writing = False
        self._blocked = False
        self._closing = False
        self._closed = False

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    def start(self) -> None:
        self._handler.connection_made(self)
        self.resume_reading()

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reading and not self._closing and not self._closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def write(self, data: Buffer, more: bool = False) -> None:
        if self._closed or self._closing:
            return
        if self._queue:
            self._enqueue(memoryview(data), len(data))
            return
        self._quiet = False
        try:
            sent = self._socket.send(data, socket.MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._lose()
            return
        if sent < len(data):
            self._enqueue(memoryview(data)[sent:], len(data) - sent)

    def write_file_span(self, file: File, position: int, size: int) -> None:
        if self._closed or self._closing:
            return
        assert isinstance(file, SystemFile)
        span = _Span(file.handle, position, size)
        if self._queue or not self._send_span(span):
            self._enqueue(span, span.size)

    def close(self) -> None:
        if self._closed or self._closing:
            return
        self._closing = True
        self.pause_reading()
        if not self._queue:
            self._lose()

    def abort(self) -> None:
        self._lose()

    def _enqueue(self, item: memoryview | _Span, size: int) -> None:
        if self._closed:
            return
        self._queue.append(item)
        self._queued_bytes += size
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        if self._queued_bytes > WRITE_HIGH_WATER_BYTES and not self._blocked:
            self._blocked = True
            self._handler.write_blocked()

    def _send_span(self, span: _Span) -> bool:
        """Send what the socket takes; true when the span is finished (or the connection is)."""
        try:
            sent = os.sendfile(self._fd, span.handle.fd, span.position, span.size)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._lose()
            return True
        if sent == 0:
            # The file was cut short under us; the length is promised already, so the stream cannot go on.
            self._lose()
            return True
        span.position += sent
        span.size -= sent
        return span.size == 0

    def _on_readable(self) -> None:
        try:
            size = self._socket.recv_into(self._handler.get_buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._lose()
            return
        if not size:
            self._lose()
            return
        self._quiet = True
        self._handler.buffer_updated(size)
        if self._quiet and not self._closed and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            # The peer sent something and reset the connection at once. libuv stops polling after an error that came
            # with data, so unless we write, which would fail, nobody would ever tell us.
            self._lose()

    def _on_writable(self) -> None:
        queue = self._queue
        while queue:
            item = queue[0]
            if isinstance(item, _Span):
                before = item.size
                finished = self._send_span(item)
                if self._closed:
                    return
                self._queued_bytes -= before - item.size
                if not finished:
                    return  # The socket is full; it says when it has room again.
            else:
                try:
                    sent = self._socket.send(item, socket.MSG_MORE if len(queue) > 1 else 0)
                except (BlockingIOError, InterruptedError):
                    return
                except OSError:
                    self._lose()
                    return
                self._queued_bytes -= sent
                if sent < len(item):
                    queue[0] = item[sent:]
                    return
            queue.popleft()
        self._writing = False
        self._loop.remove_writer(self._fd)
        if self._closing:
            self._lose()
        elif self._blocked:
            self._blocked = False
            self._handler.write_resumed()

    def _lose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._queue.clear()
        self._socket.close()
        self._handler.connection_lost()


class SocketListener:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, accept: Callable[[], ConnectionHandler]
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._accept = accept
        self._accepting = False
        self._closed = False
        host, port = sock.getsockname()[:2]
        self._address = (host, port)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def start(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        if not self._closed:
            self.pause()
            self._closed = True
            self._socket.close()

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._accepting:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self.pause()
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self.start)
                return
            _prepare(sock)
            SocketConnection(self._loop, sock, (str(address[0]), int(address[1])), self._accept()).start()


def _send_buffer_bytes_max() -> int:
    """What the system lets a program ask for; 0 if it does not say."""
    try:
        with open("/proc/sys/net/core/wmem_max") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SocketNetwork:
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[], ConnectionHandler],
        options: ListenOptions = DEFAULT_LISTEN_OPTIONS,
    ) -> SocketListener:
        loop = asyncio.get_running_loop()
        family, address = await self._resolve(host, port, passive=True)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            # Accepted sockets inherit both; a receive window can only be scaled to it before the handshake.
            send_buffer_bytes = options.send_buffer_bytes
            if send_buffer_bytes is None:
                send_buffer_bytes = SEND_BUFFER_BYTES if _send_buffer_bytes_max() >= SEND_BUFFER_BYTES else -1
            if send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if options.receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            sock.bind(address)
            sock.listen(options.backlog)
        except BaseException:
            sock.close()
            raise
        return SocketListener(loop, sock, accept)

    async def connect(self, host: str, port: int, handler: ConnectionHandler) -> SocketConnection:
        loop = asyncio.get_running_loop()
        refusal = OSError(f"{host} has no address")
        for family, address in await self._addresses(host, port, passive=False):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                _prepare(sock)
                await loop.sock_connect(sock, address)
            except OSError as error:
                # A name may stand for several addresses, and its server listen on but one of them.
                sock.close()
                refusal = error
                continue
            except BaseException:
                sock.close()
                raise
            connection = SocketConnection(loop, sock, (host, port), handler)
            connection.start()
            return connection
        raise refusal

    async def _resolve(self, host: str, port: int, *, passive: bool) -> tuple[int, Address]:
        return (await self._addresses(host, port, passive=passive))[0]

    async def _addresses(self, host: str, port: int, *, passive: bool) -> list[tuple[int, Address]]:
        # A literal address needs no resolver, whose first use costs a thread and a millisecond at start-up.
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            return [(family, (host, port))]
        infos = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE if passive else 0
        )
        return [(family, address) for family, _, _, _, address in infos]  # type: ignore[misc]
