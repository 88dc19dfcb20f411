"""What is asked before a handler runs, and on the active controller before it decides."""

from __future__ import annotations

import logging
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.access import admin_rights
from ottla.broker.access.audit import AuditLog
from ottla.broker.access.authorisation import authorizer_of, call, first_authorizer
from ottla.broker.api import consumer_group_heartbeat
from ottla.broker.api.consumer_group_heartbeat import GROUP_VERSION
from ottla.broker.api.init_producer_id import _forbidden as forbidden
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.promise import Promise, kept
from ottla.broker.services import Services
from ottla.config.node import NodeConfig
from ottla.coordinator.consumer import Sender
from ottla.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from ottla.metadata.images import EMPTY_IMAGE
from ottla.model import ANONYMOUS, Uuid
from ottla.runtime.clock import SystemClock
from ottla.security.authorizer import Authorizer
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from tests.seams.test_node_in_memory import CONFIG

BUILT_IN = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
HOST = "10.0.0.7"
WHOLE_CLUSTER = [
    (on_controller, key, right)
    for on_controller, rights in ((False, BROKER_RIGHTS), (True, CONTROLLER_RIGHTS))
    for key, right in rights.items()
    if isinstance(right, Operation)
]


def allow(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, Permission.ALLOW)


def context(authorizer: Authorizer | None, api_key: int, version: int = 0, *, on_controller: bool = True) -> Context:
    audit = AuditLog(SystemClock())
    services = cast(Services, SimpleNamespace(authorizer=authorizer, image=EMPTY_IMAGE, quotas=None, audit=audit))
    connection = cast(ClientConnection, SimpleNamespace(peer=(HOST, 1234), host=HOST))
    return Context(services, connection, "PLAINTEXT", on_controller, api_key, version, "test")


def served(context: Context, request: Message) -> Message:
    assert request.API_KEY is not None
    return APIS[request.API_KEY].response()


@pytest.mark.parametrize(("on_controller", "key", "right"), WHOLE_CLUSTER)
def test_a_right_to_the_cluster_is_asked_before_the_handler_runs(
    on_controller: bool, key: int, right: Operation
) -> None:
    api = APIS[key]
    others = [
        allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.CREATE, Operation.IDEMPOTENT_WRITE)
    ]
    for version in range(api.first_version, api.last_version + 1):
        asked = context(Authorizer(others), key, version, on_controller=on_controller)
        refused = call(asked, _must_not_run, api.request())
        assert isinstance(refused, api.response)
        assert getattr(refused, "error_code", CLUSTER_FAILED) in (CLUSTER_FAILED, 0)
        refused.encode(version)
        authorizer = Authorizer([allow(right, ResourceType.CLUSTER, CLUSTER_NAME)])
        asked = context(authorizer, key, version, on_controller=on_controller)
        answer = call(asked, served, api.request())
        assert isinstance(answer, api.response)
        assert not getattr(answer, "error_code", 0)


CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _must_not_run(context: Context, request: Message) -> Message:
    raise AssertionError("the handler ran without the right")


def test_without_an_authorizer_nobody_is_asked() -> None:
    anybody = context(None, 30)
    assert isinstance(call(anybody, served, APIS[30].request()), APIS[30].response)
    assert anybody.may(Operation.ALTER, ResourceType.TOPIC, "any")
    assert anybody.may_for_some(Operation.WRITE, ResourceType.TOPIC)


def test_what_another_right_makes_up_for_is_no_denial(caplog: pytest.LogCaptureFixture) -> None:
    """An idempotent producer need not have the cluster's right, if it may write to any topic."""
    caplog.set_level("INFO", "ottla.audit")
    request = InitProducerIdRequest(transactional_id=None)
    may_write = Authorizer([allow(Operation.WRITE, ResourceType.TOPIC, "t")])
    assert forbidden(context(may_write, 22, 5, on_controller=False), request) is None
    assert caplog.messages == []
    assert forbidden(context(Authorizer(), 22, 5, on_controller=False), request) is CLUSTER_FAILED
    (line,) = caplog.messages
    assert "operation=IDEMPOTENT_WRITE resource=CLUSTER" in line


def test_the_controller_sees_only_what_its_client_may_do() -> None:
    authorizer = Authorizer([allow(Operation.CREATE, ResourceType.TOPIC, "ours")])
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in ("ours", "theirs", "twice", "twice")])
    allowed, refused = admin_rights.take_forbidden(context(authorizer, 19), request)
    assert isinstance(allowed, CreateTopicsRequest)
    # What nobody could ask for is the controller's to refuse.
    assert [topic.name for topic in allowed.topics] == ["ours", "twice", "twice"]
    assert len(request.topics) == 4, "it may be tried again"
    assert refused is not None
    response = admin_rights.add(CreateTopicsResponse(), refused)
    assert isinstance(response, CreateTopicsResponse)
    told = [(topic.name, topic.error_code) for topic in response.topics]
    assert told == [("theirs", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


def test_a_topic_that_only_the_controller_knows_is_not_deleted_unasked() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=Uuid(bytes(range(16))))])
    allowed, refused = admin_rights.take_forbidden(context(Authorizer(), 20, 6), request)
    assert isinstance(allowed, DeleteTopicsRequest)
    assert allowed.topics == []
    assert refused is not None


def test_before_the_entries_are_known_only_super_users_may() -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "authorizer.class.name": BUILT_IN,
        "super.users": "User:ada; User:bob ;",
        "allow.everyone.if.no.acl.found": "true",
    }
    config = NodeConfig(properties)
    assert config.super_users == {"User:ada", "User:bob"}
    assert not list(config.warnings())
    asked = (HOST, Operation.READ, ResourceType.TOPIC, "any")
    first = first_authorizer(config)
    assert first is not None
    assert first.may("User:bob", *asked)
    assert not first.may(ANONYMOUS, *asked)
    assert authorizer_of(config, EMPTY_IMAGE).may(ANONYMOUS, *asked)
    without = NodeConfig({**properties, "authorizer.class.name": ""})
    assert first_authorizer(without) is None
    assert len(list(without.warnings())) == 2


def test_topics_that_an_expression_must_not_find_are_no_denials(caplog: pytest.LogCaptureFixture) -> None:
    """A member of a group subscribes by a regular expression, and may describe one topic of two."""
    caplog.set_level(logging.INFO, "ottla.audit")
    senders: list[Sender] = []

    def write(group_id: str, operation: Any) -> Promise[ConsumerGroupHeartbeatResponse]:
        senders.append(operation.args[1])
        return kept(ConsumerGroupHeartbeatResponse())

    rights = [
        allow(Operation.READ, ResourceType.GROUP, "readers"),
        allow(Operation.DESCRIBE, ResourceType.TOPIC, "shown"),
    ]
    asked = context(Authorizer(rights), 68, 1, on_controller=False)
    services = cast(Any, asked.services)
    services.image = SimpleNamespace(
        features=SimpleNamespace(levels={GROUP_VERSION: 1}), topics=SimpleNamespace(by_name={})
    )
    services.config = CONFIG
    services.group_cap = SimpleNamespace(check=lambda group_id: None)
    services.groups = SimpleNamespace(write=write)
    services.random = Random(1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="readers", member_id="m", rebalance_timeout_ms=1, subscribed_topic_regex=".*", topic_partitions=[]
    )
    consumer_group_heartbeat.handle(asked, request)
    (sender,) = senders
    assert [sender.may_describe(topic) for topic in ("shown", "hidden")] == [True, False]
    assert not caplog.messages
