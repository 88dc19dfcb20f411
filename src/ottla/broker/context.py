"""What a handler knows about the request besides its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.controller.requester import AnyRequester, Requester
from ottla.metadata.acls import CLUSTER_NAME, Operation, ResourceType

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
        if self.services.authorizer is None:
            return AnyRequester(self.principal)
        return ClientRequester(self)

    # What the client may do. Everything, where there is no authorizer.

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.may(self.principal, self.client_host, operation, kind, name)

    def may_for_some(self, operation: Operation, kind: ResourceType) -> bool:
        """To any resource of the kind, whatever its name?"""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.may_for_some(self.principal, self.client_host, operation, kind)

    def may_topic(self, operation: Operation, name: str) -> bool:
        return self.may(operation, ResourceType.TOPIC, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        return self.may(operation, ResourceType.GROUP, name)

    def may_cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_transactional(self, operation: Operation, name: str) -> bool:
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name)


class ClientRequester(NamedTuple):
    """A client whose rights count."""

    context: Context

    @property
    def principal(self) -> str:
        return self.context.principal

    def may_describe_configs(self, topic: str) -> bool:
        return self.context.may_topic(Operation.DESCRIBE_CONFIGS, topic)
