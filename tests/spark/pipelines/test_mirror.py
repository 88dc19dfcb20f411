"""A mirror between two real nodes: what it makes, what it carries, what it tells groups; once, whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.errors import StartupError
from ottla.spark.crash_points import VARIABLE
from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.mirror import HEADER, MirrorEnd, mirror
from ottla.spark.pipelines.mirror_groups import GroupTranslator
from ottla.spark.pipelines.mirror_topics import TopicMaker
from tests.node_process import NodeProcess, running_node
from tests.spark.conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typer.testing import Result

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 120.0
T0_MS = time.time_ns() // 1_000_000 - 3_600_000
"""Young enough that retention leaves the records alone."""


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Another cluster."""
    with running_node(tmp_path_factory.mktemp("other-node")) as node:
        yield node


def make_topic(broker: Broker, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
    admin.create_topics([asked])[name].result(60)
    wait_for_partitions(admin, name, partitions)


def grow_topic(broker: Broker, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(60)
    wait_for_partitions(admin, name, partitions)


def wait_for_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """Apache Kafka answers before its brokers have heard of it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=60).topics
        if topic in found and len(found[topic].partitions) == count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{topic} has not {count} partitions")


def produce(broker: Broker, topic: str, values: range, *, partitions: int, born: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(
            topic,
            None if value % 10 == 9 else f"{born}{value}".encode(),
            f"key{value % 5}".encode(),
            value % partitions,
            timestamp=T0_MS + value,
            headers=[("n", b"%d" % value), ("none", None)] if value % 3 else None,
        )
    assert producer.flush(60) == 0


def read(broker: Broker, topic: str) -> list[Record]:
    """All that is committed, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    count = len(consumer.list_topics(topic, 60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    found: list[Record] = []
    ended = 0
    deadline = time.monotonic() + PATIENCE_S
    while ended < count:
        assert time.monotonic() < deadline, f"read {len(found)} records and {ended} partitions to their ends"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended += 1
            continue
        headers = tuple(message.headers() or ())
        found.append(Record(message.partition(), message.key(), message.value(), message.timestamp()[1], headers))
    consumer.close()
    return sorted(found, key=lambda each: each.partition)


def without_marks(records: list[Record]) -> list[Record]:
    return [each._replace(headers=tuple(header for header in each.headers if header[0] != HEADER)) for each in records]


def commit(broker: Broker, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
            break
        except KafkaException:  # A cluster that was just started has no coordinator yet.
            assert time.monotonic() < deadline, "nobody takes the offsets"
            time.sleep(0.1)
    consumer.close()


def committed(broker: Broker, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    found = consumer.committed([TopicPartition(topic, partition) for partition in range(partitions)], 60)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def test_topics_are_made_as_the_source_has_them(node: Broker, other: NodeProcess, topic: str) -> None:
    source, target = MirrorEnd(node.bootstrap), MirrorEnd(other.bootstrap)
    make_topic(node, topic, 3, {"retention.ms": "123456789", "min.insync.replicas": "1"})
    maker = TopicMaker(
        source=source.client_settings("test"), target=target.client_settings("test"), pattern=f"{topic}.*"
    )
    maker.make()
    admin = AdminClient({"bootstrap.servers": other.bootstrap})
    assert len(admin.list_topics(topic, 60).topics[topic].partitions) == 3
    resource = ConfigResource("topic", topic)
    configs = admin.describe_configs([resource])[resource].result(60)
    own = {name: each.value for name, each in configs.items() if each.source == 1}
    assert own == {"retention.ms": "123456789"}
    grow_topic(node, topic, 5)
    make_topic(node, f"{topic}-more", 1)
    maker.make()
    found = admin.list_topics(timeout=60).topics
    assert (len(found[topic].partitions), len(found[f"{topic}-more"].partitions)) == (5, 1)


def test_groups_are_told_where_they_stand(node: Broker, other: NodeProcess, topic: str) -> None:
    """Without Spark: the target is filled by hand, with records of its own between those that were mirrored."""
    for broker in (node, other):
        make_topic(broker, topic, 1)
    produce(node, topic, range(20), partitions=1, born="a")
    producer = Producer({"bootstrap.servers": other.bootstrap})
    for offset in range(12):
        producer.produce(topic, b"mirrored", headers=[(HEADER, b"A:%d" % offset)])
        producer.produce(topic, b"born here")
    assert producer.flush(60) == 0
    translator = GroupTranslator(
        source=MirrorEnd(node.bootstrap).client_settings("test"),
        target_options=MirrorEnd(other.bootstrap).options(),
        mark=(HEADER, "A"),
        topics=topic,
        groups=f"{topic}-.*",
        own_group=f"{topic}-mirror",
    )
    for group, offset in {"begun": 0, "middle": 5, "ahead": 15, "mirror": 3}.items():
        commit(node, f"{topic}-{group}", topic, {0: offset})
    commit(other, f"{topic}-middle", topic, {0: 2})
    translator.translate()

    def told(group: str) -> dict[int, int]:
        return committed(other, f"{topic}-{group}", topic, 1)

    assert told("begun") == {0: 0}
    assert told("middle") == {0: 9}, "after the record from offset 4, where one of the target's own lies"
    assert told("ahead") == {0: 23}, "after the last one that was mirrored"
    assert told("mirror") == {}
    # Never backwards, and never under somebody's feet.
    commit(other, f"{topic}-middle", topic, {0: 20})
    commit(node, f"{topic}-middle", topic, {0: 6})
    consumer = Consumer(
        {"bootstrap.servers": other.bootstrap, "group.id": f"{topic}-begun", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    commit(node, f"{topic}-begun", topic, {0: 8})
    translator.translate()
    assert told("middle") == {0: 20}
    assert consumer.committed([TopicPartition(topic, 0)], 60)[0].offset == 0
    consumer.close()


@pytest.mark.long
def test_a_mirror_carries_records_whole_and_once_both_ways(
    spark: SparkSession, node: Broker, other: NodeProcess, topic: str, crash_plan: Path, tmp_path: Path
) -> None:
    def run(name: str, source: Broker, target: Broker) -> Result:
        places = ["--from", source.bootstrap, "--to", target.bootstrap, "--name", name, "--home", str(tmp_path)]
        return CliRunner().invoke(
            app, ["pipeline", "mirror", *places, "--topics", topic, "--groups", f"{topic}.*", "--once"]
        )

    make_topic(node, topic, 2, {"retention.ms": "-1"})
    produce(node, topic, range(60), partitions=2, born="a")
    commit(node, f"{topic}-readers", topic, {0: 10, 1: 30})
    crash_plan.write_text("after-Committing-RecordDecision")
    assert isinstance(run("there", node, other).exception, StartupError)
    assert not crash_plan.exists(), "it died when the batch was decided, and before it was committed"
    assert "there: finished, 60 rows read." in run("there", node, other).output
    assert without_marks(read(other, topic)) == read(node, topic)
    assert committed(other, f"{topic}-readers", topic, 2) == {0: 10, 1: 31}, "at the end, after a transaction's mark"
    # On both sides at once, and in a partition that only the source has as yet.
    grow_topic(node, topic, 3)
    produce(node, topic, range(60, 90), partitions=3, born="a")
    produce(other, topic, range(90, 120), partitions=2, born="b")
    for name, source, target in (("back", other, node), ("there", node, other), ("back", other, node)):
        assert run(name, source, target).exit_code == 0
    ours, theirs = read(node, topic), read(other, topic)
    assert sorted(without_marks(ours), key=repr) == sorted(without_marks(theirs), key=repr)
    assert sorted(each.timestamp_ms for each in ours) == list(range(T0_MS, T0_MS + 120)), "none came back"
    assert {len(each.headers) - len(bare.headers) for each, bare in zip(ours, without_marks(ours), strict=True)} == {
        0,
        1,
    }, "a record is marked by the cluster that it left, and by no other"


@pytest.mark.long
def test_a_mirror_is_killed_with_all_that_belongs_to_it(
    node: Broker, other: NodeProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(node, topic, 2)
    command = [sys.executable, "-m", "ottla.cli", "pipeline", "mirror", "--from", node.bootstrap, "--to"]
    command += [other.bootstrap, "--topics", topic, "--once", "--home", str(tmp_path)]
    steps = ("rows-acknowledged!", "decision-written!", "ended-1!", "after-Committing-RecordCompletion!", None)
    for number, step in enumerate(steps):
        produce(node, topic, range(20 * number, 20 * number + 20), partitions=2, born="a")
        environment = {**os.environ, **({} if step is None else {VARIABLE: step})}
        status = subprocess.run(command, env=environment, start_new_session=True, timeout=600, check=False).returncode
        assert (status == 0) is (step is None)
    assert without_marks(read(other, topic)) == read(node, topic)


def test_a_mirror_that_makes_no_sense(node: Broker) -> None:
    here = MirrorEnd(node.bootstrap)
    with pytest.raises(PipelineError, match="are the same cluster"):
        mirror(here, here)
    with pytest.raises(PipelineError, match="is not a regular expression"):
        mirror(here, here, topics="(")
    with pytest.raises(PipelineError, match="does not answer"):
        mirror(here, MirrorEnd("127.0.0.1:1"))
