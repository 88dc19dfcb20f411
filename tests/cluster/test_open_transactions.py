"""The leader of a partition is killed while transactions are open in it; each still ends as its producer, or its
silence, decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.cluster.harness import Cluster, eventually, running_cluster

TOPIC = "t"
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with running_cluster(tmp_path, settings=settings) as found:
        yield found


def transactional(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(60)
    return producer


def write(producer: Producer, name: str, number: int) -> None:
    """One record into each partition, all of them acknowledged."""
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, f"{name}-{number}".encode(), partition=partition)
    assert producer.flush(60) == 0


def committed(cluster: Cluster, partition: int) -> list[str] | None:
    """What a read-committed consumer finds up to the end of what is readable; None if it does not get there."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
        found: list[str] = []
        for _ in range(200):
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
        return None
    finally:
        consumer.close()


def same(found: list[str] | None, expected: list[str]) -> bool | None:
    return True if found is not None and sorted(found) == expected else None


@pytest.mark.slow
def test_transactions_outlive_the_leader_of_their_records(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, partitions=PARTITIONS)
    committing = transactional(cluster, "committing")
    aborting = transactional(cluster, "aborting")
    silent = transactional(cluster, "silent", timeout_ms=12_000)
    producers = {"committing": committing, "aborting": aborting, "silent": silent}
    for name, producer in producers.items():
        producer.begin_transaction()
        write(producer, name, 0)
    for partition in range(PARTITIONS):
        assert committed(cluster, partition) == []

    cluster.kill(cluster.leader_of(TOPIC))

    # Those that go on write into the same transactions, to whoever leads now.
    write(committing, "committing", 1)
    write(aborting, "aborting", 1)
    committing.commit_transaction(60)
    aborting.abort_transaction(60)
    # The third says no more: its transaction is ended for it, and only then is anything of the others' to be read.
    for partition in range(PARTITIONS):
        eventually(
            lambda partition=partition: same(committed(cluster, partition), ["committing-0", "committing-1"]),  # type: ignore[misc]
            f"the committed records of partition {partition}, and no others",
        )

    # And each partition takes the next transaction.
    committing.begin_transaction()
    write(committing, "committing", 2)
    committing.commit_transaction(60)
    expected = [f"committing-{number}" for number in range(3)]
    for partition in range(PARTITIONS):
        eventually(
            lambda partition=partition: same(committed(cluster, partition), expected),  # type: ignore[misc]
            f"the next transaction in partition {partition}",
        )
