"""The Parquet files of one batch, written by Spark's tasks. A file has rows of one partition only.

A file's name begins with the pipeline's and the batch's, so that those of an attempt that broke off can be told from
those that are in the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.tables.partitioning import TimePartitioning

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

_COLUMNS = "path STRING, partition STRING, rows BIGINT, bytes BIGINT"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    path: str
    partition: str | None
    """As `TimePartitioning.shape` writes it; None for rows without a time, and where there are no partitions."""
    rows: int
    bytes: int


def stage(
    frame: DataFrame,
    directory: Path,
    app: str,
    batch: int,
    partitioning: TimePartitioning | None,
    *,
    into_partitions: bool = False,
) -> list[StagedFile]:
    """Write all rows of `frame`; `into_partitions`: into a directory for each, without the rows' partition itself."""
    task = writing(directory, stem(app, batch), partitioning, into_partitions=into_partitions)
    return [StagedFile(**row.asDict()) for row in frame.mapInArrow(task, _COLUMNS).collect()]


def local_path(uri: str) -> str:
    return uri.removeprefix("file://")


def stem(app: str, batch: int) -> str:
    return f"{re.sub(r'[^A-Za-z0-9.]', '_', app)}-{batch}-"


def forget_unfinished(directory: Path, app: str, last: int, *, known: Callable[[], Iterable[str]]) -> int:
    """Remove the files of batches after `last` that are not among those which `known` says the table has. How many
    there were."""
    begin = re.compile(re.escape(stem(app, 0).removesuffix("0-")) + r"(\d+)-[0-9a-f]{32}\.parquet$")
    named = ((path, begin.match(path.name)) for path in directory.rglob("*.parquet"))
    late = [path for path, found in named if found is not None and int(found.group(1)) > last]
    kept = {local_path(each) for each in known()} if late else set()
    unfinished = [path for path in late if str(path) not in kept]
    for path in unfinished:
        path.unlink()
    return len(unfinished)


def writing(
    directory: Path, begin: str, partitioning: TimePartitioning | None, *, into_partitions: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its rows: it tells of the files that it has written."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        writers = _Writers(directory, begin, partitioning if into_partitions else None)
        try:
            for batch in batches:
                for partition, rows in _partitioned(batch, partitioning):
                    with _disk_in_words(directory):
                        writers.write(partition, rows)
            with _disk_in_words(directory):
                staged = writers.close()
        except BaseException:
            writers.discard()
            raise
        columns: dict[str, list[object]] = {
            "path": [each.path for each in staged],
            "partition": [each.partition for each in staged],
            "rows": [each.rows for each in staged],
            "bytes": [each.bytes for each in staged],
        }
        schema = pa.schema(
            [("path", pa.string()), ("partition", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
        )
        yield pa.RecordBatch.from_pydict(columns, schema=schema)

    return task


class _Writers:
    """One open file for each partition."""

    def __init__(self, directory: Path, begin: str, named: TimePartitioning | None) -> None:
        self._directory = directory
        self._begin = begin
        self._named = named
        self._open: dict[str | None, tuple[Path, pq.ParquetWriter]] = {}
        self._rows: dict[str | None, int] = {}

    def write(self, partition: str | None, rows: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        if partition not in self._open:
            directory = self._directory
            if self._named is not None:
                directory /= f"{self._named.field}={partition or '__HIVE_DEFAULT_PARTITION__'}"
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{self._begin}{uuid4().hex}.parquet"
            self._open[partition] = path, pq.ParquetWriter(path, rows.schema, compression="zstd")
            self._rows[partition] = 0
        self._open[partition][1].write_batch(rows)
        self._rows[partition] += rows.num_rows

    def close(self) -> list[StagedFile]:
        staged = []
        for partition, (path, writer) in self._open.items():
            writer.close()
            staged.append(
                StagedFile(path=str(path), partition=partition, rows=self._rows[partition], bytes=path.stat().st_size)
            )
        return staged

    def discard(self) -> None:
        """What was written is nobody's, and takes up room."""
        for path, writer in self._open.values():
            with suppress(OSError):
                writer.close()
            path.unlink(missing_ok=True)


@contextmanager
def _disk_in_words(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = str(error) if error.errno is None else os.strerror(error.errno)
        raise PipelineError(
            f"The table's files cannot be written to {directory} ({reason}): see to the disk and run the pipeline "
            "again; nothing of this batch is in the table."
        ) from error


def _partitioned(
    batch: pa.RecordBatch, partitioning: TimePartitioning | None
) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """The rows of each partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return
    if partitioning is None:
        yield None, batch
        return
    times = batch.column(partitioning.column).cast(pa.timestamp("s", tz="UTC"), safe=False)
    said = pc.strftime(times, partitioning.shape)
    for partition in pc.unique(said).to_pylist():
        chosen = pc.is_null(said) if partition is None else pc.equal(said, partition)
        yield partition, batch.filter(chosen)
