"""The pipeline `mirror`: topics of one cluster into another, exactly once, whatever else the two send each other.

A record keeps its topic, partition, key, value, headers and timestamp, and gets one header more for each cluster that
it was mirrored from: the cluster's id and the offset that it had there. What has been in the target cluster is not sent
there again, so two clusters may mirror each other, and more may stand in a ring.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.admin.cluster import describe_cluster
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.errors import KafkaError
from ottla.spark.pipelines.definition import Pipeline, PipelineError
from ottla.spark.pipelines.mirror_groups import GroupTranslator
from ottla.spark.pipelines.mirror_topics import TopicMaker
from ottla.spark.pipelines.sinks import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER = "ottla.mirror"
"""Its value is `CLUSTER:OFFSET`."""

TOPICS = "[^_].*"
"""Which are mirrored unless others are named: `_schemas` and its like belong to a cluster."""
_NEVER = "(?!__|_ottla_)"
"""What Kafka and the sink keep for themselves."""


@dataclass(frozen=True, slots=True)
class MirrorEnd:
    """A cluster, with settings under the names that Kafka's clients give them."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def client_settings(self, client_id: str) -> ClientSettings:
        try:
            return ClientSettings.parse({**self.settings, "bootstrap.servers": self.bootstrap, "client.id": client_id})
        except InvalidClientConfig as error:
            raise PipelineError(str(error)) from None

    def options(self) -> dict[str, str]:
        """For Spark's readers and writers."""
        return {
            **{f"kafka.{key}": value for key, value in self.settings.items()},
            "kafka.bootstrap.servers": self.bootstrap,
        }

    def cluster_id(self) -> str:
        """Raises `PipelineError` if nobody answers."""
        with BlockingClient(self.client_settings("ottla-mirror")) as client:
            try:
                return describe_cluster(client).cluster_id
            except KafkaError as error:
                reason = error.message or error.code.name
                raise PipelineError(f"The cluster at {self.bootstrap} does not answer: {reason}.") from error


def mirror(
    source: MirrorEnd,
    target: MirrorEnd,
    *,
    topics: str = TOPICS,
    groups: str = ".*",
    skip_lost: bool = False,
    name: str | None = None,
) -> Pipeline:
    """`topics` and `groups` are regular expressions of whole names. Raises `PipelineError`."""
    for option, text in (("--topics", topics), ("--groups", groups)):
        try:
            re.compile(text)
        except re.error as error:
            raise PipelineError(f"{option} is {text!r}, which is not a regular expression: {error}.") from None
    source_id, target_id = source.cluster_id(), target.cluster_id()
    if source_id == target_id:
        raise PipelineError(f"{source.bootstrap} and {target.bootstrap} are the same cluster, {source_id}.")
    called = name or re.sub(r"[^A-Za-z0-9.]+", "-", f"mirror-{source.bootstrap}-to-{target.bootstrap}")
    pattern = f"{_NEVER}(?:{topics})"

    def build(spark: SparkSession) -> DataFrame:
        records = (
            spark.readStream.format("ottla")
            .options(**source.options())
            .option("subscribePattern", pattern)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.group.id", called)
            .option("failOnDataLoss", str(not skip_lost).lower())
            .load()
        )
        return marked(records, source_id, target_id)

    maker = TopicMaker(
        source=source.client_settings("ottla-mirror-topics"),
        target=target.client_settings("ottla-mirror-topics"),
        pattern=pattern,
    )

    def prepare(batch: DataFrame) -> DataFrame:
        maker.make()
        return batch

    translator = GroupTranslator(
        source=source.client_settings("ottla-mirror-groups"),
        target_options=target.options(),
        mark=(HEADER, source_id),
        topics=pattern,
        groups=groups,
        own_group=called,
    )
    sink = TopicSink(target.bootstrap, None, target.options(), prepare)
    return Pipeline(name=called, build=build, sink=sink, errand=translator.translate)


def marked(records: DataFrame, source_id: str, target_id: str) -> DataFrame:
    """The records that have not been in the target, each with a header that says where it comes from."""
    from pyspark.sql import functions as F

    headers = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    was_there = F.exists(
        headers,
        lambda each: (each["key"] == HEADER) & each["value"].cast("string").startswith(f"{target_id}:"),
    )
    place = F.concat(F.lit(f"{source_id}:"), F.col("offset").cast("string")).cast("binary")
    mark = F.array(F.struct(F.lit(HEADER).alias("key"), place.alias("value")))
    return records.where(~F.coalesce(was_there, F.lit(False))).select(
        "topic", "partition", "timestamp", "key", "value", F.concat(headers, mark).alias("headers")
    )
