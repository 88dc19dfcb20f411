"""Dead letters go back, each once, to where they came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.spark.dead_letters import DeadLetter, send
from ottla.spark.pipelines.definition import Pipeline, PipelineError
from ottla.spark.pipelines.home import Home, Status
from ottla.spark.pipelines.redrive import redrive
from ottla.spark.pipelines.runner import run_pipeline
from tests.spark.conftest import Broker, NewTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Found = list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]

T0_MS = 1_790_000_000_000


def letter(topic: str, partition: int, offset: int, error: str = "The schema is not known.") -> DeadLetter:
    return DeadLetter(
        key=b"key",
        value=b"%s/%d/%d" % (topic.encode(), partition, offset),
        headers=(("own", b"header"), ("none", None)),
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=T0_MS + offset,
        error=error,
        schema_id=7,
        column="value",
    )


def write(node: Broker, dead: str, letters: list[DeadLetter]) -> None:
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": node.bootstrap})) as client:
        send(client, dead, letters)


def run_once(pipeline: Pipeline, root: Path) -> Status:
    return run_pipeline(pipeline, Home(root / pipeline.name), once=True, interval_s=0, tell=lambda status: None)


def read(spark: SparkSession, node: Broker, topic: str) -> Found:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", node.bootstrap)
    committed = reader.option("kafka.isolation.level", "read_committed").option("includeHeaders", "true")
    records = committed.option("subscribe", topic).load().withColumn("ms", F.unix_millis("timestamp"))
    rows = records.orderBy("partition", "offset").collect()

    def plain(value: bytearray | None) -> bytes | None:
        return None if value is None else bytes(value)

    return [
        (
            row["partition"],
            row["ms"],
            plain(row["key"]),
            plain(row["value"]),
            [(each["key"], plain(each["value"])) for each in row["headers"] or []],
        )
        for row in rows
    ]


def expected(letters: list[DeadLetter]) -> Found:
    return [(each.partition, T0_MS + each.offset, each.key, each.value, list(each.headers)) for each in letters]


def test_letters_go_back_once(
    spark: SparkSession, node: Broker, new_topic: NewTopic, crash_plan: Path, tmp_path: Path
) -> None:
    orders = new_topic(2)
    returns = new_topic(1, name=f"{orders}-returns")
    dead = new_topic(1, name=f"{orders}-dead")
    first = [letter(orders, partition, offset) for partition in range(2) for offset in range(20)]
    other = [letter(returns, 0, offset) for offset in (3, 5)]
    # A task that was tried again has written some of them again.
    write(node, dead, [*first, *other, *first[5:25]])
    pipeline = redrive(bootstrap=node.bootstrap, dead_letter_topic=dead)
    crash_plan.write_text("after-Committing-RecordDecision")
    with pytest.raises(PipelineError):
        run_once(pipeline, tmp_path)
    assert not crash_plan.exists(), "it died when the batch was decided, and before it was committed"
    assert run_once(pipeline, tmp_path).lag_in_all == 0
    assert read(spark, node, orders) == expected(first)
    assert read(spark, node, returns) == expected(other)
    # What has come since, and nothing else.
    write(node, dead, [letter(returns, 0, 9)])
    run_once(pipeline, tmp_path)
    assert read(spark, node, orders) == expected(first)
    assert read(spark, node, returns) == expected([*other, letter(returns, 0, 9)])


def test_letters_go_elsewhere_and_strangers_are_named(
    spark: SparkSession, node: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    mended = new_topic(1)
    dead = new_topic(1, name=f"{mended}-dead")
    write(node, dead, [letter("long.gone", 4, 1)])
    pipeline = redrive(bootstrap=node.bootstrap, dead_letter_topic=dead, to=mended)
    run_once(pipeline, tmp_path)
    assert [each[3] for each in read(spark, node, mended)] == [b"long.gone/4/1"]
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(dead, b"no letter")
    assert producer.flush(60) == 0
    with pytest.raises(PipelineError, match=f"The record at offset 1 of {dead} is no dead letter"):
        run_once(pipeline, tmp_path)


def test_letters_that_a_condition_leaves_out_are_there_for_the_next_run(
    spark: SparkSession, node: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    orders = new_topic(1)
    dead = new_topic(1, name=f"{orders}-dead")
    mended = [letter(orders, 0, offset) for offset in range(0, 20, 2)]
    broken = [letter(orders, 0, offset, error="It is cut off.") for offset in range(1, 20, 2)]
    write(node, dead, [*mended, *broken])

    def run(where: str | None) -> None:
        run_once(redrive(bootstrap=node.bootstrap, dead_letter_topic=dead, where=where), tmp_path)

    run("error like '%not known%' and schema_id = 7 and offset < 100")
    assert read(spark, node, orders) == expected(mended)
    run(None)
    assert read(spark, node, orders) == expected([*mended, *broken]), "each once, with its own headers alone"
    write(node, dead, [letter(orders, 0, 99)])
    with pytest.raises(PipelineError, match="nothing"):
        run("nothing = 1")
