"""What a handler knows about the request besides its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services


class Context(NamedTuple):
    services: Services
    connection: ClientConnection
    listener: str
    """The name of the listener that the request came by; answers name the brokers' addresses on that same one."""
    on_controller: bool
    api_key: int
    api_version: int
    client_id: str | None
