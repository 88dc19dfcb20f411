"""Three controllers and two brokers, five processes: what a tool asks of a broker, and what it asks of a controller."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from .apache_kafka import KafkaTools
from .clusters import OttlaCluster
from .conftest import At

pytestmark = pytest.mark.oracle

SHORT = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


@pytest.fixture
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    directory = tmp_path_factory.mktemp("roles")
    cluster = OttlaCluster(directory, roles="controller", overrides=SHORT)
    try:
        cluster.format()
        cluster.spawn()
        for number in (4, 5):
            cluster.newcomer(directory / f"broker-{number}", roles="broker")
        for number in (4, 5):
            cluster.nodes[number].wait_ready()
        yield cluster
    finally:
        cluster.end()


def test_controllers_and_brokers_apart(controllers: OttlaCluster, tools: KafkaTools) -> None:
    at = At(tools, ",".join(f"127.0.0.1:{controllers.nodes[number].port}" for number in (4, 5)))
    deadline = time.monotonic() + 60
    while len(at("kafka-cluster", "list-endpoints").lines) < 3:  # A headline, and two that are unfenced.
        assert time.monotonic() < deadline, "the brokers were not unfenced"
        time.sleep(0.05)
    at("kafka-topics", "--create", "--topic", "apart", "--partitions", "4", "--replication-factor", "2")
    at("kafka-console-producer", "--topic", "apart", "--command-property", "acks=all", stdin="one\ntwo\n")
    rows = at("kafka-metadata-quorum", "describe", "--replication").lines[1:]
    status = {row.split()[0]: row.split()[-1] for row in rows}
    assert sorted(status) == ["1", "2", "3", "4", "5"]
    assert (status["4"], status["5"]) == ("Observer", "Observer")
    (leader,) = (node for node, role in status.items() if role == "Leader")

    # A controller answers for itself (KIP-919), on its own listener.
    one = ["--bootstrap-controller", f"127.0.0.1:{controllers.nodes[1].controller_port}"]
    assert (
        f"LeaderId:               {leader}\n" in tools.check("kafka-metadata-quorum", *one, "describe", "--status").out
    )
    listed = tools.check("kafka-cluster", "list-endpoints", *one).lines[1:]
    assert [(row.split()[0], row.split()[-1]) for row in listed] == [(node, "controller") for node in "123"]
    assert "metadata.version" in tools.check("kafka-features", *one, "describe").out
    for node in ("1", "2", "3"):
        said = controllers.nodes[int(node)].printed()
        assert re.match(rf"ready: CONTROLLER://127\.0\.0\.1:{controllers.nodes[int(node)].controller_port}\n", said)

    # The active controller dies: the brokers turn to the next, and the change that waits for it is made.
    controllers.nodes[int(leader)].kill()
    at("kafka-topics", "--create", "--topic", "later", "--replication-factor", "2")
    assert at("kafka-get-offsets", "--topic", "apart").lines
    assert sorted(at("kafka-topics", "--list").lines) == ["apart", "later"]
