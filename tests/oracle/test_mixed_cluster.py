"""Two kinds of server in one cluster: an Ottla broker under Apache Kafka's controller, and Apache Kafka's under ours.

The protocols between nodes are Kafka's own, so a node need not know what its peer is made of: the newcomer registers,
gets partitions, copies what is there, leads, and is copied from, while the metadata comes from the other kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .apache_kafka import KafkaTools
from .clusters import Cluster, ClusterNode, KafkaCluster, OttlaCluster
from .conftest import At

pytestmark = pytest.mark.oracle

SHORT = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
# What a broker cannot do, the cluster must not promise (KIP-584): share and streams groups are not ours.
MODEST = ("share.version=0", "streams.version=0")


class ModestKafka(KafkaCluster):
    """Formatted at the levels that both kinds speak."""

    def format_node(self, node: ClusterNode, *options: str) -> None:
        features = [part for level in MODEST for part in ("--feature", level)]
        super().format_node(node, *options, *features)


@pytest.fixture(
    params=["Ottla joins Apache Kafka", "Apache Kafka joins Ottla"], ids=lambda name: name.replace(" ", "-")
)
def mixed(request: pytest.FixtureRequest, tools: KafkaTools, tmp_path: Path) -> Iterator[Cluster]:
    """Node 1 is controller and broker of one kind, node 2 a broker of the other."""
    ottla = OttlaCluster(tmp_path / "o", size=int(request.param.endswith("Ottla")), overrides=SHORT)
    kafka = ModestKafka(tmp_path / "k", tools, size=1 - len(ottla.nodes), overrides=SHORT, heap=("-Xmx512M",))
    home, guest = (ottla, kafka) if ottla.nodes else (kafka, ottla)
    try:
        home.start()
        home.newcomer(tmp_path / "guest", roles="broker", kind=guest).wait_ready()
        until(lambda: len(home.metadata().brokers) == 2, "both brokers to be known")
        yield home
    finally:
        home.end()


def until(holds: Callable[[], bool], what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.05)


def in_sync(cluster: Cluster, topic: str) -> bool:
    (found,) = cluster.metadata(topic).topics
    return [sorted(partition.isr_nodes) for partition in found.partitions] == [[1, 2]]


def type_in(at: At, topic: str, lines: list[str]) -> None:
    at("kafka-console-producer", "--topic", topic, "--command-property", "acks=all", stdin="\n".join(lines) + "\n")


def read_back(at: At, topic: str, count: int) -> list[str]:
    place = ["--topic", topic, "--partition", "0", "--offset", "earliest"]
    return at("kafka-console-consumer", *place, "--max-messages", str(count), "--timeout-ms", "15000").out.splitlines()


def write_on_both(mixed: Cluster, at: At, topic: str, assignment: str, lines: list[str]) -> None:
    at("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment)
    until(lambda: in_sync(mixed, topic), "both to be in sync")
    type_in(at, topic, lines)
    assert read_back(at, topic, len(lines)) == lines
    segments = [mixed.nodes[node].data / f"{topic}-0" / f"{0:020}.log" for node in (1, 2)]
    stored = [segment.read_bytes() for segment in segments]
    assert stored[0] == stored[1] != b""


def test_each_leads_the_other_and_stands_in_for_it(mixed: Cluster, tools: KafkaTools) -> None:
    at = At(tools, mixed.bootstrap)
    lines = [f"line {number}" for number in range(300)]
    for leader, follower in ((1, 2), (2, 1)):
        write_on_both(mixed, at, f"led-by-{leader}", f"{leader}:{follower}", lines)

    # The guest dies; the other kind serves what the guest led, and the guest catches up when it is back.
    guest = mixed.nodes[2]
    command = guest.command
    guest.kill()
    until(lambda: mixed.leader_of("led-by-2").node_id == 1, "the other kind to lead")
    type_in(at, "led-by-2", ["without the guest"])
    guest.spawn(*command)
    guest.wait_ready()
    until(lambda: in_sync(mixed, "led-by-2"), "the guest to catch up")
    at("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    until(lambda: mixed.leader_of("led-by-2").node_id == 2, "the guest to lead again")
    type_in(at, "led-by-2", ["and with it"])
    assert read_back(at, "led-by-2", 302) == [*lines, "without the guest", "and with it"]

    guest.terminate()
    assert guest.wait() in (0, 143)  # A JVM that is asked to end says which signal asked.
