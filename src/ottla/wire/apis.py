"""One row an API, without handlers: its versions, where it is served, and the shape of its headers.

What a version may be, what ApiVersions advertises and how a header is read all come from here. The rows are Apache
Kafka's (`messages/_index`, generated); only what the definitions do not say is added by hand: the least version that
is advertised, and the header of an ApiVersions response.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.wire.message import Message
from ottla.wire.messages import _index, message_class

PRODUCE = 0
FETCH = 1
API_VERSIONS = 18

_ADVERTISED_FROM = {PRODUCE: 0}
"""Older librdkafka stops compressing when it does not see Produce 0, so Kafka advertises what it refuses (KIP-896)."""


class Api(NamedTuple):
    key: int
    name: str
    first_version: int
    last_version: int
    """The last stable version."""
    advertised_first_version: int
    unstable_last_version: int
    """The last version that has a definition; above `last_version` only tests speak it."""
    flexible_from: int | None
    listeners: tuple[str, ...]
    """Some of "broker" and "controller"."""

    @property
    def request(self) -> type[Message]:
        return message_class(f"{self.name}Request")

    @property
    def response(self) -> type[Message]:
        return message_class(f"{self.name}Response")

    @property
    def on_broker(self) -> bool:
        return "broker" in self.listeners

    @property
    def on_controller(self) -> bool:
        return "controller" in self.listeners

    def serves(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        """Compact lengths and tagged fields (KIP-482)? Defined for any version, also ones that are not served."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions always answers with the old header: the client cannot know what the server speaks (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


APIS: dict[int, Api] = {
    key: Api(key, name, first, stable, _ADVERTISED_FROM.get(key, first), last, flexible, listeners)
    for key, (name, first, stable, last, flexible, listeners) in _index.APIS.items()
}
