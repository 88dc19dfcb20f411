"""Another node, as those who send to it see it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ottla.errors import KafkaError
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)


class PeerLost(KafkaError):
    """No answer came: the peer cannot be reached, hung up, or took too long. It may have acted on the request."""


class Peer(Protocol):
    """One other node over one connection, which is opened when first needed, and anew after it broke.

    Requests may be sent before earlier ones are answered; the peer answers them in order.
    """

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        """The answer to `request`, in the newest version that both sides speak (and at most `max_version`).

        Raises `PeerLost`, or `KafkaError` (UNSUPPORTED_VERSION) where the peer does not know the API.
        """
        ...

    def close(self) -> None:
        """Hang up; what waits for an answer gets `PeerLost`."""
        ...


class Peers(Protocol):
    """Makes peers; one instance a node."""

    def at(self, host: str, port: int) -> Peer:
        """A new peer with a connection of its own; whoever asked for it closes it."""
        ...
