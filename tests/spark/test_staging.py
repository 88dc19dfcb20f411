"""Rows on their way to partitions: columns that cannot be written, options that cannot be obeyed, batches refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark import TaskContext

from ottla.client.blocking import BlockingClient
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.records.packing import PackedBatch
from ottla.records.partitioner import partition_of_key
from ottla.spark.sink.checkpoints import query_id_of
from ottla.spark.sink.handover import SinkError
from ottla.spark.sink.options import DeliveryGuarantee, InvalidSinkOption, SinkOptions
from ottla.spark.sink.producing import Producer
from ottla.spark.sink.rows import Rows
from ottla.spark.sink.staging import Task, send, stage
from ottla.spark.sink.writers import _may_be_repeated
from tests.node_process import NodeProcess, running_node
from tests.spark.sink_world import (
    Query,
    arrow,
    committed,
    committed_by_partition,
    create_topic,
    wait_until_stable,
)

pytestmark = pytest.mark.slow

_names = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("staging")) as running:
        yield running


@pytest.fixture
def query(node: NodeProcess) -> Query:
    name = f"staging-{next(_names)}"
    create_topic(node.bootstrap, name, 2)
    return Query(node.bootstrap, name, sink=name)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


VALUE = pa.array(["a", "b"])


def test_rows_know_their_topics_and_partitions() -> None:
    topics = pa.array(["one", "two"])
    rows = Rows.of(batch(value=VALUE, topic=topics, partition=pa.array([None, 3], pa.int32())), None)
    assert {topic: chosen.tolist() for topic, chosen in rows.by_topic() if chosen is not None} == {
        "one": [0],
        "two": [1],
    }
    assert rows.partitions is not None
    assert rows.partitions.tolist() == [-1, 3]
    assert list(Rows.of(batch(value=VALUE, topic=topics), "all").by_topic()) == [("all", None)]


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"value": VALUE}, None, "The topic is missing"),
        ({"value": VALUE, "topic": pa.array(["t", None])}, None, "A row has no topic"),
        ({"value": VALUE, "partition": pa.array([0, -2], pa.int32())}, "t", "has a negative number"),
        ({"value": VALUE, "partition": pa.array([0, -1], pa.int32())}, "t", "has a negative number"),
        ({"value": pa.array([1, 2])}, "t", "value is of type int64, and must be a string or binary"),
        ({"value": VALUE, "timestamp": VALUE}, "t", "must be a timestamp"),
        ({"key": VALUE}, "t", "The column value is missing"),
        ({"value": VALUE, "headers": pa.array([["x"], []])}, "t", "must be an array of structs"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: dict[str, pa.Array], topic: str | None, said: str) -> None:
    with pytest.raises(SinkError, match=said):
        Rows.of(batch(**columns), topic)


def test_a_partition_that_the_topic_does_not_have_fails_the_task_and_aborts_its_transaction(query: Query) -> None:
    large = batch(value=pa.array(["x" * 1000] * 5000), partition=pa.array([0] * 5000, pa.int32()))
    wrong = batch(value=VALUE, partition=pa.array([0, 2], pa.int32()))
    with pytest.raises(SinkError, match=r"says 2, but the topic .* has 2 partitions"):
        stage(query.sink_options, query.open(), Task(0, "q", 0), iter([large, wrong]))
    wait_until_stable(query.bootstrap, query.topic, 2, within_s=60)
    assert committed(query.bootstrap, query.topic, 2) == {}


def test_a_record_that_is_larger_than_the_topic_takes_is_told(query: Query) -> None:
    with pytest.raises(KafkaError, match="larger than the topic takes"):
        stage(query.sink_options, query.open(), Task(0, "q", 0), iter([arrow(["x" * 3_000_000])]))


def test_many_batches_and_partitions_at_once_arrive_in_order(query: Query) -> None:
    """Small batches, so that several requests are on their way to the leader."""
    query.options = {"deliveryGuarantee": "at-least-once", "kafka.batch.size": "200", "kafka.max.request.size": "1000"}
    wanted = [f"row {number}" for number in range(2000)]
    send(query.sink_options, 0, iter([arrow(wanted[start : start + 100]) for start in range(0, 2000, 100)]))
    assert sorted(committed(query.bootstrap, query.topic, 2).elements()) == sorted(wanted)


@pytest.mark.parametrize("by_column", [False, True], ids=["one-topic", "topic-column"])
def test_small_batches_of_sparks_become_few_records_batches(
    query: Query, monkeypatch: pytest.MonkeyPatch, by_column: bool
) -> None:
    packed: list[int] = []
    add = Producer.add

    def spied(producer: Producer, partition: TopicPartition, batch: PackedBatch) -> None:
        packed.append(batch.number)
        add(producer, partition, batch)

    monkeypatch.setattr(Producer, "add", spied)
    rows = [f"{number:0100}" for number in range(4000)]
    small = [arrow(rows[start : start + 50]) for start in range(0, 4000, 50)]
    options = replace(query.sink_options, guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    if by_column:
        options = replace(options, topic=None)
        small = [each.append_column("topic", pa.array([query.topic] * len(each))) for each in small]
    send(options, 0, iter(small))
    assert sum(packed) == 4000
    assert len(packed) <= 10
    assert committed(query.bootstrap, query.topic, 2) == Counter(rows)


def test_a_topic_that_is_not_there_is_created_where_brokers_do_that(node: NodeProcess) -> None:
    query = Query(node.bootstrap, f"created-{next(_names)}", sink="creating")
    query.run_batch(0)
    assert committed(node.bootstrap, query.topic, 1) == query.expected(1)


def test_a_topic_that_grew_has_all_its_partitions_written_to_by_the_next_task(query: Query) -> None:
    """In one process, as Spark's workers are, which outlive many tasks."""
    keys = [str(number) for number in range(200)]
    options = replace(query.sink_options, guarantee=DeliveryGuarantee.AT_LEAST_ONCE)
    send(options, 0, iter([arrow(keys)]))
    admin = AdminClient({"bootstrap.servers": query.bootstrap})
    admin.create_partitions([NewPartitions(query.topic, 4)])[query.topic].result(60)
    with BlockingClient(options.client) as asking:  # What the sink knows of the topic is left as it is.
        asking.persist(lambda: asking.leader_of(query.topic, 3))
    send(options, 0, iter([arrow(keys)]))
    found = committed_by_partition(query.bootstrap, query.topic, 4)
    for key in keys:
        before, after = partition_of_key(key.encode(), 2), partition_of_key(key.encode(), 4)
        assert found[key] == Counter((before, after)), "each went where Java would have sent it at that time"


def by_last_digit(key: bytes | None, topic: str, count: int) -> int:
    return int(key or b"0") % count


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("murmur2", lambda key: partition_of_key(key.encode(), 2)),
        (f"{__name__}:by_last_digit", lambda key: int(key) % 2),
    ],
)
def test_the_partitioner_that_is_named_chooses(query: Query, name: str, chosen: Callable[[str], int]) -> None:
    keys = [str(number) for number in range(100)]
    query.options = {"partitioner": name}
    opened = query.open()
    query.commit([stage(query.sink_options, opened, Task(0, query.query_id, 0), iter([arrow(keys)]))])
    found = committed_by_partition(query.bootstrap, query.topic, 2)
    assert {key: list(places.elements()) for key, places in found.items()} == {key: [chosen(key)] for key in keys}


def test_a_sink_that_takes_turns_gives_each_partition_as_many_rows(query: Query) -> None:
    query.options = {"partitioner": "roundrobin"}
    opened = query.open()
    query.commit([stage(query.sink_options, opened, Task(0, query.query_id, 0), iter([arrow(["same"] * 100)]))])
    assert committed_by_partition(query.bootstrap, query.topic, 2) == {"same": Counter({0: 50, 1: 50})}


@pytest.mark.parametrize(
    ("attempt", "properties", "repeated"),
    [
        (0, {}, False),
        (0, {"spark.speculation": "false"}, False),
        (0, {"spark.speculation": "true"}, True),
        (1, {}, True),
    ],
)
def test_a_task_tells_whether_there_may_be_another_attempt_at_it(
    attempt: int, properties: dict[str, str], repeated: bool
) -> None:
    context = object.__new__(TaskContext)  # A new one is the process's only one.
    context._attemptNumber, context._localProperties = attempt, properties
    assert _may_be_repeated(context) is repeated


# Options.


def parsed(**options: str) -> SinkOptions:
    return SinkOptions.parse({"kafka.bootstrap.servers": "localhost:9092", **options})


def test_options_are_read_in_any_case() -> None:
    options = parsed(**{"Topic": "t", "DELIVERYGUARANTEE": "at_least_once", "kafka.ACKS": "1", "SinkId": "nightly"})
    assert (options.topic, options.guarantee, options.acks) == ("t", DeliveryGuarantee.AT_LEAST_ONCE, 1)
    assert options.sink_id == "nightly"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.acks": "0"}, "choose all, or 1"),
        ({"kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"topic": "no such/name"}, "no topic's name"),
        ({"sinkId": "a/b"}, "sinkId takes"),
        ({"batchId": "3"}, "set sinkId too"),
        ({"sinkId": "s", "batchId": "three"}, "takes a number from 0 on"),
        ({"kafka.compression.type": "brotli"}, "choose one of none, gzip"),
        ({"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "high"}, "takes a number"),
        ({"failOnLostTransaction": "perhaps"}, "choose true or false"),
        ({"kafka.transactional.id": "mine"}, "cannot be set"),
        ({"kafka.security.protocol": "SSH"}, "kafka.security.protocol is 'SSH'"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSinkOption, match=said):
        parsed(**options)


def test_the_cluster_must_be_named() -> None:
    with pytest.raises(InvalidSinkOption, match=r"kafka.bootstrap.servers is missing"):
        SinkOptions.parse({"topic": "t"})


def test_the_query_is_known_by_its_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    (checkpoint / "metadata").write_text('{"id":"e9d7"}')
    for location in (str(checkpoint), f"{checkpoint}/", f"file:{checkpoint}", f"file://{checkpoint}"):
        assert query_id_of(location) == "e9d7"
    with pytest.raises(InvalidSinkOption, match="set the option sinkId"):
        query_id_of(f"{checkpoint}/nowhere")
    with pytest.raises(InvalidSinkOption, match="checkpointLocation, or sinkId"):
        query_id_of(None)
