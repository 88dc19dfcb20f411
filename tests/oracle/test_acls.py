"""kafka-acls gives rights in a cluster of three and takes them, and producers and consumers feel it.

Everybody is `User:ANONYMOUS`, the brokers too. What no entry speaks of is open to all, so that the cluster runs; a
topic or a group that is somebody's closes to everybody else. One of the nodes is the controller: before controllers
know the entries they let nobody vote but super users, in Kafka too. With OTTLA_ORACLE_TARGET=apache the cluster is
Kafka's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.wire_client import WireClient

from .apache_kafka import KafkaTools
from .clusters import Cluster, KafkaCluster, OttlaCluster
from .conftest import At
from .test_cluster_tools import until

pytestmark = pytest.mark.oracle

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
US = ("--allow-principal", "User:ANONYMOUS")
ALICE = ("--allow-principal", "User:alice")


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("guarded")
    running: Cluster
    if os.environ.get("OTTLA_ORACLE_TARGET") == "apache":
        running = KafkaCluster(directory, tools, size=1, overrides=SETTINGS, heap=("-Xmx512M",))
    else:
        running = OttlaCluster(directory, size=1, overrides=SETTINGS)
    try:
        running.start()
        brokers = [running.newcomer(tmp_path_factory.mktemp("broker"), roles="broker") for _ in range(2)]
        for broker in brokers:
            broker.wait_ready()
        until(lambda: len(running.metadata().brokers) == 3, "all brokers to be there")
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def at(tools: KafkaTools, cluster: Cluster) -> At:
    everywhere = At(tools, cluster.bootstrap)
    # Once an entry speaks of the cluster it is closed to all others, its brokers among them.
    operations = ("ClusterAction", "Alter", "Describe", "IdempotentWrite")
    everywhere(
        "kafka-acls", "--add", *US, *(part for each in operations for part in ("--operation", each)), "--cluster"
    )
    return everywhere


def listed(at: At, *what: str) -> str:
    return at("kafka-acls", "--list", *what).out


def produce(at: At, topic: str, *properties: str) -> str:
    settings = [part for each in ("max.block.ms=5000", *properties) for part in ("--command-property", each)]
    return at.run("kafka-console-producer", "--topic", topic, *settings, stdin="one\n").printed


def consume(at: At, topic: str, group: str) -> str:
    limits = ["--max-messages", "1", "--timeout-ms", "10000"]
    return at.run("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", *limits).printed


def test_a_producer_and_a_consumer_are_let_in_and_shut_out(at: At, topic: str) -> None:
    group = f"{topic}-group"
    at("kafka-topics", "--create", "--topic", topic, "--replication-factor", "3")
    at("kafka-acls", "--add", *ALICE, "--operation", "All", "--topic", topic, "--group", group)
    until(lambda: "TopicAuthorizationException" in produce(at, topic), "the producer to be refused")
    assert "TopicAuthorizationException" in consume(at, topic, f"{topic}-other")
    added = at("kafka-acls", "--add", *US, "--producer", "--topic", topic, "--idempotent").out
    for operation in ("WRITE", "CREATE", "DESCRIBE", "IDEMPOTENT_WRITE"):
        assert f"operation={operation}, permissionType=ALLOW" in added
    until(lambda: "Exception" not in produce(at, topic), "the producer to be let in")
    assert "Exception" not in produce(at, topic, "acks=all", "enable.idempotence=true")
    assert "AuthorizationException" in consume(at, topic, group)
    at("kafka-acls", "--add", *US, "--consumer", "--topic", topic, "--group", group)
    until(lambda: "Processed a total of 1 messages" in consume(at, topic, group), "the consumer to be let in")
    at("kafka-acls", "--remove", "--force", *US, "--consumer", "--topic", topic, "--group", group)
    until(lambda: "AuthorizationException" in consume(at, topic, group), "the consumer to be shut out")


def test_entries_are_listed_and_removed(at: At, topic: str) -> None:
    at("kafka-acls", "--add", *ALICE, "--operation", "Read", "--topic", topic, "--resource-pattern-type", "prefixed")
    at(
        "kafka-acls",
        "--add",
        "--deny-principal",
        "User:bob",
        "--deny-host",
        "10.0.0.9",
        "--operation",
        "Write",
        "--topic",
        topic,
    )
    until(lambda: "User:bob" in listed(at, "--topic", topic), "the entry to be listed")
    literal = listed(at, "--topic", topic)
    assert f"ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)" in literal
    assert "(principal=User:bob, host=10.0.0.9, operation=WRITE, permissionType=DENY)" in literal
    assert "PREFIXED" not in literal
    matching = listed(at, "--topic", f"{topic}-and-more", "--resource-pattern-type", "match")
    assert f"ResourcePattern(resourceType=TOPIC, name={topic}, patternType=PREFIXED)" in matching
    assert "User:bob" not in matching
    # It covers every topic that begins so, and no other.
    refused = at.run("kafka-topics", "--create", "--topic", f"{topic}-and-more").check(1)
    assert "TopicAuthorizationException" in refused.printed
    at("kafka-topics", "--create", "--topic", f"another-{topic}")
    at("kafka-acls", "--remove", "--force", "--topic", topic, "--resource-pattern-type", "any")
    until(lambda: f"name={topic}," not in listed(at), "the entries to be gone")


def test_the_controller_judges_the_client_and_not_the_broker(at: At, cluster: Cluster, topic: str) -> None:
    """It is the client's address that counts, not that of the broker which hands its request on."""
    first, second = f"{topic}-created", f"{topic}-used"
    for name in (first, second):
        here = ("--allow-host", "127.0.0.2", "--operation", "Create", "--operation", "Describe")
        at("kafka-acls", "--add", *US, *here, "--topic", name)
        at("kafka-acls", "--add", *US, "--allow-host", "127.0.0.1", "--operation", "Describe", "--topic", name)
    broker = ("127.0.0.1", cluster.nodes[2].port)
    wanted = CreatableTopic(name=first, num_partitions=1, replication_factor=1)
    with WireClient(broker, host="127.0.0.1") as far, WireClient(broker, host="127.0.0.2") as near:
        for client, code in ((far, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (near, ErrorCode.NONE)):
            created = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse)
            assert [each.error_code for each in created.topics] == [code]
        until(lambda: described(far, second) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the use to be refused")
        until(lambda: described(near, second) == ErrorCode.NONE, "the topic to be created on first use")


def described(client: WireClient, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    (answer,) = client.call(request, MetadataResponse).topics
    return answer.error_code
