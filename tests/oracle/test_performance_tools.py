"""kafka-producer-perf-test and kafka-consumer-perf-test run to their end; the figures are the benchmarks' matter."""

from __future__ import annotations

import re

import pytest

from .conftest import At

pytestmark = pytest.mark.oracle


def create(at: At, topic: str, partitions: int = 1) -> None:
    """Create a topic and wait until its leaders serve: Kafka answers before they do, and acks=0 has no second try."""
    at("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions))
    assert at("kafka-get-offsets", "--topic", topic).lines == [f"{topic}:{index}:0" for index in range(partitions)]


def perform(at: At, topic: str, records: int, *properties: str) -> None:
    load = ["--num-records", str(records), "--record-size", "1000", "--throughput", "-1"]
    settings = ["--command-property", *properties] if properties else []
    done = at("kafka-producer-perf-test", "--topic", topic, *load, *settings)
    assert re.search(rf"^{records} records sent, [0-9.]+ records/sec", done.out, re.MULTILINE), done.out
    assert done.err == ""


@pytest.mark.parametrize(
    "properties",
    [
        [],  # Idempotent, acks=all: the defaults.
        ["acks=1", "enable.idempotence=false"],
        ["acks=0", "enable.idempotence=false"],
        ["compression.type=lz4", "batch.size=65536", "linger.ms=5"],
        ["max.in.flight.requests.per.connection=1"],
    ],
    ids=lambda properties: ",".join(properties) or "defaults",
)
def test_the_producer_performance_tool_sends_all_its_records(at_node: At, topic: str, properties: list[str]) -> None:
    create(at_node, topic, partitions=3)
    perform(at_node, topic, 10_000, *properties)
    ends = at_node("kafka-get-offsets", "--topic", topic).lines
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 10_000


def test_the_state_of_an_idempotent_producer_is_described(at_node: At, topic: str) -> None:
    create(at_node, topic)
    perform(at_node, topic, 1_000)
    header, row = at_node("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0").lines
    state = dict(zip(header.split(), row.split(), strict=True))
    assert int(state["ProducerId"]) >= 0
    assert state["ProducerEpoch"] == "0"
    assert state["LastSequence"] == "999"
    assert state["CurrentTransactionStartOffset"] == "None"


def test_the_consumer_performance_tool_reads_all_records(at_node: At, topic: str) -> None:
    create(at_node, topic)
    perform(at_node, topic, 10_000)
    done = at_node("kafka-consumer-perf-test", "--topic", topic, "--num-records", "10000", "--hide-header")
    assert int(done.lines[-1].split(", ")[4]) == 10_000
