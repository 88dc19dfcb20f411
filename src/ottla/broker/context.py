"""What a handler knows about the request besides its body."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.access.authorisation import Asker
from ottla.controller.requester import AnyRequester, Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.model import ANONYMOUS

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services


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
    audited: bool = True
    """Is a right that the client lacks one that it has asked for?"""

    @property
    def client_host(self) -> str:
        return self.host or self.connection.host

    @property
    def requester(self) -> Requester:
        """The client, as the controller sees it."""
        if self.services.authorizer is None and self.services.quotas is None:
            return AnyRequester(self.principal)
        return ClientRequester(self)

    @property
    def silently(self) -> Context:
        """The same, for asking what the client may do where it is refused nothing for it: what it is shown of a list,
        or a right for which another makes up."""
        return self._replace(audited=False)

    # What the client may do. Everything, where there is no authorizer.

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        if not self.audited:
            return authorizer.may(self.principal, self.client_host, operation, kind, name)
        asker = Asker(
            authorizer,
            self.services.audit,
            principal=self.principal,
            host=self.client_host,
            api_key=self.api_key,
            on_controller=self.on_controller,
        )
        return asker.may(operation, kind, name)

    @property
    def may_describe(self) -> Callable[[str], bool]:
        """Which topics the client may know of, where it is refused nothing for asking."""
        if self.services.authorizer is None:
            return _everything
        return partial(self.silently.may_topic, Operation.DESCRIBE)

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


def _everything(topic: str) -> bool:
    return True


class ClientRequester:
    """A client whose rights count, and whose changes."""

    __slots__ = ("_context", "throttle_ms")

    def __init__(self, context: Context) -> None:
        self._context = context
        self.throttle_ms = 0

    @property
    def principal(self) -> str:
        return self._context.principal

    def may_describe_configs(self, topic: str) -> bool:
        return self._context.silently.may_topic(Operation.DESCRIBE_CONFIGS, topic)

    def charge(self, partitions: int) -> None:
        quotas = self._context.services.quotas
        if quotas is None:
            return
        allowed, wait_ms = quotas.charge_mutations(self._context, partitions)
        self.throttle_ms = max(self.throttle_ms, wait_ms)
        if not allowed:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded: wait, and ask again."
            )
