"""What older feature levels leave: transactions of their first version, and groups of the classic protocol alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.behaviour.client import Client, eventually

from .apache_kafka import KafkaTools, compiled, run_java
from .conftest import At, Node, StartNode

pytestmark = pytest.mark.oracle

_SOURCE = Path(__file__).with_name("Transactions.java")
_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="module")
def older(start_node: StartNode, tools: KafkaTools) -> Node:
    """A node whose features were taken down while it ran."""
    node = start_node("older", {"group.initial.rebalance.delay.ms": "0"})
    at = At(tools, node.bootstrap)
    for feature, level in (("transaction.version", 1), ("group.version", 0)):
        at("kafka-features", "downgrade", "--feature", f"{feature}={level}")
    return node


def test_javas_transactions_of_the_first_version(older: Node, tools: KafkaTools, topic: str, tmp_path: Path) -> None:
    """Partitions are added before they are written to, and the epoch stays from transaction to transaction."""
    at = At(tools, older.bootstrap)
    at("kafka-topics", "--create", "--topic", topic, "--partitions", "2")

    def tell(story: str, *arguments: str) -> list[str]:
        jvm = (*_JVM, f"-Djava.io.tmpdir={tmp_path}")
        told = run_java("Transactions", story, older.bootstrap, *arguments, jvm=jvm, cp=compiled(_SOURCE), timeout=120)
        return told.check().lines

    tell("produce", topic, f"{topic}-id", "6")
    wanted = [f"{partition} {number}" for partition in range(2) for number in (0, 1, 3, 4)]
    # The last markers are written after EndTxn is answered.
    found = eventually(lambda: sorted(tell("read", topic, "read_committed")), lambda lines: lines == wanted)
    assert found == wanted
    described = at("kafka-transactions", "describe", "--transactional-id", f"{topic}-id").lines
    names, values = (line.split() for line in described)
    state = dict(zip(names, values, strict=False))
    assert state["ProducerEpoch"] == "0"
    assert state["TransactionState"] in ("CompleteCommit", "CompleteAbort")


def test_the_consumer_protocol_is_refused_without_its_feature(older: Node) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    with Client((older.host, older.port)) as client:
        answer = eventually(
            lambda: client.call(request, ConsumerGroupHeartbeatResponse, 1),
            lambda answer: answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
