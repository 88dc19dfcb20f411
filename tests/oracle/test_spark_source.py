"""The Spark source reads Apache Kafka too, and Apache Kafka's own tools show its lag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import local_session

from .conftest import At

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_session(tmp_path_factory.mktemp("warehouse")) as running:
        yield running


def test_a_topic_of_apache_kafka_as_a_dataframe_and_its_lag(
    at_apache: At, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    at_apache("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    lines = [f"k{number}\tvalue {number}" for number in range(300)]
    keyed = ["--reader-property", "parse.key=true", "--compression-codec", "zstd"]
    at_apache("kafka-console-producer", "--topic", topic, *keyed, stdin="\n".join(lines) + "\n")
    options = {"kafka.bootstrap.servers": at_apache.bootstrap, "subscribe": topic}
    batch = spark.read.format("ottla").options(**options).load()
    found = batch.selectExpr("concat(string(key), '\t', string(value)) line").collect()
    assert sorted(row.line for row in found) == sorted(lines)

    counts: list[int] = []

    def count(rows: DataFrame, number: int) -> None:
        counts.append(rows.count())

    stream = spark.readStream.format("ottla").options(**options, startingOffsets="earliest", groupIdPrefix="lag").load()
    writing = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sum(counts) == 300
    described = at_apache("kafka-consumer-groups", "--describe", "--group", f"lag-{topic}")
    rows = [line.split() for line in described.lines if topic in line]
    # Group, topic, partition, current offset, log end offset, lag.
    assert len(rows) == 2
    assert all(row[3] == row[4] and row[5] == "0" for row in rows), described.out
