"""Avro through a registry, in real Spark against a real node: written by Confluent's serializers, read as columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import functions as f

from ottla.spark import dead_letters
from ottla.spark.avro import decode, from_confluent_avro, schema_of, to_confluent_avro
from tests.gateway.conftest import Served, registry_url
from tests.node_process import running_node
from tests.spark.conftest import despite_slow_workers
from tests.spark.sink_world import committed, create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

V1 = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})
V2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        ],
    }
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running_node(tmp_path_factory.mktemp("registry-node")) as node:
        yield Served(node, registry_url(node))


def write(served: Served, topic: str, *values: bytes | tuple[str, dict[str, Any]]) -> None:
    """Records as they are, or rows that Confluent's serializer writes with a schema."""
    producer = Producer({"bootstrap.servers": served.node.bootstrap})
    with SchemaRegistryClient({"url": served.url}) as client:
        for value in values:
            if not isinstance(value, bytes):
                context = SerializationContext(topic, MessageField.VALUE)
                value = AvroSerializer(client, value[0])(value[1], context)
            producer.produce(topic, key=b"k", value=value, headers={"own": b"header"})
        assert producer.flush(60) == 0


def load(spark: SparkSession, served: Served, topic: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", served.node.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def read_all(served: Served, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": served.node.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message)
    consumer.close()
    return found


def test_what_confluents_serializer_wrote_is_typed_columns(spark: SparkSession, served: Served) -> None:
    write(served, "typed", (V1, {"id": 1}), (V2, {"id": 2, "tags": ["a", "b"], "at": 1_500}))
    frame = load(spark, served, "typed")
    value = from_confluent_avro("value", registry=served.url, subject="typed-value")
    rows = frame.select(value.alias("v")).select("v.*")
    assert [(each.name, each.dataType.simpleString()) for each in rows.schema.fields] == [
        ("id", "bigint"),
        ("tags", "array<string>"),
        ("at", "timestamp"),
    ]
    found = rows.select("id", "tags", f.unix_millis("at")).orderBy("id").collect()
    assert [tuple(each) for each in found] == [(1, [], None), (2, ["a", "b"], 1_500)]
    # Read with a schema that leaves out what it has no use for.
    less = V1.replace('"int"', '"long"')
    old = frame.select(from_confluent_avro("value", registry=served.url, schema=less).alias("v")).select("v.id")
    assert sorted(each.id for each in old.collect()) == [1, 2]


def test_a_record_that_cannot_be_decoded_stops_the_query_with_a_sentence(spark: SparkSession, served: Served) -> None:
    write(served, "broken", (V1, {"id": 1}), b"not avro")
    frame = load(spark, served, "broken")
    value = from_confluent_avro("value", registry=served.url, subject="broken-value")
    with pytest.raises(PythonException, match="A record cannot be decoded"):
        frame.select(value).collect()
    kept = from_confluent_avro("value", registry=served.url, subject="broken-value", on_error="null")
    assert sorted(str(each.v) for each in frame.select(kept.alias("v")).collect()) == ["None", "Row(id=1)"]


def test_dead_letters_say_why_and_where_from_and_the_stream_goes_on(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    write(served, "stream", (V1, {"id": 1}), b"junk", (V1, {"id": 2}), b"\x00\x00\x00\x27\x0f\x02", (V1, {"id": 3}))
    write(served, "stream.dead")
    Producer({"bootstrap.servers": served.node.bootstrap}).list_topics("stream.dead", 60)
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", served.node.bootstrap)
    source = reader.option("subscribe", "stream").option("startingOffsets", "earliest")
    typed = decode(
        source.option("includeHeaders", "true").load(),
        registry=served.url,
        subject="stream-value",
        dead_letter_topic="stream.dead",
        kafka={"bootstrap.servers": served.node.bootstrap},
    )
    query = (
        typed.select("offset", "value.id")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "table"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted((each["offset"], each["id"]) for each in rows) == [(0, 1), (2, 2), (4, 3)]
    junk, unknown = read_all(served, "stream.dead", 2)
    assert (junk.key(), junk.value()) == (b"k", b"junk")
    headers = dict(junk.headers())
    assert headers["own"] == b"header"
    assert headers[dead_letters.TOPIC] == b"stream"
    assert (headers[dead_letters.PARTITION], headers[dead_letters.OFFSET]) == (b"0", b"1")
    assert headers[dead_letters.SCHEMA_ID] == b""
    assert b"does not begin with a schema id" in headers[dead_letters.ERROR]
    assert headers[dead_letters.TIMESTAMP] == b"%d" % read_all(served, "stream", 2)[1].timestamp()[1]
    headers = dict(unknown.headers())
    assert (headers[dead_letters.OFFSET], headers[dead_letters.SCHEMA_ID]) == (b"3", b"9999")
    assert b"no schema with id 9999" in headers[dead_letters.ERROR]


def test_dead_letters_that_go_through_the_sink_are_there_once_though_a_task_dies(
    spark: SparkSession, served: Served, tmp_path: Path, crash_plan: Path
) -> None:
    bootstrap = served.node.bootstrap
    write(served, "once", (V1, {"id": 1}), b"junk", (V1, {"id": 2}), b"\x00\x00\x00\x27\x0f\x02")
    for topic in ("once.good", "once.dead"):
        create_topic(bootstrap, topic, 1)
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    source = reader.option("subscribe", "once").option("startingOffsets", "earliest").option("includeHeaders", "true")
    typed = decode(source.load(), registry=served.url, subject="once-value", failure_column="failure")
    bad = dead_letters.letters(typed, "once.dead", failure_column="failure")
    good = typed.where("failure IS NULL").select(
        f.lit("once.good").alias("topic"), "key", f.to_json("value").cast("binary").alias("value"), "headers"
    )

    def run() -> None:
        query = (
            good.unionByName(bad)
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    crash_plan.write_text("rows-acknowledged")
    with pytest.raises(StreamingQueryException, match=r"(?i)exited|EOF"):
        despite_slow_workers(run)
    assert not crash_plan.exists(), "a task died with its letters written"
    despite_slow_workers(run)
    assert committed(bootstrap, "once.good", 1) == {'{"id":1}': 1, '{"id":2}': 1}
    assert committed(bootstrap, "once.dead", 1) == {"junk": 1, "\x00\x00\x00\x27\x0f\x02": 1}
    headers = [dict(message.headers()) for message in read_all(served, "once.dead", 2)]
    assert {each["own"] for each in headers} == {b"header"}
    told = {each[dead_letters.OFFSET]: each for each in headers}
    assert (told[b"1"][dead_letters.SCHEMA_ID], told[b"3"][dead_letters.SCHEMA_ID]) == (b"", b"9999")
    assert b"no schema with id 9999" in told[b"3"][dead_letters.ERROR]
    assert told[b"1"][dead_letters.TOPIC] == b"once"
    assert told[b"1"][dead_letters.TIMESTAMP] == b"%d" % read_all(served, "once", 2)[1].timestamp()[1]


def test_what_spark_wrote_confluents_deserializer_reads(spark: SparkSession, served: Served) -> None:
    frame = spark.createDataFrame([(1, "one", [1, 2]), (2, None, [])], "id long, name string, ns array<int>")
    schema = schema_of(frame.schema, "org.Item")
    packed = frame.select(f.struct("id", "name", "ns").alias("row"))
    value = to_confluent_avro("row", registry=served.url, subject="written-value", schema=schema)
    rows = [bytes(each.value) for each in packed.select(value.alias("value")).collect()]
    with SchemaRegistryClient({"url": served.url}) as client:
        read = AvroDeserializer(client)
        context = SerializationContext("written", MessageField.VALUE)
        found = sorted((read(each, context) for each in rows), key=lambda each: each["id"])
    assert found == [{"id": 1, "name": "one", "ns": [1, 2]}, {"id": 2, "name": None, "ns": []}]
    # And Spark reads it back; without a schema, the subject's newest is written with.
    again = packed.select(to_confluent_avro("row", registry=served.url, subject="written-value").alias("value"))
    back = again.select(from_confluent_avro("value", registry=served.url, subject="written-value").alias("v")).select(
        "v.*"
    )
    assert sorted(back.collect()) == sorted(frame.collect())
