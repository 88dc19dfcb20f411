"""The sink of a pipeline that fills a table, and the way back: a table's rows as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ottla.spark.crash_points import reached
from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.sinks import Run
from ottla.spark.pipelines.tables.delta import DeltaTable
from ottla.spark.pipelines.tables.files import StagedFile, forget_unfinished, stage
from ottla.spark.pipelines.tables.iceberg import IcebergTable
from ottla.spark.pipelines.tables.partitioning import TimePartitioning, time_partitioning

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("iceberg", "delta", "parquet")
BATCHES_TO_COMPACT = 16
"""After so many batches small files are looked for."""

_STREAMED = "_spark_metadata"
"""What a stream of Spark's notes its files in."""
_HIDDEN = "_unfinished"
"""Readers of Parquet pass over names that begin so."""


class Table(Protocol):
    """A table whose commits know the number of the last batch."""

    @property
    def directory(self) -> Path:
        """Where files lie."""
        ...

    def last_batch(self, app: str) -> int: ...

    def commit(self, staged: Sequence[StagedFile], schema: pa.Schema, app: str, batch: int) -> None: ...

    def files(self) -> list[str]:
        """What it is made of now; nothing before there is a table."""
        ...

    def compact(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TableSink:
    location: Path
    format: str
    partitioning: TimePartitioning | None

    @classmethod
    def at(cls, location: str | Path, format: str, *, time: str | None, by: str) -> TableSink:
        if format not in FORMATS:
            raise PipelineError(f"There are no tables of the format {format}: choose {', '.join(FORMATS)}.")
        return cls(Path(location), format, time_partitioning(time, by))

    def start(self, frame: DataFrame, run: Run) -> StreamingQuery:
        self._check_checkpoint(run)
        if self.format == "parquet":
            return _parquet_stream(self._with_partition(frame), self, run)
        filler = Filler(self._table(), self, run.name)
        filler.forget_unfinished()
        return run.prepare(frame).foreachBatch(filler.add).start()

    def write(self, frame: DataFrame, run: Run) -> None:
        if self.format == "parquet":
            self._write_parquet(frame, run)
            return
        filler = Filler(self._table(), self, run.sink_id)
        filler.forget_unfinished()
        filler.add(frame, run.number)

    def _write_parquet(self, frame: DataFrame, run: Run) -> None:
        """Plain files have no commit. So those of a run have its number in their names, and a run that broke off, in
        whichever step, begins by removing what it has left; until all are written they lie where no reader looks."""
        if (self.location / _STREAMED).exists():
            raise PipelineError(
                f"The table {self.location} is filled by a stream, and who reads it sees the stream's rows alone: "
                "choose another table."
            )
        forget_unfinished(self.location, run.sink_id, run.number - 1, known=tuple)
        hidden = self.location / _HIDDEN
        staged = stage(frame, hidden, run.sink_id, run.number, self.partitioning, into_partitions=True)
        reached("table-staged")
        for each in staged:
            place = self.location / Path(each.path).relative_to(hidden)
            place.parent.mkdir(parents=True, exist_ok=True)
            Path(each.path).rename(place)
        reached("table-committed")

    def _check_checkpoint(self, run: Run) -> None:
        """Batches are known by their numbers, which the checkpoint counts. Those of another one would be taken for
        batches that the table has, and left out; and a table that lacks some of this one's would never get them."""
        if self.format == "parquet":
            filled = _greatest_number(self.location / _STREAMED)
        else:
            filled = self._table().last_batch(run.name)
        if filled > _greatest_number(run.checkpoint / "offsets"):
            raise PipelineError(
                f"The table {self.location} was filled from another checkpoint than {run.checkpoint}: it has batch "
                f"{filled} of {run.name} already. Bring that checkpoint back, or fill another table."
            )
        done = _greatest_number(run.checkpoint / "commits")
        if filled < done:
            raise PipelineError(
                f"{run.name} has come to batch {done}, and the table {self.location} lacks what it has read so far: "
                "those rows went to another table, or this one was removed. Go on with that table, or fill this one "
                "from the beginning under another name."
            )

    def _table(self) -> Table:
        if self.format == "iceberg":
            return IcebergTable(self.location, self.partitioning)
        return DeltaTable(self.location, self.partitioning)

    def _with_partition(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if self.partitioning is None:
            return frame
        shape = {"hour": "yyyy-MM-dd-HH", "day": "yyyy-MM-dd", "month": "yyyy-MM"}[self.partitioning.unit.value]
        return frame.withColumn(self.partitioning.field, F.date_format(self.partitioning.column, shape))


@dataclass(slots=True)
class Filler:
    """Adds batch after batch to a table; one that is in it already is left out."""

    table: Table
    sink: TableSink
    app: str
    _is_first: bool = True

    def add(self, frame: DataFrame, batch: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        there = self.table.last_batch(self.app)
        is_first, self._is_first = self._is_first, False
        if is_first and batch == there:
            return  # The run before broke off between the table's commit and Spark's.
        if batch <= there:
            raise PipelineError(
                f"Another pipeline of the name {self.app} fills the table {self.sink.location} too: that one has added "
                f"batch {there}, and this one comes with batch {batch}. Stop one of them, and give it its own name."
            )
        partitioning = self.sink.partitioning
        if partitioning is not None and partitioning.column not in frame.columns:
            raise PipelineError(
                f"The rows have no column {partitioning.column} to partition the table by: name another, or none."
            )
        # A column that is never null today may be missing tomorrow.
        schema = to_arrow_schema(frame.schema.toNullable(), timezone="UTC")
        staged = stage(
            frame,
            self.table.directory,
            self.app,
            batch,
            partitioning,
            into_partitions=self.sink.format == "delta",
        )
        reached("table-staged")
        self.table.commit(staged, schema, self.app, batch)
        reached("table-committed")
        if batch % BATCHES_TO_COMPACT == BATCHES_TO_COMPACT - 1:
            self.table.compact()

    def forget_unfinished(self) -> None:
        last = self.table.last_batch(self.app)
        forget_unfinished(self.table.directory, self.app, last, known=self.table.files)


def read_table(spark: SparkSession, location: str | Path, format: str) -> DataFrame:
    """The rows that the table has now."""
    sink = TableSink.at(location, format, time=None, by="day")
    if format == "parquet":
        return spark.read.parquet(str(location))
    files = sink._table().files()
    if not files:
        raise PipelineError(f"There is no table at {location}, or it has no rows yet: run its pipeline first.")
    base = str(sink.location.absolute())
    return spark.read.option("basePath", base).option("mergeSchema", "true").parquet(*files)


def _greatest_number(directory: Path) -> int:
    """Of the files that one of Spark's logs is made of (`7`, `9.compact`); -1 if there are none."""
    names = (path.name.removesuffix(".compact") for path in directory.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _parquet_stream(frame: DataFrame, sink: TableSink, run: Run) -> StreamingQuery:
    writer = run.prepare(frame).format("parquet").option("path", str(sink.location.absolute()))
    if sink.partitioning is not None:
        writer = writer.partitionBy(sink.partitioning.field)
    return writer.start()
