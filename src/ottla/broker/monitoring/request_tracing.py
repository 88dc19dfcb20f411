"""One line for every request: who asked for what, how large it was, and how long the answer took.

Switched on while the node runs, by the level of the logger `kafka.request.logger` (DEBUG or TRACE), as in Apache Kafka:

    kafka-configs.sh … --entity-type broker-loggers --entity-name 1 --alter --add-config kafka.request.logger=TRACE

The correlation id is the client's own, so that a line here can be held against one of the client's log. What a request
sets, records and passwords among it, is not told, only what it names. While it is off, `Services.tracing` is None and
a request pays for one look at that.

Driven by the dispatcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from ottla.broker.access.audit import NAMES_PER_LINE_MAX, TEXT_CHARS_MAX, about
from ottla.broker.bounds.limits import elements_max
from ottla.broker.connection import ClientConnection
from ottla.broker.monitoring.logger_levels import REQUESTS
from ottla.broker.reply import CloseConnection, Deferred, Ready, Reply
from ottla.errors import KafkaError, Malformed
from ottla.runtime import Clock, FileSpan
from ottla.wire.apis import APIS
from ottla.wire.frames import read_request_header

_log = logging.getLogger(REQUESTS)
_HEAD = Struct(">hhi").unpack_from
_HEAD_BYTES = 10


class Starter(Protocol):
    """The dispatcher."""

    def start_request(
        self,
        connection: ClientConnection,
        buffer: bytearray,
        view: memoryview,
        start: int,
        end: int,
        metered: bool = False,
        traced: bool = False,
    ) -> Reply: ...


class RequestTracing:
    """One instance a node, while requests are traced."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def trace(
        self, starter: Starter, connection: ClientConnection, buffer: bytearray, view: memoryview, start: int, end: int
    ) -> Reply:
        """Start a request, and tell of it, now or when it is answered."""
        # Read before anything is done: offsets are written into a produced batch where it lies.
        fields = _describe(connection, bytes(view[start:end]))
        began_s = self._clock.monotonic()
        try:
            reply = starter.start_request(connection, buffer, view, start, end, metered=True, traced=True)
        except (CloseConnection, Malformed) as error:
            self._tell(fields | {"closed": str(error)}, None, began_s, self._clock.monotonic())
            raise
        worked_s = self._clock.monotonic()
        if not isinstance(reply, Deferred):
            self._tell(fields, reply, began_s, worked_s)
            return reply
        if reply.done:
            self._tell(fields, reply.reply, began_s, worked_s)
            return reply
        return _passed_on(reply, lambda ready: self._tell(fields, ready, began_s, worked_s))

    def _tell(self, fields: dict[str, object], reply: Ready, began_s: float, worked_s: float) -> None:
        told = fields | {
            "response_bytes": _size(reply),
            "total_ms": round((self._clock.monotonic() - began_s) * 1000, 3),
            "local_ms": round((worked_s - began_s) * 1000, 3),
        }
        _log.debug("request", extra={"fields": told})


def _passed_on(reply: Deferred, tell: Callable[[Ready], None]) -> Deferred:
    later = Deferred()

    def done() -> None:
        tell(reply.reply)
        later.resolve(reply.reply)

    reply.when_done(done)
    later.when_abandoned(reply.abandon)
    return later


def _describe(connection: ClientConnection, frame: bytes) -> dict[str, object]:
    fields: dict[str, object] = {}
    if len(frame) >= _HEAD_BYTES:
        api_key, version, correlation_id = _HEAD(frame, 0)
        api = APIS.get(api_key)
        fields |= {"api": str(api_key) if api is None else api.name, "version": version}
        fields["correlation_id"] = correlation_id
        if api is not None and api.serves(version):
            try:
                head = read_request_header(frame)
                request, _ = api.request.read(frame, head.body_position, version, elements_max(api.key))
            except (Malformed, KafkaError):
                fields["malformed"] = True  # Whoever serves it says so to the client.
            else:
                fields["client_id"] = (head.client_id or "")[:TEXT_CHARS_MAX]
                fields["about"] = about(request)[:NAMES_PER_LINE_MAX]
    host, port = connection.peer
    return fields | {
        "principal": connection.principal,
        "listener": connection.listener,
        "peer": f"{host}:{port}",
        "request_bytes": len(frame),
    }


def _size(reply: Ready) -> int:
    if reply is None:
        return 0
    if isinstance(reply, bytes):
        return len(reply)
    return sum(chunk.size if isinstance(chunk, FileSpan) else len(chunk) for chunk in reply)
