"""Transactions on three nodes, while their coordinators are killed: all of one or nothing, and none stuck."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.coordinator.java_hash import partition_for
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from tests.cluster.harness import Cluster, eventually, running_cluster

TOPIC = "t"
PARTITIONS = 3
COORDINATORS = 4
TIMEOUT_MS = 15_000

SETTINGS = {
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass
class Writer:
    """One transactional id. Each of its transactions writes one value to every partition."""

    cluster: Cluster
    name: str
    random: Random
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    failure: BaseException | None = None
    _stop: Event = field(default_factory=Event)
    _thread: Thread | None = None
    _producer: Producer | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=self.name)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(180)
        assert not self._thread.is_alive(), f"{self.name} is stuck"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                self._transact(f"{self.name}-{number}")
                number += 1
        except BaseException as error:
            self.failure = error

    def _transact(self, value: str) -> None:
        producer = self._producer or self._begin()
        aborts = self.random.random() < 0.25
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, value.encode(), partition=partition)
            if aborts:
                producer.flush(30)
                producer.abort_transaction(60)
                self.aborted.append(value)
            else:
                producer.commit_transaction(60)
                self.committed.append(value)
        except KafkaException as raised:
            self._recover(producer, value, raised.args[0])

    def _recover(self, producer: Producer, value: str, error: KafkaError) -> None:
        if error.txn_requires_abort():
            producer.abort_transaction(60)
            self.aborted.append(value)
            return
        # Whether it was committed nobody knows; the next producer of the id ends what is still open.
        self.unknown.append(value)
        self._producer = None

    def _begin(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                "retry.backoff.max.ms": 500,
            }
        )
        producer.init_transactions(90)
        self._producer = producer
        return producer


def read_committed(cluster: Cluster, partition: int) -> list[str]:
    """Everything up to the end of the partition, which is the last stable offset."""
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
        values: list[str] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is None:
                values.append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
        raise AssertionError("the end of the partition never came")
    finally:
        consumer.close()


def open_transactions(cluster: Cluster) -> list[tuple[str, str]]:
    states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
    found = []
    for node_id in cluster.nodes:
        answer = cluster.ask(ListTransactionsRequest(state_filters=states), ListTransactionsResponse, of=node_id)
        if answer.error_code:
            return [("?", f"error {answer.error_code}")]
        found += [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]
    return found


def check(cluster: Cluster, writers: list[Writer]) -> None:
    for writer in writers:
        writer.stop()
    eventually(lambda: not open_transactions(cluster) or None, "the end of every transaction", 60)
    committed = {value for writer in writers for value in writer.committed}
    aborted = {value for writer in writers for value in writer.aborted}
    unknown = {value for writer in writers for value in writer.unknown}
    assert committed
    found = [read_committed(cluster, partition) for partition in range(PARTITIONS)]
    for values in found:
        assert not [value for value, times in Counter(values).items() if times > 1], "twice"
        assert not committed - set(values), "a committed transaction was lost"
        assert not aborted & set(values), "an aborted transaction is read"
        assert set(values) <= committed | unknown
        for writer in writers:
            mine = [int(value.rpartition("-")[2]) for value in values if value.startswith(f"{writer.name}-")]
            assert mine == sorted(mine), "out of order"
    # All of a transaction or nothing.
    assert set(found[0]) == set(found[1]) == set(found[2])


@pytest.mark.parametrize("deaths", [pytest.param(1, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.long)])
def test_transactions_outlive_their_coordinators(tmp_path: Path, deaths: int) -> None:
    random = Random(7)
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        writers = [Writer(cluster, f"w{number}", Random(number)) for number in range(3)]
        for writer in writers:
            writer.start()
        eventually(lambda: all(len(writer.committed) >= 3 for writer in writers) or None, "the first commits", 60)
        for _ in range(deaths):
            victim = cluster.leader_of("__transaction_state", partition_for(random.choice(writers).name, COORDINATORS))
            cluster.kill(victim)
            before = [len(writer.committed) for writer in writers]
            eventually(
                lambda before=before: (  # type: ignore[misc]
                    all(len(writer.committed) > count for writer, count in zip(writers, before, strict=True)) or None
                ),
                "commits after the death of a coordinator",
                90,
            )
            cluster.restart(victim)
            for partition in range(COORDINATORS):
                cluster.wait_in_sync("__transaction_state", cluster.nodes, partition)
            for partition in range(PARTITIONS):
                cluster.wait_in_sync(TOPIC, cluster.nodes, partition)
        check(cluster, writers)


@pytest.mark.slow
def test_a_producer_that_dies_leaves_nothing_open(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "gone", "transaction.timeout.ms": 2_000}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"never", partition=partition)
        assert producer.flush(30) == 0
        del producer
        # Its coordinator dies, too: the next one finds the transaction in its log, and its timeout.
        cluster.kill(cluster.leader_of("__transaction_state", partition_for("gone", COORDINATORS)))
        plain = Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(PARTITIONS):
            plain.produce(TOPIC, b"after", partition=partition)
        assert plain.flush(60) == 0
        for partition in range(PARTITIONS):
            eventually(
                lambda partition=partition: read_committed(cluster, partition) == ["after"] or None,  # type: ignore[misc]
                "the last stable offset",
                60,
            )
