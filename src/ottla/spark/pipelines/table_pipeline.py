"""The pipeline `table`: a topic into a table, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.pipelines.definition import Pipeline
from ottla.spark.pipelines.sinks import TopicSink, to_table
from ottla.spark.source.options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topic_to_table(
    *,
    bootstrap: str,
    topic: str,
    location: Path,
    format: str,
    by: str,
    name: str | None,
    properties: Mapping[str, str] | None = None,
) -> Pipeline:
    """Every committed record of the topic, from its beginning, with where it came from. `properties` are a client's:
    how to log in."""

    options = kafka_options({**(properties or {}), "bootstrap.servers": bootstrap})

    def build(spark: SparkSession) -> DataFrame:
        return (
            spark.readStream.format("ottla")
            .options(**options)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("groupIdPrefix", name or f"table-{topic}")
            .load()
        )

    sink = to_table(location, format, time=None if by == "none" else "timestamp", by=by)
    return Pipeline(name=name or f"table-{topic}", build=build, sink=sink)


def table_to_topic(
    *,
    bootstrap: str,
    topic: str,
    location: Path,
    format: str,
    name: str | None,
    properties: Mapping[str, str] | None = None,
) -> Pipeline:
    """Every row of the table, as it is now: the columns key, value, headers and timestamp if it has them, else each
    row as JSON."""
    called = name or f"topic-{topic}"

    def build(spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as F

        from ottla.spark.pipelines.tables.sink import read_table

        rows = read_table(spark, location, format)
        if "value" in rows.columns:
            kept = [name for name in ("key", "value", "headers", "timestamp") if name in rows.columns]
            return rows.select(*kept)
        return rows.select(F.to_json(F.struct(*rows.columns)).cast("binary").alias("value"))

    return Pipeline(name=called, build=build, sink=TopicSink(bootstrap, topic, kafka_options(properties or {})))
