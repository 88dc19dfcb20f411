"""Spark's part in the life of a sink, without Spark: opens, runs tasks, commits, aborts, each in a process of its own,
and starts again after a crash as a query does from its checkpoint. And a reader of committed records, which judges."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.sink.connections import connections
from ottla.spark.sink.coordination import Coordination
from ottla.spark.sink.decision_log import task_prefix
from ottla.spark.sink.driver import commit, open_sink, undo
from ottla.spark.sink.handover import OpenSink, TaskResult
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.rows import Rows
from ottla.spark.sink.staging import Task, stage
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse
from tests.spark.forked import Died, Raised, in_process

T = TypeVar("T")
ATTEMPTS_MAX = 4
FENCED = r"KafkaError: (PRODUCER_FENCED|INVALID_PRODUCER_EPOCH|INVALID_TXN_STATE)"
"""What a process says that has lost its transaction."""
_UPGRADE = 1
_SAFE_DOWNGRADE = 2


def rows_of(batch_id: int, task: int, count: int = 20) -> list[str]:
    return [f"{batch_id}/{task}/{number}" for number in range(count)]


def arrow(rows: list[str]) -> pa.RecordBatch:
    values = [row.encode() for row in rows]
    return pa.record_batch([pa.array(values, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"])


# What a forked process would import otherwise, each anew: pyarrow loads pandas when it first makes an array, for one.
Rows.of(arrow(["warm"]), "topic").key.take(pa.array([0]))  # type: ignore[union-attr]


@dataclass
class Query:
    """A streaming query with a checkpoint: batches in order, each tried until Spark would note it as committed."""

    bootstrap: str
    topic: str
    sink: str = "orders"
    tasks: int = 2
    query_id: str = "q1"
    options: dict[str, str] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    """Steps at which the next processes to reach them die, each once."""
    driver_survives: bool = False
    """Does Spark's driver outlive the Python process that dies in a commit? Then it aborts the batch."""
    died_at: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    """What the sink said when a batch failed."""

    @property
    def sink_options(self) -> SinkOptions:
        return SinkOptions.parse({"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **self.options})

    def run_batch(self, batch_id: int, starts_max: int = 6) -> None:
        """As often as it takes."""
        for _ in range(starts_max):
            try:
                self.try_batch(batch_id)
            except Died:
                continue  # The driver is gone, and nobody aborts anything.
            except Raised as error:
                self.raised.append(str(error))
                continue
            return
        raise AssertionError(f"batch {batch_id} did not get through: {self.died_at} {self.raised}")

    def try_batch(self, batch_id: int) -> None:
        """One run of a batch, from the opening to the commit."""
        opened = self.open()
        results: list[TaskResult | None] = [self.run_task(opened, batch_id, task) for task in range(self.tasks)]
        if None in results:
            self.abort(results)
            raise Raised("a task failed too often")
        try:
            self.commit(results)
        except (Raised, Died) as error:
            if isinstance(error, Raised) or self.driver_survives:
                self.abort(results)  # As Spark does, whatever the commit has done.
            raise

    def open(self) -> OpenSink:
        return self.call(lambda: open_sink(self.sink_options, self.sink))

    def run_task(self, opened: OpenSink, batch_id: int, task: int) -> TaskResult | None:
        for attempt in range(ATTEMPTS_MAX):
            with contextlib.suppress(Died, Raised):
                return self.call(partial(self.stage, opened, batch_id, task, repeated=attempt > 0))
        return None

    def stage(self, opened: OpenSink, batch_id: int, task: int, *, repeated: bool = False) -> TaskResult:
        return stage(
            self.sink_options,
            opened,
            Task(task, self.query_id, batch_id, repeated),
            iter([arrow(rows_of(batch_id, task))]),
        )

    def commit_while_a_copy_writes(self, batch_id: int) -> None:
        """Speculation: a copy of a task is in mid transaction when the batch is committed, and goes on. Raises what the
        copy says then."""
        self.options = {**self.options, "kafka.max.request.size": "1000"}
        opened = self.open()
        results = [self.run_task(opened, batch_id, task) for task in range(self.tasks)]

        def rows() -> Iterator[pa.RecordBatch]:
            yield arrow([f"{number:01000}" for number in range(300)])
            coordination = connections(self.sink_options.client).coordination
            deadline_s = time.monotonic() + 60
            while len(coordination.open_under(task_prefix(self.sink))) < self.tasks + 1:
                assert time.monotonic() < deadline_s, "the copy's transaction does not begin"
                time.sleep(0.02)
            self.commit(results)
            yield arrow([f"{number:01000}" for number in range(300, 600)])

        self.call(lambda: stage(self.sink_options, opened, Task(1, self.query_id, batch_id), rows()))

    def commit(self, results: list[TaskResult | None]) -> None:
        self.call(lambda: commit(self.sink_options, [each for each in results if each is not None]))

    def abort(self, results: list[TaskResult | None]) -> None:
        self.call(lambda: undo(self.sink_options, [each for each in results if each is not None]))

    def call(self, function: Callable[[], T]) -> T:
        step = self.crashes[0] if self.crashes else None
        try:
            return in_process(function, die_at=step)
        except Died:
            assert step is not None
            self.died_at.append(self.crashes.pop(0))
            raise

    def expected(self, batches: int) -> Counter[str]:
        return Counter(
            row for batch_id in range(batches) for task in range(self.tasks) for row in rows_of(batch_id, task)
        )


def committed(bootstrap: str, topic: str, partitions: int, *, within_s: float = 60.0) -> Counter[str]:
    """All rows that a reader of committed records sees, once no transaction is open any more."""
    found = committed_by_partition(bootstrap, topic, partitions, within_s=within_s)
    return Counter({row: sum(places.values()) for row, places in found.items()})


def committed_by_partition(
    bootstrap: str, topic: str, partitions: int, *, within_s: float = 60.0
) -> dict[str, Counter[int]]:
    """The same, with the partitions that each row is in."""
    wait_until_stable(bootstrap, topic, partitions, within_s=within_s)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[str, Counter[int]] = defaultdict(Counter)
    ended: set[int] = set()
    deadline = time.monotonic() + within_s
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"read only {len(found)} rows, and {len(ended)} partitions whole"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found[message.value().decode()][message.partition()] += 1
    consumer.close()
    return found


def wait_until_stable(bootstrap: str, topic: str, partitions: int, *, within_s: float) -> None:
    """Until the last stable offset of every partition is its end."""
    deadline = time.monotonic() + within_s
    while open_partitions(bootstrap, topic, partitions):
        assert time.monotonic() < deadline, f"transactions stay open in {topic}"
        time.sleep(0.05)


def open_partitions(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Where a transaction is open."""
    client = connections(SinkOptions.parse({"kafka.bootstrap.servers": bootstrap}).client).client
    ends = []
    for isolation in (0, 1):
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=partition, timestamp=-1) for partition in range(partitions)
                    ],
                )
            ],
        )
        node = client.leader_of(topic, 0)
        answer = client.ask(node, request, ListOffsetsResponse)
        ends.append({each.partition_index: each.offset for each in answer.topics[0].partitions})
    return [partition for partition in range(partitions) if ends[0][partition] != ends[1][partition]]


def set_transaction_version(bootstrap: str, level: int) -> None:
    client = connections(SinkOptions.parse({"kafka.bootstrap.servers": bootstrap}).client).client
    said = []
    for upgrade_type in (_UPGRADE, _SAFE_DOWNGRADE):
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type)
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
        answer = client.ask_any(request, UpdateFeaturesResponse)
        codes = [answer.error_code, *(result.error_code for result in answer.results)]
        if not any(codes):
            break
        said.append((codes, answer.error_message))
    assert len(said) < 2, said
    client.persist(lambda: _has_level(bootstrap, level))


def _has_level(bootstrap: str, level: int) -> None:
    client = connections(SinkOptions.parse({"kafka.bootstrap.servers": bootstrap}).client).client
    if Coordination(client).bumps_epoch is not (level >= 2):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The level is not published yet.")


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    client = connections(SinkOptions.parse({"kafka.bootstrap.servers": bootstrap}).client).client
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = client.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    client.persist(lambda: client.leader_of(topic, partitions - 1))
