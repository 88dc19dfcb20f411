"""Topics as DataFrames, by Spark itself: batch queries and streams against a real node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition, admin
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from tests.spark.conftest import Broker, NewTopic, despite_slow_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

PUSHING = "spark.sql.python.filterPushdown.enabled"
T0 = int(time.time() * 1000) - 3_600_000
"""Young enough that retention leaves the records alone."""
TIMEOUT_S = 120


@pytest.fixture
def write(node: Broker, topic: str) -> Callable[..., None]:
    """Writes numbers, a second apart."""

    def produce(*numbers: int, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "lz4"})
        for number in numbers:
            headers: list[Any] = [("number", b"%d" % number)]
            producer.produce(
                topic, b"%d" % number, key=b"k", partition=partition, timestamp=T0 + 1000 * number, headers=headers
            )
        assert producer.flush(60) == 0

    return produce


@pytest.fixture
def batch(spark: SparkSession, node: Broker, topic: str) -> Callable[..., DataFrame]:
    def read(**options: str) -> DataFrame:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    return read


@pytest.fixture
def stream(spark: SparkSession, node: Broker, topic: str) -> Callable[..., DataFrame]:
    def read(**options: str) -> DataFrame:
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()

    return read


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_a_topic_is_a_dataframe(
    batch: Callable[..., DataFrame], new_topic: NewTopic, write: Callable[..., None], topic: str
) -> None:
    new_topic(2)
    write(1, 2)
    write(3, partition=1)
    frame = batch(includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    found = frame.selectExpr(
        "string(key)", "int(string(value)) n", "topic", "partition", "offset", "unix_millis(timestamp) ms",
        "timestampType", "string(headers[0].value) header",
    ).orderBy("n")  # fmt: skip
    assert [tuple(row) for row in found.collect()] == [
        ("k", 1, topic, 0, 0, T0 + 1000, 0, "1"),
        ("k", 2, topic, 0, 1, T0 + 2000, 0, "2"),
        ("k", 3, topic, 1, 0, T0 + 3000, 0, "3"),
    ]


def test_filters_choose_what_is_read(
    spark: SparkSession, batch: Callable[..., DataFrame], new_topic: NewTopic, write: Callable[..., None]
) -> None:
    new_topic(2)
    write(*range(10))
    write(*range(10, 20), partition=1)
    frame = batch()
    noon = f.timestamp_millis(f.lit(T0 + 17_000))
    wanted = frame.where((f.col("offset") >= 5) & (f.col("partition") == 1) & (f.col("timestamp") >= noon))
    assert numbers(wanted) == [17, 18, 19]
    assert wanted.rdd.getNumPartitions() == 1  # The other partition is not even planned.
    spark.conf.set(PUSHING, "false")
    try:
        assert numbers(batch().where((f.col("offset") >= 5) & (f.col("partition") == 1))) == [15, 16, 17, 18, 19]
    finally:
        spark.conf.set(PUSHING, "true")


def test_an_empty_topic_is_an_empty_dataframe(batch: Callable[..., DataFrame], new_topic: NewTopic) -> None:
    new_topic()
    assert batch().count() == 0


def available_now(frame: DataFrame, checkpoint: Path, seen: list[list[int]]) -> None:
    """Runs until everything is read; each micro-batch with rows is added to `seen`."""
    despite_slow_workers(lambda: run_now(frame, checkpoint, seen))


def run_now(frame: DataFrame, checkpoint: Path, seen: list[list[int]]) -> None:

    def keep(rows: DataFrame, number: int) -> None:
        found = numbers(rows)
        if found:
            seen.append(found)

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)


def test_available_now_reads_in_steps_resumes_and_shows_its_lag(
    stream: Callable[..., DataFrame],
    new_topic: NewTopic,
    write: Callable[..., None],
    topic: str,
    node: Broker,
    tmp_path: Path,
) -> None:
    new_topic()
    write(*range(5))
    seen: list[list[int]] = []
    available_now(stream(maxOffsetsPerTrigger="2", groupIdPrefix="spark"), tmp_path, seen)
    assert seen == [[0, 1], [2, 3], [4]]
    write(5, 6, 7)
    available_now(stream(groupIdPrefix="spark"), tmp_path, seen)
    assert seen[3:] == [[5, 6, 7]]
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": f"spark-{topic}"})
    # The last batch too: nothing is left as lag.
    assert consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset == 8
    consumer.close()


def test_a_stream_follows_its_topic(
    stream: Callable[..., DataFrame],
    new_topic: NewTopic,
    write: Callable[..., None],
    spark: SparkSession,
) -> None:
    new_topic()
    write(1)
    writing = stream().writeStream.format("memory").queryName("followed")

    def begin() -> StreamingQuery:
        query = writing.start()
        query.processAllAvailable()
        return query

    query = despite_slow_workers(begin)
    try:
        write(2, 3)
        query.processAllAvailable()
        assert numbers(spark.table("followed")) == [1, 2, 3]
        progress = query.lastProgress
        assert progress is not None
        assert progress["sources"][0]["numInputRows"] in (0, 2)
    finally:
        query.stop()


def test_what_ends_a_stream_is_said_in_a_sentence(
    stream: Callable[..., DataFrame], new_topic: NewTopic, topic: str, tmp_path: Path
) -> None:
    new_topic()
    with pytest.raises(StreamingQueryException, match="endingOffsets is for batch queries"):
        available_now(stream(endingOffsets="latest"), tmp_path / "a", [])
    offsets = json.dumps({topic: {"0": 50}})
    with pytest.raises(
        StreamingQueryException, match=f"{topic}-0 ends at offset 0 now, though the query has come to 50"
    ):
        available_now(stream(startingOffsets=offsets), tmp_path / "b", [])


def test_records_and_topics_that_are_deleted_between_batches(
    stream: Callable[..., DataFrame],
    new_topic: NewTopic,
    write: Callable[..., None],
    topic: str,
    node: Broker,
    tmp_path: Path,
) -> None:
    """Each ends the query with a sentence; with failOnDataLoss=false it goes on with what is there."""
    client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
    fresh = {"kafka.metadata.max.age.ms": "0"}
    new_topic()
    write(*range(5))
    seen: list[list[int]] = []
    available_now(stream(**fresh), tmp_path, seen)
    write(*range(5, 10))
    cut = TopicPartition(topic, 0, 8)
    client.delete_records([cut])[cut].result(60)
    with pytest.raises(StreamingQueryException, match=f"Offsets 5 to 7 of {topic}-0 are gone"):
        available_now(stream(**fresh), tmp_path, seen)
    available_now(stream(**fresh, failOnDataLoss="false"), tmp_path, seen)
    assert seen == [[0, 1, 2, 3, 4], [8, 9]]
    client.delete_topics([topic])[topic].result(60)
    new_topic()
    write(20)
    with pytest.raises(StreamingQueryException, match=f"The topic {topic} was deleted and made again"):
        available_now(stream(**fresh), tmp_path, seen)
    available_now(stream(**fresh, failOnDataLoss="false"), tmp_path, seen)
    assert seen[2:] == [[20]]
