"""To whom a request is under way, and who is left alone for a while after one failed.

Invariant: at most one request a node is waited for. `forget_all` is for a change of role: what was asked in the old one
is not heard any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.wire.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class _Connection:
    correlation_id: int | None = None
    request: Message | None = None
    sent_ms: int = 0
    ready_ms: int = 0
    """When a failed one may be tried again."""


class Connections:
    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int, random: Random) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._random = random
        self._by_node: dict[int, _Connection] = {}
        self._next_correlation_id = 1

    def forget_all(self) -> None:
        self._by_node.clear()

    def forget(self, node_id: int) -> None:
        self._by_node.pop(node_id, None)

    def on_sent(self, node_id: int, request: Message, now_ms: int) -> int:
        """The new request's correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._by_node[node_id] = _Connection(correlation_id, request, now_ms)
        return correlation_id

    def awaited(self, correlation_id: int) -> tuple[int, Message] | None:
        """Whom and what was asked, if the answer is still waited for."""
        for node_id, connection in self._by_node.items():
            if connection.correlation_id == correlation_id and connection.request is not None:
                return node_id, connection.request
        return None

    def on_done(self, node_id: int, correlation_id: int, *, failed: bool, now_ms: int) -> None:
        connection = self._by_node.get(node_id)
        if connection is None or connection.correlation_id != correlation_id:
            return
        if failed:
            self.back_off(node_id, now_ms)
        else:
            del self._by_node[node_id]

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._by_node[node_id] = _Connection(ready_ms=now_ms + self._retry_backoff_ms)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return self.ready_ms(node_id, now_ms) <= now_ms

    def ready_ms(self, node_id: int, now_ms: int) -> int:
        """When the node may be asked; an answer may make it earlier."""
        connection = self._by_node.get(node_id)
        if connection is None:
            return now_ms
        if connection.correlation_id is not None:
            return connection.sent_ms + self._request_timeout_ms
        return connection.ready_ms

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        connection = self._by_node.get(node_id)
        return (
            connection is not None
            and connection.correlation_id is not None
            and now_ms >= connection.sent_ms + self._request_timeout_ms
        )

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        connection = self._by_node.get(node_id)
        return connection is not None and connection.correlation_id is None and now_ms < connection.ready_ms

    def in_flight_until_ms(self, now_ms: int) -> int | None:
        """Until when any request at all is waited for; None if none is."""
        for connection in self._by_node.values():
            if connection.correlation_id is not None and now_ms < connection.sent_ms + self._request_timeout_ms:
                return connection.sent_ms + self._request_timeout_ms
        return None

    def choose(self, candidates: list[Destination], now_ms: int) -> Destination | None:
        """One of those that may be asked, by chance."""
        if not candidates:
            return None
        first = self._random.randrange(len(candidates))
        for destination in candidates[first:] + candidates[:first]:
            if self.is_ready(destination.node_id, now_ms):
                return destination
        return None
