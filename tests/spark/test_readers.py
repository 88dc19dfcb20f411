"""The readers without Spark: what is planned and what is read, option by option, against a real node."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, admin
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla.client.blocking import BlockingClient, Pending
from ottla.spark.source.batch import BatchReader, RangePartition
from ottla.spark.source.cluster import Cluster
from ottla.spark.source.offsets import SourceError
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.stream import StreamReader
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchRequest
from tests.node_process import running_node
from tests.spark.conftest import Broker, NewTopic

pytestmark = pytest.mark.slow

T0 = int(time.time() * 1000) - 3_600_000
"""Young enough that retention leaves the records alone."""


class Stage:
    """A topic to write to, and readers of it."""

    def __init__(self, node: Broker, topic: str) -> None:
        self.topic = topic
        self._node = node
        self.producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
        self.admin = admin.AdminClient({"bootstrap.servers": node.bootstrap})

    def again(self) -> Stage:
        """With a producer that knows nothing of the topic yet."""
        return Stage(self._node, self.topic)

    def write(self, count: int, *, partition: int = 0, first: int = 0, topic: str | None = None) -> None:
        """Records `first`, `first` + 1, … a second apart."""
        for number in range(first, first + count):
            self.producer.produce(
                topic or self.topic, b"%d" % number, partition=partition, timestamp=T0 + 1000 * number
            )
        assert self.producer.flush(60) == 0

    def options(self, *, streaming: bool, **more: str) -> SourceOptions:
        given = {"kafka.bootstrap.servers": self._node.bootstrap, "kafka.metadata.max.age.ms": "0"}
        if not {"assign", "subscribePattern", "subscribe"} & set(more):
            given["subscribe"] = self.topic
        return SourceOptions.parse(
            given | {key.replace("__", "."): value for key, value in more.items()}, streaming=streaming
        )

    def batch(self, **more: str) -> BatchReader:
        return BatchReader(self.options(streaming=False, **more))

    def stream(self, **more: str) -> StreamReader:
        return StreamReader(
            self.options(streaming=True, startingOffsets="earliest", commitProgress="false")
            if not more
            else self.options(streaming=True, **{"commitProgress": "false", **more})
        )

    def delete_records(self, before: int, *, partition: int = 0) -> None:
        from confluent_kafka import TopicPartition

        asked = TopicPartition(self.topic, partition, before)
        self.admin.delete_records([asked])[asked].result(60)

    def delete(self, topic: str | None = None) -> None:
        name = topic or self.topic
        self.admin.delete_topics([name])[name].result(60)


@pytest.fixture
def stage(node: Broker, topic: str) -> Stage:
    return Stage(node, topic)


def rows(reader: BatchReader) -> list[dict[str, Any]]:
    """What the tasks read, after a journey to an executor."""
    sent = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [row for part in sent[1] for batch in sent[0].read(part) for row in batch.to_pylist()]


def numbers(reader: BatchReader) -> list[int]:
    return [int(row["value"]) for row in rows(reader)]


def between(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    start, end = json.loads(json.dumps([start, end]))
    found = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    return [int(row["value"]) for row in found]


def latest(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


# Batch.


def test_a_batch_reads_everything_there_is(stage: Stage, new_topic: NewTopic) -> None:
    new_topic(2)
    stage.write(3)
    stage.write(2, partition=1, first=3)
    found = rows(stage.batch())
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == [
        (0, 0, b"0"),
        (0, 1, b"1"),
        (0, 2, b"2"),
        (1, 0, b"3"),
        (1, 1, b"4"),
    ]
    assert {row["topic"] for row in found} == {stage.topic}
    assert [round(row["timestamp"].timestamp() * 1000) for row in found[:2]] == [T0, T0 + 1000]


def test_offsets_say_where_a_batch_begins_and_ends(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic(2)
    stage.write(5)
    stage.write(5, partition=1, first=5)
    starts, ends = {name: {"0": 1, "1": -2}}, {name: {"0": 3, "1": -1}}
    reader = stage.batch(startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends))
    assert numbers(reader) == [1, 2, 5, 6, 7, 8, 9]
    with pytest.raises(SourceError, match=f"must name every partition of the subscription and no other, but {name}-1"):
        stage.batch(startingOffsets=json.dumps({name: {"0": 1}})).partitions()


def test_timestamps_say_where_a_batch_begins_and_ends(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(10)
    assert numbers(stage.batch(startingTimestamp=str(T0 + 2500), endingTimestamp=str(T0 + 5000))) == [3, 4]
    by_partition = json.dumps({name: {"0": T0 + 8000}})
    assert numbers(stage.batch(startingOffsetsByTimestamp=by_partition)) == [8, 9]
    assert numbers(stage.batch(startingTimestamp=str(T0), endingTimestamp=str(T0 + 10**9))) == list(range(10))
    late = str(T0 + 10**9)
    with pytest.raises(SourceError, match=f"No record of {name}-0 is as young as the starting timestamp {late}"):
        stage.batch(startingTimestamp=late).partitions()
    assert numbers(stage.batch(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []


def test_topics_can_be_chosen_by_pattern_or_partition_by_partition(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic(3)
    other = new_topic(name=f"{name}-other")
    for partition in range(3):
        stage.write(1, partition=partition, first=partition)
    stage.write(1, first=9, topic=other)
    assert numbers(stage.batch(subscribePattern=f"{name}.*")) == [0, 1, 2, 9]
    assert numbers(stage.batch(subscribePattern=name)) == [0, 1, 2]
    assert numbers(stage.batch(subscribe=f"{name},{other}")) == [0, 1, 2, 9]
    assert numbers(stage.batch(assign=json.dumps({name: [2, 0]}))) == [0, 2]
    with pytest.raises(SourceError, match=f"The topic {name} has no partition 7: correct the option assign"):
        stage.batch(assign=json.dumps({name: [7]})).partitions()


def test_a_topic_that_does_not_exist_is_said(stage: Stage) -> None:
    with pytest.raises(SourceError, match=f"The topic {stage.topic} does not exist"):
        stage.batch().partitions()


def test_a_partition_can_be_read_by_many_tasks(stage: Stage, new_topic: NewTopic) -> None:
    new_topic()
    stage.write(100)
    reader = stage.batch(minPartitions="4")
    assert len(reader.partitions()) == 4
    assert numbers(reader) == list(range(100))
    assert len(stage.batch(maxRecordsPerPartition="30").partitions()) == 4


def test_many_fetches_make_one_range(stage: Stage, new_topic: NewTopic) -> None:
    """Windows of a few records each: the next is fetched while this one is decoded."""
    new_topic()
    for first in range(0, 200, 20):
        stage.write(20, first=first)
    assert numbers(stage.batch(kafka__max__partition__fetch__bytes="1000")) == list(range(200))


def test_the_next_window_is_asked_for_before_this_one_is_decoded(
    stage: Stage, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic()
    for first in range(0, 60, 20):
        stage.write(20, first=first)
    asked: list[int] = []
    start = BlockingClient.start

    def spied(client: BlockingClient, node_id: int, request: Message, *more: Any, **how: Any) -> Pending[Any]:
        if isinstance(request, FetchRequest):
            asked.append(request.topics[0].partitions[0].fetch_offset)
        return start(client, node_id, request, *more, **how)

    monkeypatch.setattr(BlockingClient, "start", spied)
    reader = stage.batch(kafka__max__partition__fetch__bytes="300")
    (part,) = reader.partitions()
    reading = reader.read(part)
    assert next(reading).num_rows == asked[-1], "what follows the first rows is on its way"
    assert len(asked) == 2
    assert sum(batch.num_rows for batch in reading) == 60 - asked[1]


def test_offsets_beyond_the_end_are_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    """As when a leader lost what its followers had not copied, between planning and reading."""
    name = new_topic()
    stage.write(5)
    for lenient in (False, True):
        reader = stage.batch(failOnDataLoss=str(not lenient).lower())
        (part,) = reader.partitions()
        assert isinstance(part, RangePartition)
        beyond = RangePartition(part.wanted._replace(start=7, end=9))
        if lenient:
            assert list(reader.read(beyond)) == []
            continue
        with pytest.raises(SourceError, match=f"Offsets 7 to 8 of {name}-0 are gone: it ends at 5 now"):
            list(reader.read(beyond))


def test_a_reader_that_stops_early_leaves_no_answer_to_the_next(stage: Stage, new_topic: NewTopic) -> None:
    new_topic()
    for first in range(0, 60, 20):
        stage.write(20, first=first)
    reader = stage.batch(kafka__max__partition__fetch__bytes="300")
    (part,) = reader.partitions()
    begun = reader.read(part)
    assert next(begun).num_rows < 60, "more is on its way"
    begun.close()  # type: ignore[attr-defined]
    assert numbers(reader) == list(range(60))


def test_headers_come_when_asked_for(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.producer.produce(name, b"1", key=b"k", headers=[("a", b"1"), ("b", None)])
    stage.producer.produce(name, None)
    stage.producer.flush(60)
    with_headers, without = rows(stage.batch(includeHeaders="true"))
    assert with_headers["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert without["headers"] is None
    assert (without["key"], without["value"]) == (None, None)


def test_aborted_records_are_hidden_from_those_who_read_committed(
    stage: Stage, new_topic: NewTopic, node: Broker
) -> None:
    name = new_topic()
    for number, commit in enumerate((True, False, True)):
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"{name}-{number}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    assert numbers(stage.batch(kafka__isolation__level="read_committed")) == [0, 2]
    assert numbers(stage.batch()) == [0, 1, 2]


def test_an_open_transaction_ends_what_is_committed(stage: Stage, new_topic: NewTopic, node: Broker) -> None:
    name = new_topic()
    stage.write(1)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, b"1")
    producer.flush(60)
    stage.write(1, first=2)
    assert numbers(stage.batch(kafka__isolation__level="read_committed")) == [0]
    assert numbers(stage.batch()) == [0, 1, 2]
    producer.abort_transaction(60)


def test_records_that_retention_took_are_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(10)
    reader = stage.batch(startingOffsets=json.dumps({name: {"0": 2}}))
    lenient = stage.batch(startingOffsets=json.dumps({name: {"0": 2}}), failOnDataLoss="false")
    stage.delete_records(6)
    with pytest.raises(SourceError, match=f"Offsets 2 to 5 of {name}-0 are gone: it begins at 6 now"):
        numbers(reader)
    assert numbers(lenient) == [6, 7, 8, 9]


def test_a_topic_deleted_after_planning_is_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(3)
    reader, lenient = stage.batch(), stage.batch(failOnDataLoss="false")
    planned = [(each, each.partitions()) for each in (reader, lenient)]
    stage.delete()
    with pytest.raises(SourceError, match=f"The topic {name} was deleted while offsets 0 to 3 of partition 0"):
        list(reader.read(planned[0][1][0]))
    assert list(lenient.read(planned[1][1][0])) == []
    new_topic()
    stage.again().write(9)
    with pytest.raises(SourceError, match=f"The topic {name} was deleted while offsets 0 to 3 of partition 0"):
        list(reader.read(planned[0][1][0]))  # Another of the same name does not serve.


def test_a_restart_of_the_node_is_waited_for(tmp_path: Path) -> None:
    with running_node(tmp_path) as first:
        stage = Stage(first, "lasting")
        for number in range(0, 60, 20):
            stage.write(20, first=number)
        reader = stage.batch(kafka__max__partition__fetch__bytes="300")
        (part,) = reader.partitions()
        reading = reader.read(part)
        found = next(reading).num_rows
        assert found < 60
        port = first.address[1]
        first.kill()
        with running_node(tmp_path, port=port):
            found += sum(batch.num_rows for batch in reading)
    assert found == 60


# Streams.


def test_a_stream_begins_where_it_is_told(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(4)
    assert stage.stream(startingOffsets="earliest").initialOffset()[name] == {"0": 0}
    assert stage.stream().initialOffset()[name] == {"0": 0}
    assert stage.stream(startingOffsets="latest").initialOffset()[name] == {"0": 4}
    assert stage.stream(startingOffsets=json.dumps({name: {"0": 3}})).initialOffset()[name] == {"0": 3}
    assert stage.stream(startingTimestamp=str(T0 + 1500)).initialOffset()[name] == {"0": 2}


def test_what_comes_while_the_first_batch_is_planned_is_part_of_it(stage: Stage, new_topic: NewTopic) -> None:
    """Spark asks where to begin twice: before it plans the first batch, and before it reads it."""
    new_topic()
    stage.write(4)
    reader = stage.stream(startingOffsets="latest")
    start = reader.initialOffset()
    stage.write(3, first=4)
    end = latest(reader, start)
    assert between(reader, reader.initialOffset(), end) == [4, 5, 6]


def test_micro_batches_follow_one_another(stage: Stage, new_topic: NewTopic) -> None:
    new_topic()
    reader = stage.stream()
    start = reader.initialOffset()
    assert latest(reader, start) == start
    stage.write(3)
    first = latest(reader, start)
    stage.write(2, first=3)
    second = latest(reader, first)
    assert between(reader, start, first) == [0, 1, 2]
    assert between(reader, first, second) == [3, 4]
    assert reader.reportLatestOffset() == second


def test_a_batch_takes_no_more_than_it_may(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic(2)
    stage.write(90)
    stage.write(10, partition=1)
    reader = stage.stream(startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    assert latest(reader, start)[name] == {"0": 18, "1": 2}
    assert reader.latestOffset(start, ReadAllAvailable())[name] == {"0": 90, "1": 10}


def test_a_batch_waits_for_enough_but_not_for_ever(
    stage: Stage, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_topic()
    stage.write(5)
    now_s = 0.0
    monkeypatch.setattr("ottla.spark.source.stream.monotonic_s", lambda: now_s)
    reader = stage.stream(startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    start = reader.initialOffset()
    assert latest(reader, start) == start
    now_s = 29.0
    assert latest(reader, start) == start
    now_s = 31.0
    assert latest(reader, start)[name] == {"0": 5}


def test_available_now_ends_where_it_was_prepared(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(3)
    reader = stage.stream()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    stage.write(3, first=3)
    end = latest(reader, start)
    assert end[name] == {"0": 3}
    assert latest(reader, end) == end


def test_a_new_partition_is_read_from_its_beginning(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(2)
    reader = stage.stream()
    start = latest(reader, reader.initialOffset())
    stage.admin.create_partitions([admin.NewPartitions(name, 2)])[name].result(60)
    stage.again().write(3, partition=1, first=10)
    end = latest(reader, start)
    assert end[name] == {"0": 2, "1": 3}
    assert between(reader, start, end) == [10, 11, 12]


def test_a_new_topic_of_a_pattern_joins(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(1)
    reader = stage.stream(subscribePattern=f"{name}.*", startingOffsets="earliest")
    start = latest(reader, reader.initialOffset())
    stage.write(2, first=5, topic=new_topic(name=f"{name}-b"))
    assert between(reader, start, latest(reader, start)) == [5, 6]


def test_a_deleted_topic_is_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    name, other = new_topic(), new_topic(name=f"{stage.topic}-b")
    stage.write(2)
    stage.write(2, topic=other, first=5)
    how = {"subscribe": f"{name},{other}", "startingOffsets": "earliest"}
    reader, lenient = stage.stream(**how), stage.stream(**how, failOnDataLoss="false")
    start = latest(reader, reader.initialOffset())
    stage.delete(other)
    with pytest.raises(SourceError, match=f"{other}-0 is gone: its topic was deleted"):
        latest(reader, start)
    stage.write(1, first=2)
    assert between(lenient, start, latest(lenient, start)) == [2]


def test_a_topic_that_was_only_overlooked_goes_on_where_it_stood(
    stage: Stage, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that has not heard of a topic yet says that there is none."""
    name, other = new_topic(), new_topic(name=f"{stage.topic}-b")
    stage.write(2)
    stage.write(3, topic=other, first=5)
    reader = stage.stream(subscribePattern=f"{name}.*", startingOffsets="earliest", failOnDataLoss="false")
    start = latest(reader, reader.initialOffset())
    asked = Cluster.topics
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(
                Cluster, "topics", lambda self, *, must_exist: {name: asked(self, must_exist=must_exist)[name]}
            )
            stage.write(1, first=2)
            end = latest(reader, start)
            assert between(reader, start, end) == [2]
            start = end
    assert caplog.text.count(f"{other}-0 is gone") == 1, "it is told once"
    stage.write(1, topic=other, first=8)
    assert between(reader, start, latest(reader, start)) == [8], "and nothing again"


def test_a_topic_made_again_is_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(3)
    reader, lenient = stage.stream(), stage.stream(startingOffsets="earliest", failOnDataLoss="false")
    start = latest(reader, reader.initialOffset())
    stage.delete()
    new_topic()
    stage.write(5, first=20)
    with pytest.raises(SourceError, match=f"The topic {name} was deleted and made again after offset 3 of {name}-0"):
        latest(reader, start)
    assert between(lenient, start, latest(lenient, start)) == [20, 21, 22, 23, 24]


def test_a_partition_shorter_than_the_checkpoint_is_data_loss(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    stage.write(3)
    start: dict[str, Any] = {name: {"0": 7}}
    with pytest.raises(SourceError, match=f"{name}-0 ends at offset 3 now, though the query has come to 7"):
        latest(stage.stream(), start)
    lenient = stage.stream(startingOffsets="earliest", failOnDataLoss="false")
    assert latest(lenient, start)[name] == {"0": 3}
    assert between(lenient, start, latest(lenient, start)) == []


def test_the_checkpoint_of_another_query_is_refused(stage: Stage, new_topic: NewTopic) -> None:
    name = new_topic()
    with pytest.raises(
        SourceError,
        match=f"The checkpoint is of another query: it holds offsets of payments, and this query reads {name}",
    ):
        latest(stage.stream(), {"payments": {"0": 5}})


# Progress as lag.


@pytest.fixture
def committed(stage: Stage, node: Broker) -> Iterator[Callable[[str], int]]:
    """The offset that a group has committed in the test's topic."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumers: list[Consumer] = []

    def ask(group: str) -> int:
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group})
        consumers.append(consumer)
        deadline = time.monotonic() + 60
        while True:
            try:
                (found,) = consumer.committed([TopicPartition(stage.topic, 0)], timeout=60)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)  # The topic of the groups may be new: its leader takes up its work.
            else:
                offset: int = found.offset
                return offset

    yield ask
    for consumer in consumers:
        consumer.close()


def test_progress_is_committed_as_soon_as_it_is_known(
    stage: Stage, new_topic: NewTopic, committed: Callable[[str], int]
) -> None:
    name = new_topic()
    stage.write(5)
    reader = stage.stream(startingOffsets="earliest", commitProgress="true", groupIdPrefix="shown")
    start = reader.initialOffset()
    end = latest(reader, start)
    reader.stop()
    assert committed(f"shown-{name}") == 0  # The batch is planned, and not done.
    assert latest(reader, end) == end  # As Spark asks after the last batch of Trigger.AvailableNow.
    reader.stop()
    assert committed(f"shown-{name}") == 5


def test_a_group_that_is_in_use_does_not_stop_the_query(
    stage: Stage, new_topic: NewTopic, node: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import Consumer

    name = new_topic()
    stage.write(1)
    member = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": f"{name}-used", "auto.offset.reset": "earliest"}
    )
    member.subscribe([name])
    while member.poll(60) is None:
        pass
    reader = stage.stream(startingOffsets="earliest", commitProgress="true", kafka__group__id=f"{name}-used")
    assert latest(reader, reader.initialOffset())[name] == {"0": 1}
    reader.stop()
    assert "cannot be committed to the group" in caplog.text
    member.close()
