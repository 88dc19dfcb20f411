"""Java's transactional clients, Kafka Streams and the tools for transactions, on our coordinator and our partitions."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import Client, Topic, batch
from tests.behaviour.transactions import V1, Transactional, only

from .apache_kafka import KafkaTools, ToolResult, compiled, run_java
from .conftest import At, Node, StartNode

pytestmark = pytest.mark.oracle

_SOURCE = Path(__file__).with_name("Transactions.java")
_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@pytest.fixture
def tell(node: Node, tmp_path: Path) -> Callable[..., list[str]]:
    """One story of Transactions.java, and what it prints."""

    def run(story: str, *arguments: object) -> list[str]:
        texts = [str(argument) for argument in arguments]
        told: ToolResult = run_java(
            "Transactions",
            story,
            node.bootstrap,
            *texts,
            jvm=(*_JVM, f"-Djava.io.tmpdir={tmp_path}"),
            cp=compiled(_SOURCE),
            timeout=120,
        ).check()
        return told.lines

    return run


def create(at_node: At, topic: str, partitions: int = 1) -> None:
    at_node("kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions))


# Clients.


def test_javas_transactions_are_all_or_nothing(at_node: At, tell: Callable[..., list[str]], topic: str) -> None:
    create(at_node, topic, 2)
    tell("produce", topic, f"{topic}-id", 20)
    kept = [number for number in range(20) if number % 3 != 2]
    wanted = {f"{partition} {number}" for partition in range(2) for number in kept}
    found: list[str] = []
    # The last markers are written after EndTxn is answered.
    for _ in range(10):
        found = tell("read", topic, "read_committed")
        if set(found) == wanted:
            break
    assert len(found) == len(wanted)
    for partition in range(2):
        assert [line for line in found if line.startswith(f"{partition} ")] == [f"{partition} {each}" for each in kept]
    assert len(tell("read", topic, "read_uncommitted")) == 40


def test_javas_second_producer_fences_the_first(at_node: At, tell: Callable[..., list[str]], topic: str) -> None:
    create(at_node, topic)
    (heard,) = tell("fence", topic, f"{topic}-id")
    assert heard in ("ProducerFencedException", "InvalidProducerEpochException")
    assert tell("read", topic, "read_uncommitted") == ["0 of the first", "0 of the second"]
    assert tell("read", topic, "read_committed") == ["0 of the second"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_transform_produce_is_exactly_once(
    node: Node, at_node: At, tell: Callable[..., list[str]], topic: str, protocol: str
) -> None:
    target = f"{topic}-out"
    create(at_node, topic, 3)
    create(at_node, target)
    with Client((node.host, node.port)) as client:
        for partition in range(3):
            client.append(_topic(client, topic), *(b"%d" % n for n in range(40)), partition=partition)
    committed = tell("transform", topic, target, f"{topic}-group", protocol, 120)
    assert sorted(committed) == [f"committed {topic}-{partition} 40" for partition in range(3)]
    found = tell("read", target, "read_committed")
    assert sorted(found) == sorted(f"0 {partition}:{number}" for partition in range(3) for number in range(40))
    assert len(tell("read", target, "read_uncommitted")) > 120


def test_a_streams_application_counts_exactly_once(
    node: Node, at_node: At, tell: Callable[..., list[str]], topic: str
) -> None:
    target = f"{topic}-counts"
    create(at_node, topic, 2)
    create(at_node, target)
    words = [b"log", b"ledger", b"log", b"brook", b"log", b"brook"] * 20
    with Client((node.host, node.port)) as client:
        for partition in range(2):
            client.append(_topic(client, topic), *words[partition::2], partition=partition)
    counted = tell("streams", topic, target, f"{topic}-app", len(words))
    assert counted == ["brook 40", "ledger 20", "log 60"]


# Tools.


def rows(result: ToolResult) -> list[dict[str, str]]:
    header, *lines = result.lines
    names = header.split()
    return [dict(zip(names, re.split(r"\t\s*|\s{2,}", line.strip()), strict=False)) for line in lines]


def test_the_tool_lists_and_describes_transactions(node: Node, at_node: At, topic: str) -> None:
    create(at_node, topic, 2)
    with Client((node.host, node.port)) as client:
        ongoing, complete = Transactional(client, f"{topic}-ongoing"), Transactional(client, f"{topic}-complete")
        for producer in (ongoing, complete):
            producer.find_coordinator()
            producer.take()
            assert only(producer.add(topic, 0, 1)) == ErrorCode.NONE
        complete.ended(commit=True, version=V1)
        listed = [
            row for row in rows(at_node("kafka-transactions", "list")) if row["TransactionalId"].startswith(topic)
        ]
        assert {row["TransactionalId"]: row["TransactionState"] for row in listed} == {
            f"{topic}-ongoing": "Ongoing",
            f"{topic}-complete": "CompleteCommit",
        }
        pattern = at_node("kafka-transactions", "list", "--transactional-id-pattern", f"{topic}-on.*")
        assert [row["TransactionalId"] for row in rows(pattern)] == [f"{topic}-ongoing"]
        lasting = at_node("kafka-transactions", "list", "--duration-filter", "3600000").out
        assert f"{topic}-ongoing" not in lasting

        (row,) = rows(at_node("kafka-transactions", "describe", "--transactional-id", f"{topic}-ongoing"))
        assert row["ProducerId"] == str(ongoing.producer_id)
        assert row["ProducerEpoch"] == "0"
        assert row["TransactionState"] == "Ongoing"
        assert row["TransactionTimeoutMs"] == "60000"
        assert f"{topic}-0" in row["TopicPartitions"]
        assert f"{topic}-1" in row["TopicPartitions"]
        unknown = at_node.run("kafka-transactions", "describe", "--transactional-id", f"{topic}-nobody")
        assert unknown.status != 0
        assert "could not be found" in unknown.printed

        at_node("kafka-transactions", "forceTerminateTransaction", "--transactionalId", f"{topic}-ongoing")
        assert ongoing.settle() in ("CompleteAbort", "Empty")
        assert ongoing.end(commit=True, version=V1).error_code == ErrorCode.PRODUCER_FENCED


def test_the_tool_finds_a_hanging_transaction_and_aborts_it(
    start_node: StartNode, tools: KafkaTools, topic: str
) -> None:
    # A partition that asks nobody takes records of a transaction that no coordinator knows.
    node = start_node("careless", {"transaction.partition.verification.enable": "false"})
    at_node = At(tools, node.bootstrap)
    create(at_node, topic)
    with Client((node.host, node.port)) as client:
        known = _topic(client, topic)
        producer = Transactional.begun(client)
        long_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
        records = batch(
            b"hangs",
            timestamp=long_ago_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            sequence=0,
            transactional=True,
        )
        request = client.produce_request(known, records)
        request.transactional_id = producer.transactional_id
        (answer,) = client.call(request, ProduceResponse, 11).responses[0].partition_responses
        assert answer.error_code == 0
    (row,) = rows(at_node("kafka-transactions", "find-hanging", "--broker-id", "1"))
    assert (row["Topic"], row["Partition"], row["StartOffset"]) == (topic, "0", "0")
    assert row["ProducerId"] == str(producer.producer_id)
    (state,) = rows(at_node("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0"))
    assert state["CurrentTransactionStartOffset"] == "0"
    at_node("kafka-transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert rows(at_node("kafka-transactions", "find-hanging", "--broker-id", "1")) == []
    (state,) = rows(at_node("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0"))
    assert state["CurrentTransactionStartOffset"] == "None"


# Records.


def test_kafkas_readers_understand_the_coordinators_records(
    node: Node, at_node: At, tools: KafkaTools, topic: str
) -> None:
    create(at_node, topic)
    with Client((node.host, node.port)) as client:
        producer = Transactional(client, f"{topic}-id")
        producer.find_coordinator()
        producer.take()
        producer_id = producer.producer_id
        assert only(producer.add_as_broker(topic)) == ErrorCode.NONE
        producer.ended(commit=True)
        assert only(producer.add(topic)) == ErrorCode.NONE
        producer.ended(commit=False, version=V1)
        producer.ended(commit=False)
        producer.take()
    printed = at_node(
        "kafka-console-consumer",
        "--topic",
        "__transaction_state",
        "--formatter",
        "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
        "--from-beginning",
        "--timeout-ms",
        "5000",
    ).out
    log_files = [str(path) for path in node.log_dir.glob("__transaction_state-*/*.log") if path.stat().st_size]
    dumped = tools.check("kafka-dump-log", "--transaction-log-decoder", "--files", ",".join(log_files)).out
    partitions = [{"topic": topic, "partitionIds": [0]}]
    for text in (printed, dumped):
        values = _values(text, f"{topic}-id")
        told = [
            (
                value["producerEpoch"],
                value["transactionStatus"],
                value["transactionPartitions"],
                value.get("clientTransactionVersion", 0),
            )
            for value in values
        ]
        assert told == [
            (0, 0, None, 0),
            (0, 1, partitions, 2),
            (1, 2, partitions, 2),
            (1, 4, [], 2),
            (1, 1, partitions, 0),
            (1, 3, partitions, 0),
            (1, 5, [], 0),
            (2, 3, [], 2),
            (2, 5, [], 2),
            (3, 0, None, 2),
        ]
        assert {(value["producerId"], value["previousProducerId"]) for value in values} == {(producer_id, producer_id)}
        assert not any("nextProducerId" in value for value in values)


def _values(text: str, transactional_id: str) -> list[dict[str, object]]:
    """The values of one key. Between key and value each tool has words of its own, and no line need end."""
    values: list[dict[str, object]] = []
    for after in text.split(f'{{"transactionalId":"{transactional_id}"}}')[1:]:
        data = after[after.index('"data":') + len('"data":') :]
        values.append(json.JSONDecoder().raw_decode(data)[0])
    return values


def _topic(client: Client, name: str) -> Topic:
    return Topic(name, Uuid(client.describe_topic(name).topic_id))
