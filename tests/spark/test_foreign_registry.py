"""A registry that others have written, Apicurio's, with Confluent's REST API: Spark and our tools use it unchanged.

Confluent's own is not in Maven's ordinary repository; its Python serializers, unchanged, are the third party here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import functions as F

from ottla.spark.avro import decode, from_confluent_avro, schema_of, to_confluent_avro
from tests.oracle.apache_kafka import apicurio, java
from tests.spark.conftest import Broker, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

PATIENCE_S = 300.0
CONFLUENTS_API = "/apis/ccompat/v7"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL. Schemas are kept in memory, and new ones must be such that old records can be read."""
    directory = apicurio()
    (jar,) = directory.glob("*-runner.jar")
    log = tmp_path_factory.mktemp("apicurio") / "log"
    settings = ["-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=0", "-Dquarkus.log.level=INFO"]
    settings.append('-Dquarkus.log.category."io.quarkus".level=INFO')
    with log.open("w") as output:
        process = subprocess.Popen(
            [java(), "-Xmx256m", *settings, "-jar", str(jar)], cwd=log.parent, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (ready := re.search(r"Listening on: (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        url = ready[1] + CONFLUENTS_API
        level = json.dumps({"compatibility": "BACKWARD"}).encode()
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/config", level, kind, method="PUT"), timeout=60):
            yield url
    finally:
        process.terminate()
        process.wait(60)


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_spark_and_confluents_serializers_read_each_other(
    spark: SparkSession, node: Broker, new_topic: NewTopic, registry: str, tmp_path: Path
) -> None:
    topic = new_topic()
    subject, context = f"{topic}-value", SerializationContext(topic, MessageField.VALUE)
    frame = spark.createDataFrame([(1, "one", [1, 2]), (2, None, [])], "id long, name string, ns array<int>")
    schema = schema_of(frame.schema, "org.Item")
    value = to_confluent_avro("row", registry=registry, subject=subject, schema=schema)
    packed = frame.select(F.struct("id", "name", "ns").alias("row")).select(value.alias("value"))
    packed.write.format("ottla").mode("append").option("kafka.bootstrap.servers", node.bootstrap).option(
        "topic", topic
    ).save()
    with SchemaRegistryClient({"url": registry}) as client:
        read: Any = AvroDeserializer(client)
        found = [read(bytes(row.value), context) for row in packed.collect()]
        assert sorted(found, key=lambda row: row["id"]) == [
            {"id": 1, "name": "one", "ns": [1, 2]},
            {"id": 2, "name": None, "ns": []},
        ]
        newer = json.loads(schema)
        newer["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
        row: Any = AvroSerializer(client, json.dumps(newer))({"id": 3, "name": "three", "ns": [], "note": "!"}, context)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce(topic, row)
        producer.produce(topic, b"\x00\x00\x0f\x42\x3f\x00")
        assert producer.flush(60) == 0
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    typed = decode(
        reader.option("kafka.isolation.level", "read_committed").load(),
        registry=registry,
        subject=subject,
        failure_column="failure",
    )
    good = typed.where("failure IS NULL").select("value.id", "value.name", "value.note").orderBy("id").collect()
    assert [tuple(row) for row in good] == [(1, "one", None), (2, None, None), (3, "three", "!")]
    (bad,) = typed.where("failure IS NOT NULL").select("failure.*").collect()
    assert (bad.schemaId, bad.error) == (999_999, "There is no schema with id 999999.")

    asked = tmp_path / "asked.csv"
    query = f"select id, note from `{topic}` where id is not null order by id"
    status, said = run("sql", query, "--bootstrap", node.bootstrap, "--registry", registry, "--output", str(asked))
    assert status == 1, "a record of an unknown schema"
    assert "There is no schema with id 999999." in said
    other = new_topic(name=f"{topic}-sound")
    with SchemaRegistryClient({"url": registry}) as client:
        context = SerializationContext(other, MessageField.VALUE)
        row = AvroSerializer(client, json.dumps(newer))({"id": 4, "name": None, "ns": [], "note": "four"}, context)
        producer.produce(other, row)
        assert producer.flush(60) == 0
    status, said = run("sql", f"select id, note from `{other}`", "--bootstrap", node.bootstrap, "--registry", registry)
    assert status == 0, said
    assert re.search(r"4\D+four", said)
    assert not asked.exists()


def test_a_schema_that_refers_to_another(spark: SparkSession, registry: str) -> None:
    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "city", "type": "City"}]}
    with SchemaRegistryClient({"url": registry}) as client:
        client.register_schema("referred", Schema(json.dumps(city), "AVRO"))
        whole = Schema(json.dumps(order), "AVRO", [SchemaReference("City", "referred", 1)])
        written: Any = AvroSerializer(client, whole)
        record = written({"city": {"name": "Graz"}}, SerializationContext("refers", MessageField.VALUE))
    frame = spark.createDataFrame([(bytearray(record),)], "value binary")
    value = from_confluent_avro("value", registry=registry, subject="refers-value")
    assert [row.name for row in frame.select(value.alias("v")).select("v.city.name").collect()] == ["Graz"]


def test_our_tool_shows_and_changes_its_schemas(registry: str, tmp_path: Path) -> None:
    def schema(*arguments: str) -> tuple[int, str]:
        return run("schema", *arguments, "--schema-registry", registry)

    first, second, wrong = (tmp_path / f"{name}.avsc" for name in ("first", "second", "wrong"))
    fields: list[dict[str, object]] = [{"name": "id", "type": "long"}]
    first.write_text(json.dumps({"type": "record", "name": "Tool", "fields": fields}))
    added = [*fields, {"name": "note", "type": "string", "default": ""}]
    second.write_text(json.dumps({"type": "record", "name": "Tool", "fields": added}))
    wrong.write_text(json.dumps({"type": "record", "name": "Tool", "fields": [{"name": "id", "type": "string"}]}))
    assert schema("register", "tool-value", str(first))[0] == 0
    assert schema("check", "tool-value", str(second)) == (0, "compatible\n")
    status, said = schema("check", "tool-value", str(wrong))
    assert (status, said.startswith("not compatible:")) == (1, True), said
    status, said = schema("register", "tool-value", str(wrong))
    assert status == 1, said
    assert "refuses" in said
    assert schema("register", "tool-value", str(second))[0] == 0
    status, said = schema("list", "--json")
    rows = {row["subject"]: row for row in map(json.loads, said.splitlines())}
    assert (status, rows["tool-value"]["versions"], rows["tool-value"]["compatibility"]) == (0, [1, 2], "BACKWARD")
    status, said = schema("get", "tool-value", "-v", "1")
    assert json.loads(said) == json.loads(first.read_text())
    status, said = schema("get", "nobody-value")
    assert status == 1, said
    assert "Traceback" not in said
