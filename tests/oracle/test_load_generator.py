"""The benchmarks' load generator writes what it says it writes: a server that checks every CRC and sequence agrees.

The node is driven harder here than by any tool: requests are pipelined, connections many, sequences patched in place.
"""

from __future__ import annotations

import pytest

from benchmarks import load

from .conftest import At, Node

pytestmark = pytest.mark.oracle


def ends(at: At, topic: str) -> list[int]:
    return [int(line.rsplit(":", 1)[1]) for line in at("kafka-get-offsets", "--topic", topic).lines]


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
@pytest.mark.parametrize(("acks", "idempotent"), [(1, 0), (-1, 0), (-1, 1)])
def test_pipelined_batches_are_all_stored(
    at_node: At, node: Node, topic: str, version: int, acks: int, idempotent: int
) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "3")
    shape = load.Batches.filling(16384, 100)
    settings = {"version": version, "acks": acks, "idempotent": idempotent, "connections": 2, "partitions": 3}
    answer = load.run("produce", port=node.port, topic=topic, max_bytes=2e6, **settings, **shape.options())
    assert answer["errors"] == 0
    # Both connections begin at another partition, so that all three fill evenly.
    stored = ends(at_node, topic)
    assert sum(stored) == answer["requests"] * shape.records
    assert max(stored) - min(stored) <= 4 * shape.records


def test_records_sent_without_acknowledgement_arrive(at_node: At, node: Node, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    answer = load.run("produce", port=node.port, topic=topic, acks=0, records=10, size=100, max_bytes=1e6)
    last = load.run("produce", port=node.port, topic=topic, acks=1, records=1, size=100, max_bytes=1)
    assert last["errors"] == 0
    assert ends(at_node, topic)[0] >= last["requests"]
    consumer = ["--partition", "0", "--offset", "earliest", "--timeout-ms", "10000"]
    wanted = int(answer["requests"]) * 10
    read = at_node("kafka-console-consumer", "--topic", topic, *consumer, "--max-messages", str(wanted))
    assert f"Processed a total of {wanted} messages" in read.err


@pytest.mark.parametrize("version", [12, 13, 15, 16, 17, 18])
@pytest.mark.parametrize("sessions", [0, 1])
def test_a_consumer_reads_every_batch_once(at_node: At, node: Node, topic: str, version: int, sessions: int) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    shape = load.Batches.filling(16384, 1024)
    written = load.run("produce", port=node.port, topic=topic, partitions=2, max_bytes=3e6, **shape.options())
    settings = {"partitions": 2, "passes": 2, "version": version, "sessions": sessions, "partition_max_bytes": 100_000}
    read = load.run("fetch", port=node.port, topic=topic, **settings)
    assert read["bytes"] == 2 * written["bytes"]
    assert read["requests"] >= read["bytes"] / 200_000


def test_every_offset_can_be_asked_for(at_node: At, node: Node, topic: str) -> None:
    """A fetch in the middle of a batch gets the whole batch."""
    at_node("kafka-topics", "--create", "--topic", topic)
    shape = load.Batches.filling(16384, 100)
    load.run("produce", port=node.port, topic=topic, max_bytes=1e6, **shape.options())
    answer = load.run("fetch", port=node.port, topic=topic, lookups=500, partition_max_bytes=1)
    assert answer["requests"] == 500


def test_many_connections_are_served(at_node: At, node: Node, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    crowd = {"connections": 200, "in_flight": 1, "idle": 200}
    answer = load.run("produce", port=node.port, topic=topic, records=1, size=100, max_bytes=1e6, **crowd)
    assert answer["errors"] == 0
    assert ends(at_node, topic) == [answer["requests"]]


def test_a_fixed_rate_is_kept(at_node: At, node: Node, topic: str) -> None:
    at_node("kafka-topics", "--create", "--topic", topic)
    answer = load.run("produce", port=node.port, topic=topic, records=1, size=100, rate=500, seconds=1, warm=0.2)
    assert answer["requests"] == 600
    assert 400 < answer["requests_s"] < 600
    assert 0 < answer["p50_ms"] <= answer["p99_ms"] <= answer["max_ms"]
