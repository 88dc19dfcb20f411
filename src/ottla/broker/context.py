"""What a handler knows about the request besides its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.controller.requester import AnyRequester, Requester

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services

ANONYMOUS = "User:ANONYMOUS"
"""Who everybody is on a listener that asks for no name."""


class Context(NamedTuple):
    services: Services
    connection: ClientConnection
    """What the request came by: the client's, or a broker's that handed it on."""
    listener: str
    """The name of the listener that the request came by; answers name the brokers' addresses on that same one."""
    on_controller: bool
    api_key: int
    api_version: int
    client_id: str | None
    principal: str = ANONYMOUS
    """Of the form `type:name`; the client's, also of a request that was handed on."""
    host: str = ""
    """Where a request that was handed on came from at first."""

    @property
    def client_host(self) -> str:
        return self.host or self.connection.peer[0]

    @property
    def requester(self) -> Requester:
        """The client, as the controller sees it."""
        return AnyRequester(self.principal)
