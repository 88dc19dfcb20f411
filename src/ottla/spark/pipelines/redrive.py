"""The pipeline `redrive`: dead letters back to the topics that they came from, once what was wrong is mended.

A letter goes back as the record that it was, without the headers of its journey, to the partition that it came from. A
task that was tried again may have written a letter twice: of the same letters in a run one goes back. Where it stopped
is in its checkpoint, so a second run sends what has come since. Letters that a condition leaves out are written to the
end of the dead-letter topic again, in the same transaction in which the others go back: the next run finds them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.spark import dead_letters
from ottla.spark.pipelines.definition import Pipeline
from ottla.spark.pipelines.sinks import TopicSink
from ottla.spark.source.options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PREFIX = "dead.letter."
_ALL_HEADERS = "all_headers"


def redrive(
    *,
    bootstrap: str,
    dead_letter_topic: str,
    to: str | None = None,
    where: str | None = None,
    name: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Pipeline:
    """With `to`, all go there, to the partitions that their keys say. With `where`, a condition of Spark's SQL on the
    columns of `opened`, those that meet it. It is for runs that end: what is left out comes again. `properties` are a
    client's: how to log in."""
    called = name or f"redrive-{dead_letter_topic}"
    options = kafka_options({**(properties or {}), "bootstrap.servers": bootstrap})

    def build(spark: SparkSession) -> DataFrame:
        records = (
            spark.readStream.format("ottla")
            .options(**options)
            .option("subscribe", dead_letter_topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.group.id", called)
            .load()
        )
        return opened(records)

    def prepare(letters: DataFrame) -> DataFrame:
        return addressed(letters, dead_letter_topic, to=to, where=where)

    return Pipeline(name=called, build=build, sink=TopicSink(bootstrap, None, options, prepare=prepare))


def opened(letters: DataFrame) -> DataFrame:
    """The records of dead letters, each with the topic, the partition, the offset and the timestamp that it had, and
    what was wrong with it."""
    from pyspark.sql import functions as F

    def told(header: str) -> Column:
        found = F.filter("headers", lambda each: each["key"] == header)
        # The last, if a letter became one again: that was written by whoever put it here.
        return F.try_element_at(found, F.lit(-1))["value"].cast("string")

    place = F.concat(F.lit("The record at offset "), F.col("offset"), F.lit(" of "), F.col("topic"))
    unknown = F.raise_error(F.concat(place, F.lit(" is no dead letter: it does not say which topic it came from.")))
    return letters.select(
        F.coalesce(told(dead_letters.TOPIC), unknown).alias("topic"),
        told(dead_letters.PARTITION).cast("int").alias("partition"),
        told(dead_letters.OFFSET).cast("long").alias("offset"),
        F.timestamp_millis(told(dead_letters.TIMESTAMP).try_cast("long")).alias("timestamp"),
        told(dead_letters.ERROR).alias("error"),
        told(dead_letters.SCHEMA_ID).try_cast("int").alias("schema_id"),
        "key",
        "value",
        F.filter("headers", lambda each: ~each["key"].startswith(_PREFIX)).alias("headers"),
        F.col("headers").alias(_ALL_HEADERS),
    )


def addressed(letters: DataFrame, dead_letter_topic: str, *, to: str | None, where: str | None) -> DataFrame:
    """One of each letter, those of a partition in the order that they had there, and where each goes."""
    from pyspark.sql import functions as F

    place = ("topic", "partition", "offset")
    sorted_ = letters.dropDuplicates(list(place)).repartition(*place[:2]).sortWithinPartitions(*place)
    goes = F.lit(True) if where is None else F.coalesce(F.expr(where), F.lit(False))
    return sorted_.select(
        F.when(goes, F.col("topic") if to is None else F.lit(to)).otherwise(dead_letter_topic).alias("topic"),
        F.when(goes & F.lit(to is None), F.col("partition")).alias("partition"),
        F.when(goes, F.col("timestamp")).alias("timestamp"),
        "key",
        "value",
        F.when(goes, F.col("headers")).otherwise(F.col(_ALL_HEADERS)).alias("headers"),
    )
