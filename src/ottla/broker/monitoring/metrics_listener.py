"""A port for the pages of `http_responder` and nothing else (`ottla.metrics.listener`).

A listener whose clients must log in serves no pages, since those ask for no login, and one whose clients have rights
shows metrics that name nothing; Prometheus gets this port instead, and everything.
It speaks no Kafka: whatever does not begin like an HTTP request is hung up on.

`MetricsListener` is the `Service` behind its connections; the node opens it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.bounds.limits import LINGER_MS
from ottla.broker.connection import ClientConnection
from ottla.broker.reply import CloseConnection, Reply
from ottla.errors import StartupError
from ottla.runtime import Listener, ListenOptions, Network
from ottla.runtime.timers import Timer

if TYPE_CHECKING:
    from ottla.broker.services import Services

_log = logging.getLogger(__name__)

NAME = "METRICS"
"""As what its connections are counted, and limited."""
LOOPBACK = "127.0.0.1"
KEY = "ottla.metrics.listener"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, or a port of this machine alone. Raises `StartupError`."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise StartupError(f"{KEY}={text} is not of the form host:port: write {LOOPBACK}:9644, for example.")
    return host.strip("[]") or LOOPBACK, int(port)


async def listen(services: Services, network: Network, options: ListenOptions) -> Listener:
    """Take the address that the key names. Raises `StartupError`."""
    host, port = parse_address(str(services.config[KEY]))
    try:
        return await network.listen(host, port, MetricsListener(services).accept, options)
    except OSError as error:
        raise StartupError(
            f"Port {port} of {host} cannot be used for metrics ({error.strerror}): stop what listens there, or choose "
            f"another with {KEY}."
        ) from None


class MetricsListener:
    """One instance a node that has such a port."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.buffers = services.buffers
        self.frame_bytes_max = 0
        self._http = services.http.showing(services.metrics.page)

    def accept(self) -> ClientConnection:
        return ClientConnection(self, NAME, self._http)

    def start_request(
        self, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        raise CloseConnection("there is no frame that may be so short")

    def opened(self, connection: ClientConnection) -> bool:
        return self._services.connections.opened(connection)

    def closed(self, connection: ClientConnection, reason: str | None) -> None:
        self._services.connections.closed(connection, reason)

    def crashed(self, connection: ClientConnection, error: BaseException) -> None:
        _log.error("a page for %s:%d failed", *connection.peer, exc_info=error)
        self._services.on_bug(error)

    def now(self) -> float:
        return self._services.clock.monotonic()

    def soon(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def limit_closing(self, call: Callable[[], None]) -> Timer:
        return self._services.timers.after(LINGER_MS, call)

    def end_of_turn(self) -> None:
        pass
