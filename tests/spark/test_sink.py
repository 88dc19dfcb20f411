"""Real Spark writes to a real node: batch and stream, exactly once through crashes, columns, partitioners, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.records.partitioner import partition_of_key
from tests.spark.conftest import Broker
from tests.spark.sink_world import committed

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

NewTopic = Callable[..., str]


def messages(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "enable.metrics.push": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(60)
        assert message is not None, f"only {ended} of {partitions} partitions could be read"
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def test_a_batch_query_writes_every_column(spark: SparkSession, node: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    rows = spark.sql(
        """select cast(id as string) key, cast(concat('v', id) as binary) value,
                  array(named_struct('key', 'origin', 'value', cast('spark' as binary))) headers,
                  timestamp_millis(1000000 + id) timestamp,
                  if(id < 10, 2, null) partition, '{topic}' topic
           from range(100)""".replace("{topic}", topic)
    )
    rows.write.format("ottla").option("kafka.bootstrap.servers", node.bootstrap).mode("append").save()
    found = messages(node.bootstrap, topic, 3)
    assert sorted(int(message.key()) for message in found) == list(range(100))
    for message in found:
        number = int(message.key())
        assert message.value() == f"v{number}".encode()
        assert message.headers() == [("origin", b"spark")]
        assert message.timestamp()[1] == 1_000_000 + number
        assert message.partition() == (2 if number < 10 else partition_of_key(message.key(), 3))


def test_nulls_and_missing_columns(spark: SparkSession, node: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    rows = spark.sql("select if(id = 1, null, 'v') value, cast(null as string) key from range(3)").coalesce(1)
    rows.write.format("ottla").option("kafka.bootstrap.servers", node.bootstrap).option("topic", topic).mode(
        "append"
    ).save()
    found = messages(node.bootstrap, topic, 1)
    assert [message.value() for message in found] == [b"v", None, b"v"]
    assert [message.key() for message in found] == [None] * 3
    assert all(message.timestamp()[1] > 1_700_000_000_000 for message in found)


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "gzip"])
def test_compressed_at_least_once(spark: SparkSession, node: Broker, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(2)
    write = spark.sql("select concat('row ', id) value from range(2000)").write.format("ottla").mode("append")
    write.options(
        **{
            "kafka.bootstrap.servers": node.bootstrap,
            "topic": topic,
            "deliveryGuarantee": "at-least-once",
            "kafka.compression.type": codec,
            "kafka.acks": "1",
        }
    ).save()
    found = messages(node.bootstrap, topic, 2)
    assert sorted(message.value() for message in found) == sorted(f"row {number}".encode() for number in range(2000))


def test_a_counted_batch_write_is_not_written_twice(spark: SparkSession, node: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic, "sinkId": f"nightly-{topic}"}
    for batch_id in (1, 1, 2):
        write = spark.range(10).selectExpr(f"concat('{batch_id}/', id) value").write.format("ottla").mode("append")
        write.options(**options, batchId=str(batch_id)).save()
    found = sorted(message.value().decode() for message in messages(node.bootstrap, topic, 1))
    assert found == sorted(f"{batch_id}/{number}" for batch_id in (1, 2) for number in range(10))


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("select 'v' value", {}, "The topic is missing"),
        ("select 'v' anything", {"topic": "t"}, "The column value is missing"),
        ("select 1 value", {"topic": "t"}, "must be a string or binary"),
        ("select 'v' value, 'x' headers", {"topic": "t"}, "must be an array of structs"),
        ("select 'v' value", {"topic": "t", "partitioner": "nobody"}, "There is no partitioner"),
        ("select 'v' value", {"topic": "t", "deliveryGuarantee": "hope"}, "choose exactly-once"),
        ("select 'v' value", {"topic": "t", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ("select 'v' value", {"topic": "t", "kafka.transactional.id": "x"}, "cannot be set"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence(
    spark: SparkSession, node: Broker, rows: str, options: dict[str, str], said: str
) -> None:
    write = spark.sql(rows).write.format("ottla").option("kafka.bootstrap.servers", node.bootstrap).options(**options)
    with pytest.raises(Exception, match=said):
        write.mode("append").save()


def numbers(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(source))


def run_stream(spark: SparkSession, source: Path, checkpoint: Path, options: dict[str, str]) -> StreamingQuery:
    """All that there is to read, in micro-batches of a file each."""
    rows = numbers(spark, source).repartition(2)
    write = rows.writeStream.format("ottla").option("checkpointLocation", str(checkpoint)).options(**options)
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def fill(source: Path, files: int) -> list[str]:
    source.mkdir()
    written = []
    for file in range(files):
        lines = [f"{file}/{line}" for line in range(50)]
        (source / f"{file}.txt").write_text("\n".join(lines) + "\n")
        written += lines
    return written


@pytest.mark.parametrize(
    "step",
    [
        "rows-acknowledged",
        "decision-written",
        "after-Committing-RecordDecision",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in (
                "before-Opening-TakeClaim",
                "before-Committing-RecordDecision",
                "ended-1",
                "after-Committing-RecordCompletion",
            )
        ),
    ],
)
def test_a_stream_is_written_once_though_its_processes_die(
    spark: SparkSession, node: Broker, new_topic: NewTopic, tmp_path: Path, crash_plan: Path, step: str
) -> None:
    """A Python process of Spark's dies; Spark aborts the batch, the query fails, and starts again."""
    topic = new_topic(2)
    written = fill(tmp_path / "in", 2)
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": topic}
    crash_plan.write_text(step)
    with pytest.raises(Exception, match=r"(?i)python worker|exited|EOF"):
        run_stream(spark, tmp_path / "in", tmp_path / "checkpoint", options)
    assert not crash_plan.exists(), "a process died there"
    run_stream(spark, tmp_path / "in", tmp_path / "checkpoint", options)
    found = committed(node.bootstrap, topic, 2)
    assert sorted(found.elements()) == sorted(written)
