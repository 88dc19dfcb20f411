"""Topics as tables of Spark's SQL: every topic that a query names becomes a view, typed where a schema says how.

A record is a row: the fields of its value as columns if the registry has an Avro schema for it (`TOPIC-value`), else
the column `value` as text; and `key`, `partition`, `offset` and `timestamp`, unless a field has that name. What is no
text is shown as `0x…`. Driven by the command `ottla sql`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.blocking import BlockingClient
from ottla.client.registry import RegistrySettings, RegistryUnavailable, UnknownSchema, shared_registry
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.errors import KafkaError
from ottla.model import INTERNAL_TOPICS
from ottla.runtime.blocking import pause
from ottla.spark.avro import decode
from ottla.spark.crash_points import reached
from ottla.spark.failures import first_cause, one_line
from ottla.spark.source.options import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

FILES = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_LOOK_S = 0.1


class SqlError(Exception):
    """A query cannot be answered; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of a cluster, for one query."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """A client's others: how to log in, to the registry too."""
    registry: str | None = None
    streaming: bool = False
    from_beginning: bool = True

    def names(self) -> list[str]:
        """Raises `SqlError` if the cluster does not answer."""
        try:
            with BlockingClient(ClientSettings.parse(self._client())) as client:
                return sorted(set(client.topics()) - INTERNAL_TOPICS)
        except InvalidClientConfig as error:
            raise SqlError(str(error)) from None
        except KafkaError as error:
            reason = error.message or error.code.name
            raise SqlError(f"The topics of {self.bootstrap} cannot be listed: {reason}.") from None

    def answer(self, spark: SparkSession, query: str, names: Iterable[str]) -> DataFrame:
        """The query's rows, not computed yet. Raises `SqlError`."""
        from pyspark.errors import AnalysisException

        known = list(names)
        try:
            for topic in named_in(query, known):
                self.table(spark, topic).createOrReplaceTempView(f"`{topic}`")
            return spark.sql(query)
        except AnalysisException as error:
            if error.getCondition() == _UNKNOWN_TABLE:
                name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
                there = f"it has {', '.join(known)}" if known else "it has none"
                raise SqlError(f"The cluster at {self.bootstrap} has no topic {name}: {there}.") from None
            raise SqlError(one_line(error)) from None
        except (RegistryUnavailable, ValueError) as error:
            raise SqlError(str(error)) from None

    def table(self, spark: SparkSession, topic: str) -> DataFrame:
        reader = spark.readStream if self.streaming else spark.read
        records = (
            reader.format("ottla")
            .options(**kafka_options(self._client()))
            .option("subscribe", topic)
            .option("startingOffsets", "earliest" if self.from_beginning else "latest")
            .option("kafka.isolation.level", "read_committed")
            .option("commitProgress", "false")
            .load()
            .select("key", "value", "partition", "offset", "timestamp")
        )
        for column in ("key", "value"):
            subject = f"{topic}-{column}"
            if self.registry is not None and self._has_avro(subject):
                records = decode(
                    records, registry=self.registry, subject=subject, column=column, options=self.properties
                )
            else:
                records = records.withColumn(column, text_of(column))
        return flat(records)

    def _client(self) -> dict[str, str]:
        return {**self.properties, "bootstrap.servers": self.bootstrap}

    def _has_avro(self, subject: str) -> bool:
        assert self.registry is not None
        try:
            settings = RegistrySettings.parse(self.registry, self.properties)
            return shared_registry(settings).latest(subject).kind == "AVRO"
        except UnknownSchema:
            return False


def named_in(query: str, topics: Iterable[str]) -> list[str]:
    """The topics whose names are words of the query. One that is only a column's costs a view that nobody reads."""
    return [each for each in topics if re.search(rf"(?<![A-Za-z0-9_]){re.escape(each)}(?![A-Za-z0-9_])", query)]


def text_of(column: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.try_validate_utf8(F.col(column).cast("string")), F.concat(F.lit("0x"), F.hex(column)))


def flat(records: DataFrame) -> DataFrame:
    """The fields of a value that is a record, in front of the columns whose names they leave free."""
    from pyspark.sql.types import StructType

    kind = records.schema["value"].dataType
    if not isinstance(kind, StructType):
        return records
    taken = {name.lower() for name in kind.names}
    return records.select("value.*", *(name for name in records.columns if name != "value" and name not in taken))


def rows_of(frame: DataFrame, count: int) -> list[Row]:
    """The first so many. Raises `SqlError`."""
    try:
        return frame.limit(count).collect()
    except Exception as error:
        raise SqlError(first_cause(error)) from error


def each_row(frame: DataFrame) -> Iterator[Row]:
    """All of them, a partition after the other. Raises `SqlError`."""
    try:
        yield from frame.toLocalIterator()
    except Exception as error:
        raise SqlError(first_cause(error)) from error


def write_file(frame: DataFrame, path: Path) -> int:
    """One file of the kind that its name says; how many rows it has. Raises `SqlError`."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    kind = FILES[path.suffix]
    counted = Observation()
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".ottla-sql-") as directory:
        writer = frame.observe(counted, F.count(F.lit(1)).alias("rows")).coalesce(1).write.mode("overwrite")
        try:
            writer.options(**({"header": "true"} if kind == "csv" else {})).format(kind).save(directory)
        except Exception as error:
            raise SqlError(first_cause(error)) from error
        (part,) = Path(directory).glob("part-*")
        reached("file-written")
        part.replace(path)  # Whole at once: until then, what was there is there.
    return int(counted.get["rows"])


def follow(frame: DataFrame, limit: int | None, show: Callable[[list[Row]], None], is_over: Callable[[], bool]) -> int:
    """Shows rows as they come, until there are `limit` or it is over. Raises `SqlError`."""
    shown = 0

    def take(batch: DataFrame, number: int) -> None:
        nonlocal shown
        found = batch.collect() if limit is None else batch.limit(limit - shown).collect()
        if found:
            show(found)
            shown += len(found)

    with tempfile.TemporaryDirectory(prefix="ottla-sql-") as checkpoint:
        writer = frame.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        try:
            query = writer.foreachBatch(take).start()
        except Exception as error:
            raise SqlError(one_line(error)) from error
        try:
            while query.isActive and not is_over() and (limit is None or shown < limit):
                pause(_LOOK_S)
            failure = query.exception()
        finally:
            query.stop()
    if failure is not None:
        raise SqlError(first_cause(failure))
    return shown
