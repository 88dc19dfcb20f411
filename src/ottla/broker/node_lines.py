"""The ways from this node to others, each with what waits until the other has answered what it was asked before.

One request is on its way to a node at a time, and what comes up meanwhile shares the next one. Used by whoever speaks
to other brokers for clients: `transactions/verification` and `coordinators/marker_sender`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from ottla.client.peer import Peer, Peers
from ottla.config.node import NodeConfig
from ottla.metadata.images import MetadataImage
from ottla.runtime import Clock
from ottla.runtime.timers import TimerWheel

K = TypeVar("K")
V = TypeVar("V")


class NodeServices(Protocol):
    """What is used of the node's `Services` by those who speak to other nodes."""

    @property
    def node_id(self) -> int: ...

    @property
    def config(self) -> NodeConfig: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def timers(self) -> TimerWheel: ...

    @property
    def image(self) -> MetadataImage: ...

    def on_bug(self, error: BaseException) -> None: ...


class Line(Generic[K, V]):
    __slots__ = ("address", "busy", "peer", "waiting")

    def __init__(self, address: tuple[str, int], peer: Peer | None) -> None:
        self.address = address
        self.peer = peer
        """None: it is this node."""
        self.busy = False
        """Is a request on its way?"""
        self.waiting: dict[K, V] = {}

    def hang_up(self) -> None:
        if self.peer is not None:
            self.peer.close()


class Lines(Generic[K, V]):
    """By broker. A line lasts as long as its broker is to be reached where it was."""

    def __init__(
        self, services: NodeServices, peers: Peers, on_lost: Callable[[Line[K, V]], None] = lambda line: None
    ) -> None:
        """`on_lost` is told of a line that is not the way to its broker any more."""
        self._services = services
        self._peers = peers
        self._on_lost = on_lost
        self._lines: dict[int, Line[K, V]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._lines))

    def to(self, broker_id: int) -> Line[K, V] | None:
        """None while the broker cannot be reached."""
        address = address_of(self._services, broker_id)
        if address is None:
            return None
        line = self._lines.get(broker_id)
        if line is None or line.address != address:
            self.drop(broker_id)
            here = broker_id == self._services.node_id
            line = self._lines[broker_id] = Line(address, None if here else self._peers.at(*address))
        return line

    def drop(self, broker_id: int) -> None:
        line = self._lines.pop(broker_id, None)
        if line is not None:
            line.hang_up()
            self._on_lost(line)

    def close(self) -> None:
        for line in self._lines.values():
            line.hang_up()


def address_of(services: NodeServices, broker_id: int) -> tuple[str, int] | None:
    """Where the brokers of the cluster reach one of them; None if it is down, or not known."""
    broker = services.image.broker(broker_id)
    if broker is None or broker.fenced:
        return None
    endpoint = broker.endpoint(services.config.inter_broker_listener_name)
    return None if endpoint is None else (endpoint.host, endpoint.port)
