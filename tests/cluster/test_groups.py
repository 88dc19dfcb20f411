"""Groups on three nodes, while the coordinator of all of them is killed: no acknowledged commit is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.model import GROUP_TOPIC
from tests.cluster.harness import Cluster, eventually, running_cluster

TOPIC = "t"
PARTITIONS = 4
RECORDS = 10_000
PROTOCOLS = ("classic", "consumer")

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass
class Member:
    """One consumer of a group, which commits every record that it reads, one by one."""

    cluster: Cluster
    protocol: str
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Partition → the highest offset of which it was told that it is committed."""
    failure: BaseException | None = None
    _stop: Event = field(default_factory=Event)
    _thread: Thread | None = None

    @property
    def group_id(self) -> str:
        return f"group-{self.protocol}"

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=self.group_id)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(180)
        assert not self._thread.is_alive(), f"a member of {self.group_id} is stuck"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": self.group_id,
                "group.protocol": self.protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([TOPIC])
            while not self._stop.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    self._commit(consumer, message.partition(), message.offset() + 1)
        except BaseException as error:
            self.failure = error
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, partition: int, offset: int) -> None:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
        except KafkaException:
            return  # Nobody was told anything: it may be committed, or not.
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))
        time.sleep(0.05)  # There is more to read than the whole test has time for.


def promised(members: list[Member], protocol: str) -> dict[int, int]:
    """What the members of this group were told, all of them together."""
    highest: dict[int, int] = {}
    for member in members:
        if member.protocol == protocol:
            for partition, offset in member.acknowledged.copy().items():
                highest[partition] = max(offset, highest.get(partition, 0))
    return highest


@pytest.mark.slow
def test_a_killed_coordinator_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        members = [Member(cluster, protocol) for protocol in PROTOCOLS for _ in range(2)]
        for member in members:
            member.start()
        try:
            _wait_for_commits(members, 20)
            coordinator = cluster.leader_of(GROUP_TOPIC)
            cluster.kill(coordinator)
            _wait_for_commits(members, 20)
            cluster.restart(coordinator)
            cluster.wait_in_sync(GROUP_TOPIC, cluster.nodes)
        finally:
            for member in members:
                member.stop()
        for protocol in PROTOCOLS:
            served = _committed(cluster, f"group-{protocol}")
            for partition, offset in promised(members, protocol).items():
                assert served[partition] >= offset, f"{protocol}: {served}, and {offset} of {partition} was promised"


def _wait_for_commits(members: list[Member], more: int) -> None:
    """Until each group has been told of so many more."""

    def counts() -> list[int]:
        return [sum(promised(members, protocol).values()) for protocol in PROTOCOLS]

    before = counts()

    def enough() -> bool | None:
        for member in members:
            if member.failure is not None:
                raise member.failure
        return all(now >= then + more for now, then in zip(counts(), before, strict=True)) or None

    eventually(enough, f"{more} commits of each group", 120)


def _committed(cluster: Cluster, group_id: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group_id})
    try:
        wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.committed(wanted, 60)}
    finally:
        consumer.close()
