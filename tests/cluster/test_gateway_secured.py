"""A gateway that asks who its clients are, in front of three nodes with an authorizer: everybody has their own rights,
whichever node has what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.admin.acls import Acl, create_acls
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from tests.cluster.harness import Cluster, eventually, give_gateway

pytestmark = pytest.mark.slow

PARTITIONS = 6
PATIENCE_S = 60.0
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="hers" user_bob="his";'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """Nodes are nobody to each other, and super users; clients of the gateway log in."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    cluster = Cluster(Path(tmp_path_factory.mktemp("cluster")), settings=settings)
    logins = {
        "listener.name.gate.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.gate.plain.sasl.jaas.config": USERS,
    }
    port = give_gateway(cluster, protocol="SASL_PLAINTEXT", more=logins)
    try:
        cluster.start()
        yield cluster, f"127.0.0.1:{port}"
        cluster.stop_all()
    except BaseException:
        print(cluster.complaints())
        raise
    finally:
        cluster.close()
    assert "Traceback" not in cluster.complaints(), cluster.complaints()


def login(bootstrap: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": {"ann": "hers", "bob": "his"}[user],
        "enable.metrics.push": False,
    }


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(PATIENCE_S)


def allow(cluster: Cluster, *acls: tuple[str, str, str, str]) -> None:
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": cluster.bootstrap})) as client:
        create_acls(
            client,
            [
                Acl(resource=resource, name=name, principal=principal, operation=operation)
                for principal, operation, resource, name in acls
            ],
        )


def write(bootstrap: str, user: str, topic: str, *, records: int = 2) -> set[str]:
    """What becomes of records in each partition."""
    told: list[str] = []
    producer = Producer({**login(bootstrap, user), "message.timeout.ms": int(PATIENCE_S * 1000)})
    for number in range(records * PARTITIONS):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: told.append("written" if error is None else error.name()),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert len(told) == records * PARTITIONS
    return set(told)


def test_everybody_has_their_own_rights_on_every_node(gateway: tuple[Cluster, str]) -> None:
    cluster, bootstrap = gateway
    for name in ("hers", "others"):
        make_topic(cluster, name)
    allow(
        cluster,
        ("User:ann", "write", "topic", "hers"),
        ("User:ann", "read", "topic", "hers"),
        ("User:ann", "read", "group", "hers"),
        ("User:ann", "describe", "topic", "others"),
        ("User:bob", "describe", "topic", "hers"),
    )
    eventually(lambda: write(bootstrap, "ann", "hers") == {"written"} or None, "ann may write, on every node")
    assert write(bootstrap, "ann", "others") == {"TOPIC_AUTHORIZATION_FAILED"}
    assert write(bootstrap, "bob", "hers") == {"TOPIC_AUTHORIZATION_FAILED"}


def test_groups_and_fetches_are_judged_too(gateway: tuple[Cluster, str]) -> None:
    cluster, bootstrap = gateway
    make_topic(cluster, "read")
    allow(
        cluster,
        ("User:ann", "write", "topic", "read"),
        ("User:ann", "read", "topic", "read"),
        ("User:ann", "read", "group", "readers"),
        ("User:bob", "read", "group", "readers"),
        ("User:bob", "describe", "topic", "read"),
    )
    eventually(lambda: write(bootstrap, "ann", "read", records=1) == {"written"} or None, "ann may write")

    def outcome(user: str, group: str) -> str:
        """The first record, or the first refusal."""
        consumer = Consumer({**login(bootstrap, user), "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe(["read"])
        try:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            error = message.error()
            return "read" if error is None else str(error.name())
        finally:
            consumer.close()

    assert outcome("ann", "readers") == "read"
    assert outcome("ann", "strangers") == KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED).name()
    assert outcome("bob", "readers") == KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).name()
