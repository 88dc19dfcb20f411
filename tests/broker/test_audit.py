"""The audit log: who was denied what, who changed what, one line each, and no secret in any."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.access import audit
from ottla.broker.access.audit import LINES_PER_SECOND_MAX, REPEAT_S, SEEN_MAX, AuditLog
from ottla.broker.connection import ClientConnection
from ottla.broker.context import Context
from ottla.broker.services import Services
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import (
    alter_client_quotas_request,
    alter_replica_log_dirs_request,
    alter_user_scram_credentials_request,
    create_acls_request,
    create_topics_request,
    create_topics_response,
    delete_groups_request,
    delete_topics_request,
    incremental_alter_configs_request,
)

READ, TOPIC = Operation.READ, ResourceType.TOPIC


class StoppedClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        raise AssertionError("denials are counted on the monotonic clock")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.audit")
    return caplog


def context(api_key: int, *, on_controller: bool = True) -> Context:
    connection = cast(ClientConnection, SimpleNamespace(peer=("10.0.0.7", 1234), host="10.0.0.7"))
    services = cast(Services, SimpleNamespace(authorizer=None, quotas=None))
    return Context(services, connection, "PLAINTEXT", on_controller, api_key, 1, "test", "User:ada")


def told(lines: pytest.LogCaptureFixture, request: Message, response: Message | None = None) -> str:
    assert request.API_KEY is not None
    lines.clear()
    answer = APIS[request.API_KEY].response() if response is None else response
    assert audit.follow(context(request.API_KEY), request, answer) is answer
    (message,) = lines.messages
    return message


# Denials.


def test_a_denial_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    AuditLog(StoppedClock()).denied("User:eve", "10.0.0.66", READ, TOPIC, "secret\nplans")
    assert lines.messages == [
        'denied principal="User:eve" host="10.0.0.66" operation=READ resource=TOPIC name="secret\\nplans"'
    ]


def test_the_same_denial_is_told_once_a_minute_with_how_often_it_was_repeated(
    lines: pytest.LogCaptureFixture,
) -> None:
    clock = StoppedClock()
    log = AuditLog(clock)
    for _ in range(500):
        log.denied("User:eve", "h", READ, TOPIC, "t")
    assert len(lines.messages) == 1
    clock.now_s += REPEAT_S
    log.denied("User:eve", "h", READ, TOPIC, "t")
    assert len(lines.messages) == 2
    assert lines.messages[1].endswith(" repeated=499")


def test_a_flood_of_denials_floods_neither_the_log_nor_the_memory(lines: pytest.LogCaptureFixture) -> None:
    clock = StoppedClock()
    log = AuditLog(clock)
    for number in range(5_000):
        log.denied("User:eve", "h", READ, TOPIC, f"t-{number}")
    assert len(lines.messages) == LINES_PER_SECOND_MAX
    for _ in range(30):
        clock.now_s += 1
        for number in range(200):
            log.denied("User:eve", "h", READ, TOPIC, f"{clock.now_s}-{number}")
    assert "untold=4900" in lines.messages
    assert len(log._seen) <= SEEN_MAX


def test_a_failed_login_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    log = AuditLog(StoppedClock())
    for _ in range(LINES_PER_SECOND_MAX + 5):
        log.login_failed("10.0.0.66", "CLIENTS", "no such user:\n'x'")
    assert lines.messages[0] == 'login failed host="10.0.0.66" listener=CLIENTS reason="no such user:\\n\'x\'"'
    assert len(lines.messages) == LINES_PER_SECOND_MAX


def test_the_logger_switches_it_off(lines: pytest.LogCaptureFixture) -> None:
    lines.set_level(logging.CRITICAL, "ottla.audit")
    AuditLog(StoppedClock()).denied("User:eve", "h", READ, TOPIC, "t")
    request = delete_groups_request.DeleteGroupsRequest(groups_names=["g"])
    audit.follow(context(42, on_controller=False), request, APIS[42].response())
    assert not lines.messages


# Changes.


def test_a_change_names_who_and_what_and_how_it_ended(lines: pytest.LogCaptureFixture) -> None:
    request = create_topics_request.CreateTopicsRequest(
        topics=[create_topics_request.CreatableTopic(name="new"), create_topics_request.CreatableTopic(name="o\nld")]
    )
    response = create_topics_response.CreateTopicsResponse(
        topics=[
            create_topics_response.CreatableTopicResult(name="new"),
            create_topics_response.CreatableTopicResult(name="old", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
        ]
    )
    assert told(lines, request, response) == (
        'changed principal="User:ada" host="10.0.0.7" api=CreateTopics about=["new", "o\\nld"]'
        " refused: TOPIC_ALREADY_EXISTS=1"
    )
    request.validate_only = True
    assert told(lines, request, response).startswith("asked ")


def test_values_and_credentials_are_not_told(lines: pytest.LogCaptureFixture) -> None:
    configs = incremental_alter_configs_request
    change = configs.AlterableConfig(name="ssl.key.password", config_operation=0, value="hunter2")
    resource = configs.AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    message = told(lines, configs.IncrementalAlterConfigsRequest(resources=[resource]))
    assert "ssl.key.password" in message
    scram = alter_user_scram_credentials_request
    upsertion = scram.ScramCredentialUpsertion(name="bob", mechanism=1, salt=b"salt", salted_password=b"hunter2")
    message += told(lines, scram.AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert "bob" in message
    assert "hunter2" not in message
    assert "salt" not in message


def test_every_kind_of_change_says_what_it_is_about(lines: pytest.LogCaptureFixture) -> None:
    quotas = alter_client_quotas_request
    entity = [quotas.EntityData(entity_type="user", entity_name=None), quotas.EntityData("client-id", "app")]
    request: Message = quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=entity)])
    assert 'about=["user:<default>/client-id:app"]' in told(lines, request)
    acls = create_acls_request
    creation = acls.AclCreation(resource_type=2, resource_name="t", principal="User:bob", host="*")
    assert 'about=["t User:bob"]' in told(lines, acls.CreateAclsRequest(creations=[creation]))
    deletion = delete_topics_request.DeleteTopicsRequest(topic_names=["a"] * 60)
    message = told(lines, deletion)
    assert message.count('"a"') == audit.NAMES_PER_LINE_MAX
    assert " and=10" in message


def test_a_change_that_is_decided_elsewhere_is_told_there(lines: pytest.LogCaptureFixture) -> None:
    request = create_topics_request.CreateTopicsRequest()
    response = APIS[19].response()
    audit.follow(context(19, on_controller=False), request, response)
    late = create_topics_response.CreateTopicsResponse(
        topics=[create_topics_response.CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)]
    )
    audit.follow(context(19), request, late)
    assert not lines.messages
    groups = delete_groups_request.DeleteGroupsRequest(groups_names=["g"])
    audit.follow(context(42, on_controller=False), groups, APIS[42].response())
    assert json.dumps(["g"]) in lines.messages[0]


def test_a_move_to_another_directory_is_told(lines: pytest.LogCaptureFixture) -> None:
    moves = alter_replica_log_dirs_request
    topics = [moves.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in ("orders", "pay")]
    request = moves.AlterReplicaLogDirsRequest(dirs=[moves.AlterReplicaLogDir(path="/disk-2", topics=topics)])
    audit.follow(context(34, on_controller=False), request, APIS[34].response())
    (message,) = lines.messages
    assert 'principal="User:ada"' in message
    assert 'api=AlterReplicaLogDirs about=["/disk-2 orders pay"]' in message
