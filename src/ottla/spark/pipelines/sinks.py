"""Where the rows of a pipeline go. A sink says how a stream is started and how a batch is written; both exactly once,
if the sink can."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ottla.spark.sink.checkpoints import query_id_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.spark.pipelines.tables.sink import TableSink


NAME_LENGTH_MAX = 150
"""Of a pipeline's name, as part of an id that takes 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a pipeline."""

    name: str
    checkpoint: Path
    number: int = 0
    """Of a batch run: the same again until it has finished, so that a sink knows what it has written."""
    identity: str = ""
    """Of the home that counts the runs."""
    once: bool = False
    """Stop at what is there when the run begins."""
    interval_s: float = 0.0
    """The least time from batch to batch."""

    @property
    def sink_id(self) -> str:
        """By which a sink knows the runs of this home: a home that was lost and made anew counts from 0 again, and its
        runs are others."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", self.name)[:NAME_LENGTH_MAX]
        return f"{name}-{self.identity}" if self.identity else name

    def prepare(self, frame: DataFrame) -> DataStreamWriter:
        writer = frame.writeStream.queryName(self.name).option("checkpointLocation", str(self.checkpoint.absolute()))
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.interval_s * 1000)} milliseconds")


class Sink(Protocol):
    def start(self, frame: DataFrame, run: Run) -> StreamingQuery: ...

    def write(self, frame: DataFrame, run: Run) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicSink:
    bootstrap: str
    topic: str | None
    options: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[DataFrame], DataFrame] | None = None
    """What is done with each batch of a stream before it is written: a batch, and so no stream any more."""

    def start(self, frame: DataFrame, run: Run) -> StreamingQuery:
        writer = run.prepare(frame)
        if self.prepare is None:
            return writer.format("ottla").options(**self._options()).start()
        prepare = self.prepare

        def write(batch: DataFrame, number: int) -> None:
            # The query's own id: a checkpoint that is made anew counts from 0 again, and must be another sink's.
            self._write(prepare(batch), query_id_of(str(run.checkpoint.absolute())), number)

        return writer.foreachBatch(write).start()

    def write(self, frame: DataFrame, run: Run) -> None:
        self._write(frame if self.prepare is None else self.prepare(frame), run.sink_id, run.number)

    def _write(self, frame: DataFrame, sink_id: str, number: int) -> None:
        known = {"sinkId": sink_id, "batchId": str(number)} if self._is_exact() else {}
        frame.write.format("ottla").mode("append").options(**known, **self._options()).save()

    def _is_exact(self) -> bool:
        """And is it ours to say how the sink is known again?"""
        from ottla.spark.sink.options import DeliveryGuarantee, SinkOptions

        options = SinkOptions.parse(self._options())
        return options.guarantee is DeliveryGuarantee.EXACTLY_ONCE and options.sink_id is None

    def _options(self) -> dict[str, str]:
        named = {"topic": self.topic} if self.topic is not None else {}
        return {"kafka.bootstrap.servers": self.bootstrap, **named, **self.options}


@dataclass(frozen=True, slots=True)
class BatchSink:
    """A function of the user's own. It gets the batches of a stream in order, and one of them twice if a run broke off
    after the function and before the checkpoint: the number tells."""

    function: Callable[[DataFrame, int], None]

    def start(self, frame: DataFrame, run: Run) -> StreamingQuery:
        return run.prepare(frame).foreachBatch(self.function).start()

    def write(self, frame: DataFrame, run: Run) -> None:
        self.function(frame, run.number)


def to_topic(bootstrap: str, topic: str | None = None, **options: str) -> TopicSink:
    """Into a topic, exactly once; without `topic` the column of that name says which. `options` are those of the sink;
    an underscore stands for a dot, as in kafka_security_protocol."""
    return TopicSink(bootstrap, topic, {key.replace("_", "."): value for key, value in options.items()})


def to_table(
    location: str | Path, format: str = "iceberg", *, time: str | None = "timestamp", by: str = "day"
) -> TableSink:
    """Into a table, exactly once: `format` is iceberg, delta or parquet; partitioned `by` hour, day or month of the
    column `time`, or not at all if that is None."""
    from ottla.spark.pipelines.tables.sink import TableSink

    return TableSink.at(location, format, time=time, by=by)


def each_batch(function: Callable[[DataFrame, int], None]) -> BatchSink:
    """Into a function of a DataFrame and the number of its batch."""
    return BatchSink(function)
