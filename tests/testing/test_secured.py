"""Nodes of tests to which clients come by TLS and SASL."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

import ottla.testing
from ottla.errors import StartupError

USERS = {"ann": "secret", "bob": "hush"}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def write(config: Mapping[str, str], topic: str = "orders") -> Any:
    """The error with which a record came back, or None; the topic is there already."""
    from confluent_kafka import Producer

    told: list[Any] = []
    failed: list[Any] = []
    producer = Producer({**config, "error_cb": failed.append, "enable.metrics.push": False})
    producer.produce(topic, b"three apples", on_delivery=lambda error, _: told.append(error))
    for _ in range(600):  # At most a minute.
        producer.poll(0.1)
        if told:
            return told[0]
        if failed and failed[0].name() == "_AUTHENTICATION":
            producer.purge()
            return failed[0]
    raise AssertionError(failed)


@pytest.mark.parametrize(
    ("security", "mechanism"),
    [
        ("SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
    ],
)
def test_clients_come_in_as_asked(security: str, mechanism: str) -> None:
    users = USERS if security.startswith("SASL") else None
    with ottla.testing.node(security=security, users=users) as node:
        node.create_topic("orders")
        config = node.client_config("bob" if users else None, mechanism=mechanism)
        assert config["security.protocol"] == security
        assert write(config) is None
        assert [record.value for record in node.records("orders")] == [b"three apples"]


def test_a_wrong_password_is_refused() -> None:
    with ottla.testing.node(security="SASL_PLAINTEXT") as node:
        node.create_topic("orders")
        config = node.client_config()
        assert write(config) is None
        refused = write({**config, "sasl.password": "guess"})
        assert refused.name() == "_AUTHENTICATION"


@pytest.mark.slow
def test_a_certificate_says_who_it_is() -> None:
    settings = {"ssl.client.auth": "required", "authorizer.class.name": AUTHORIZER, "super.users": "User:CN=ann"}
    with ottla.testing.cluster(3, settings, security="SSL") as cluster:
        cluster.create_topic("orders")
        assert write(cluster.client_config("ann")) is None
        assert write(cluster.client_config("bob")).name() == "TOPIC_AUTHORIZATION_FAILED"
        cluster.kill(2)
        cluster.restart(2)
        assert write(cluster.client_config("ann")) is None


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(StartupError, match="security='TLS' is none of PLAINTEXT, SSL"):
        ottla.testing.node(security="TLS")
    with pytest.raises(StartupError, match="users log in by SASL"):
        ottla.testing.node(users=USERS)
    with pytest.raises(StartupError, match="'a b' cannot be"):
        ottla.testing.node(security="SASL_SSL", users={"a b": "x"})


def test_nobody_is_known_by_another_name() -> None:
    with ottla.testing.node(security="SASL_PLAINTEXT", users=USERS) as node:
        with pytest.raises(ValueError, match="There is no user eve: there are ann, bob"):
            node.client_config("eve")
        with pytest.raises(ValueError, match="GSSAPI is none of PLAIN"):
            node.client_config("ann", mechanism="GSSAPI")
    with ottla.testing.node() as node:
        assert node.client_config() == {"bootstrap.servers": node.bootstrap}
        with pytest.raises(ValueError, match="Nobody logs in here"):
            node.client_config("ann")


def test_without_cryptography_there_is_no_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(StartupError, match="pip install cryptography"), ottla.testing.node(security="SSL"):
        pass
