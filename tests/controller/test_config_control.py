"""Configs of topics, brokers, client metrics and groups."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.images import (
    DEFAULT_BROKER,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
)
from ottla.wire.messages import alter_configs_request as legacy
from ottla.wire.messages import incremental_alter_configs_request as incremental
from tests.controller.acting import Acting

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def acting() -> Acting:
    acting = Acting()
    acting.unfenced(1, 2)
    acting.create("orders")
    return acting


def alter(
    acting: Acting, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (response,) = acting.ask(lambda c, now: c.incremental_alter_configs(request, now)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response.error_code, response.error_message


def replace_all(acting: Acting, kind: int, name: str, values: dict[str, str | None]) -> int:
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[legacy.AlterableConfig(name=key, value=value) for key, value in values.items()],
            )
        ]
    )
    (response,) = acting.ask(lambda c, now: c.alter_configs(request, now)).responses
    return response.error_code


def test_configs_are_set_deleted_extended_and_shortened(acting: Acting) -> None:
    assert alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "7")) == (0, None)
    assert acting.image.topic_config("orders") == {"retention.ms": "5", "segment.ms": "7"}
    assert alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", DELETE, None)) == (0, None)
    assert acting.image.topic_config("orders") == {"segment.ms": "7"}
    assert alter(acting, RESOURCE_TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert acting.image.topic_config("orders")["cleanup.policy"] == "delete,compact", "the default is where it starts"
    assert alter(acting, RESOURCE_TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert acting.image.topic_config("orders")["cleanup.policy"] == "compact"


def test_what_stays_the_same_makes_no_record_but_a_broker_reloads(acting: Acting) -> None:
    alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "5"))
    before = len(acting.log)
    alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None))
    assert len(acting.log) == before
    for _ in range(2):
        assert alter(acting, RESOURCE_BROKER, "1", ("log.cleaner.threads", SET, "2")) == (0, None)
    assert len(acting.log) == before + 2


def test_validate_only_changes_nothing(acting: Acting) -> None:
    before = len(acting.log)
    assert alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "5"), validate_only=True) == (0, None)
    assert alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True)[0] == 40
    assert len(acting.log) == before


def test_the_older_api_replaces_everything(acting: Acting) -> None:
    alter(acting, RESOURCE_TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))
    assert replace_all(acting, RESOURCE_TOPIC, "orders", {"retention.ms": "6"}) == 0
    assert acting.image.topic_config("orders") == {"retention.ms": "6"}
    assert replace_all(acting, RESOURCE_TOPIC, "orders", {"retention.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace_all(acting, RESOURCE_TOPIC, "orders", {"retention.ms": "-9"}) == ErrorCode.INVALID_CONFIG
    assert acting.image.topic_config("orders") == {"retention.ms": "6"}
    assert replace_all(acting, RESOURCE_TOPIC, "orders", {}) == 0
    assert ConfigResource(RESOURCE_TOPIC, "orders") not in acting.image.configs


@pytest.mark.parametrize(
    ("kind", "name", "key", "operation", "value", "code"),
    [
        (RESOURCE_TOPIC, "orders", "retention.ms", SET, "soon", ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "orders", "no.such.key", SET, "1", ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "orders", "retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
        (RESOURCE_TOPIC, "orders", "retention.ms", 9, "1", ErrorCode.INVALID_REQUEST),
        (RESOURCE_TOPIC, "orders", "retention.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "payments", "retention.ms", SET, "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (RESOURCE_TOPIC, "a/b", "retention.ms", SET, "1", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RESOURCE_TOPIC, "", "retention.ms", SET, "1", ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "x", "log.cleaner.threads", SET, "2", ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "9", "log.cleaner.threads", SET, "2", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (RESOURCE_BROKER, "1", "node.id", SET, "2", ErrorCode.INVALID_REQUEST),
        (RESOURCE_CLIENT_METRICS, "", "interval.ms", SET, "1000", ErrorCode.INVALID_REQUEST),
        (RESOURCE_CLIENT_METRICS, "m", "interval.ms", SET, "1", ErrorCode.INVALID_REQUEST),
        (RESOURCE_GROUP, "", "consumer.session.timeout.ms", SET, "45000", ErrorCode.INVALID_REQUEST),
        (RESOURCE_GROUP, "g", "consumer.session.timeout.ms", SET, "1", ErrorCode.INVALID_CONFIG),
        (RESOURCE_BROKER_LOGGER, "1", "x", SET, "DEBUG", ErrorCode.INVALID_REQUEST),
        (0, "x", "y", SET, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_cannot_be(
    acting: Acting, kind: int, name: str, key: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    before = len(acting.log)
    found, message = alter(acting, kind, name, (key, operation, value))
    assert ErrorCode(found) is code, message
    assert message
    assert len(acting.log) == before


def test_every_kind_of_resource(acting: Acting) -> None:
    assert alter(acting, RESOURCE_BROKER, "", ("log.cleaner.threads", SET, "2")) == (0, None)
    assert alter(acting, RESOURCE_BROKER, "2", ("log.cleaner.threads", SET, "3")) == (0, None)
    assert alter(acting, RESOURCE_CLIENT_METRICS, "m", ("interval.ms", SET, "1000")) == (0, None)
    assert alter(acting, RESOURCE_GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    assert acting.image.config(DEFAULT_BROKER) == {"log.cleaner.threads": "2"}
    assert acting.image.config(ConfigResource(RESOURCE_GROUP, "g")) == {"consumer.session.timeout.ms": "50000"}


def test_a_resource_or_a_key_named_twice(acting: Acting) -> None:
    resource = incremental.AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name="orders", configs=[])
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    (response,) = acting.ask(lambda c, now: c.incremental_alter_configs(request, now)).responses
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert alter(acting, RESOURCE_TOPIC, "orders", ("segment.ms", SET, "1"), ("segment.ms", SET, "2"))[0] == 42


def test_the_default_of_all_brokers_reaches_new_topics(acting: Acting) -> None:
    alter(acting, RESOURCE_BROKER, "", ("message.max.bytes", SET, "2000000"))
    result = acting.create("big")
    assert result.configs is not None
    assert ("max.message.bytes", "2000000", 3) in [(c.name, c.value, c.config_source) for c in result.configs]
    alter(acting, RESOURCE_BROKER, "", ("message.max.bytes", DELETE, None))
    result = acting.create("small")
    assert ("max.message.bytes", "1048588", 5) in [(c.name, c.value, c.config_source) for c in result.configs or []]


def test_unclean_election_happens_only_where_it_is_allowed(acting: Acting) -> None:
    for name in ("clean", "unclean"):
        acting.create(name, -1, -1, assignment={0: [1, 2]})
    alter(acting, RESOURCE_TOPIC, "unclean", ("unclean.leader.election.enable", SET, "true"))
    acting.heartbeat(2, fence=True)
    assert acting.partition("clean").isr == (1,)
    acting.heartbeat(1, fence=True)
    acting.heartbeat(2)
    clean, unclean = acting.partition("clean"), acting.partition("unclean")
    assert (clean.leader, clean.isr, clean.leader_recovery_state) == (-1, (1,), 0)
    assert (unclean.leader, unclean.isr, unclean.leader_recovery_state) == (2, (2,), 1)
