"""Where clients' rights are asked before a handler runs, and what handlers share when they ask for themselves.

Every request that is not Produce, Fetch or a plain OffsetCommit, and every request that came in an envelope or was
handed on within this node, goes through `call`. A node without an authorizer asks for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.broker.access import audit
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Acl, Operation, ResourceType
from ottla.metadata.images import MetadataImage
from ottla.model import TopicKey
from ottla.security.authorizer import Authorizer
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, may_be_asked
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.broker.access.audit import AuditLog
    from ottla.broker.api import Handler
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import Context
    from ottla.broker.services import Services


def first_authorizer(config: NodeConfig) -> Authorizer | None:
    """Of a node that does not know the entries yet: only super users may do anything."""
    if not config.has_authorizer:
        return None
    return Authorizer(super_users=config.super_users)


def authorizer_of(config: NodeConfig, image: MetadataImage) -> Authorizer:
    return Authorizer(
        (Acl.of(record) for record in image.acls.values()),
        super_users=config.super_users,
        allow_where_none=config.allow_everyone_if_no_acl_found,
    )


def call(context: Context, handler: Handler, request: Message) -> Message | Awaitable[Message]:
    """What `handler` answers, unless the client lacks a right that the API asks for as a whole."""
    if context.services.authorizer is not None:
        right = (CONTROLLER_RIGHTS if context.on_controller else BROKER_RIGHTS)[context.api_key]
        if isinstance(right, Operation) and not context.may_cluster(right):
            return refuse(context, request)
    return audit.follow(context, request, handler(context, request))


def refuse(context: Context, request: Message) -> Message:
    """The cluster's refusal, in the form of the request's own response."""
    from ottla.broker.api.refusals import refusal

    error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return refusal(request, error, context.api_version)


def asker_of(services: Services, connection: ClientConnection, api_key: int) -> Asker | None:
    """Of a request of the data plane, which has no `Context`. None where everybody may do everything."""
    authorizer = services.authorizer
    if authorizer is None:
        return None
    return Asker(authorizer, services.audit, principal=connection.principal, host=connection.host, api_key=api_key)


class Asker:
    """Whoever asks for something by one request. Every right that a client asks for is given or denied here."""

    __slots__ = ("_api_key", "_audit", "_authorizer", "_host", "_on_controller", "_principal")

    def __init__(
        self,
        authorizer: Authorizer,
        audit: AuditLog,
        *,
        principal: str,
        host: str,
        api_key: int,
        on_controller: bool = False,
    ) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._principal = principal
        self._host = host
        self._api_key = api_key
        self._on_controller = on_controller

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        # What the table of rights does not know of is not given: else it would not be what is asked.
        if may_be_asked(self._api_key, operation, kind, on_controller=self._on_controller) and self._authorizer.may(
            self._principal, self._host, operation, kind, name
        ):
            return True
        self._audit.denied(self._principal, self._host, operation, kind, name)
        return False

    def may_topic(self, services: Services, operation: Operation, key: TopicKey) -> bool:
        """`key` is the topic's name or its id. Of an id that nobody knows there is nothing to keep secret."""
        if isinstance(key, str):
            return self.may(operation, ResourceType.TOPIC, key)
        topic = services.image.topic_by_id(key)
        return topic is None or self.may(operation, ResourceType.TOPIC, topic.name)
