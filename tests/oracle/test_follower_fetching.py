"""Apache Kafka's consumer with `client.rack`: it reads from the follower in its rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.behaviour.client import batch
from tests.cluster.harness import eventually
from tests.cluster.layout import LaidOut, NodePlan, laid_out
from tests.cluster.seed_helpers import at, create, metric, write
from tests.oracle.apache_kafka import KafkaTools
from tests.oracle.conftest import At

pytestmark = pytest.mark.oracle

RACKS = {1: "east", 2: "west", 3: "north"}
SETTINGS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaidOut]:
    plans = [NodePlan(node_id=each, settings={"broker.rack": rack}) for each, rack in RACKS.items()]
    with laid_out(tmp_path_factory.mktemp("racks"), plans, SETTINGS) as found:
        yield found


def consume(at_cluster: At, count: int, timeout_ms: int) -> list[str]:
    place = ["--topic", "t", "--partition", "0", "--offset", "earliest", "--command-property", "client.rack=west"]
    limits = ["--max-messages", str(count), "--timeout-ms", str(timeout_ms)]
    return at_cluster.run("kafka-console-consumer", *place, *limits).out.splitlines()


def test_java_reads_from_the_follower_in_its_rack_up_to_the_high_watermark(cluster: LaidOut, tools: KafkaTools) -> None:
    # Not by the node that will stand still: the tool would wait for it.
    at_cluster = At(tools, "{}:{}".format(*cluster.nodes[1].address))
    topic = create(cluster, "t", (1, 2, 3), min_insync_replicas="3")
    values = [f"{number} " + "x" * 1000 for number in range(100)]
    for value in values:
        write(cluster, topic, value.encode())
    assert consume(at_cluster, 100, 20_000) == values
    out = {each: metric(cluster, each, "kafka_server_brokertopicmetrics_bytesout_total", topic="t") for each in RACKS}
    assert out[2] >= 100_000
    assert out[1] + out[3] <= 0.1 * out[2]
    # The follower has one more, the other follower has not: it is not committed, and not shown.
    cluster.pause(3)
    before = cluster.bytes_of(2, "t")
    with at(cluster, 1) as client:
        for late in (b"first", b"second"):
            assert client.produce(topic, batch(late), acks=1).error_code == 0
    eventually(lambda: cluster.bytes_of(2, "t") >= before + 2 * len(batch(b"first")) or None, "the follower's copy")
    assert consume(at_cluster, 102, 4000) == values
    cluster.resume(3)
    assert consume(at_cluster, 102, 20_000) == [*values, "first", "second"]
