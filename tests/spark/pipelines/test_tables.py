"""Tables without Spark: the tasks' function and the commits, called as the sink calls them."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.sinks import Run
from ottla.spark.pipelines.tables import delta, iceberg
from ottla.spark.pipelines.tables.delta import DeltaTable
from ottla.spark.pipelines.tables.files import StagedFile, forget_unfinished, stem, writing
from ottla.spark.pipelines.tables.iceberg import IcebergTable
from ottla.spark.pipelines.tables.partitioning import TimePartitioning, Unit, time_partitioning
from ottla.spark.pipelines.tables.sink import Filler, TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAY_S = 86_400
BY_DAY = TimePartitioning("timestamp", Unit.DAY)
APP = "orders"

AnyTable = IcebergTable | DeltaTable
Make = Callable[[TimePartitioning | None], AnyTable]


@pytest.fixture(params=["iceberg", "delta"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """The same table at each call, known anew each time, as by another process."""
    kind: type[AnyTable] = IcebergTable if request.param == "iceberg" else DeltaTable
    return lambda partitioning: kind(tmp_path / "lake" / "orders", partitioning)


def rows(*numbers: int, **more: object) -> pa.RecordBatch:
    """One row a number, on the day of that number."""
    columns = {
        "number": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([number * DAY_S * 1_000_000 for number in numbers], pa.timestamp("us", tz="UTC")),
        **{name: pa.array([value] * len(numbers)) for name, value in more.items()},
    }
    return pa.RecordBatch.from_pydict(columns)


def staged(
    table: AnyTable, batch: int, rows: pa.RecordBatch, partitioning: TimePartitioning | None
) -> list[StagedFile]:
    task = writing(table.directory, stem(APP, batch), partitioning, into_partitions=isinstance(table, DeltaTable))
    return [StagedFile(**each) for told in task(iter([rows])) for each in told.to_pylist()]


def add(table: AnyTable, batch: int, rows: pa.RecordBatch, partitioning: TimePartitioning | None = BY_DAY) -> None:
    table.commit(staged(table, batch, rows, partitioning), rows.schema, APP, batch)


def numbers(table: AnyTable) -> list[int]:
    found: list[int] = []
    for path in table.files():
        found += pq.ParquetFile(path.removeprefix("file://")).read(columns=["number"])["number"].to_pylist()
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("partitioning", [BY_DAY, TimePartitioning("timestamp", Unit.HOUR), None])
def test_batches_add_up(make: Make, partitioning: TimePartitioning | None) -> None:
    table = make(partitioning)
    assert table.last_batch(APP) == -1
    add(table, 0, rows(1, 2, 2), partitioning)
    add(make(partitioning), 1, rows(2, 40), partitioning)
    assert make(partitioning).last_batch(APP) == 1
    assert make(partitioning).last_batch("another") == -1
    assert numbers(make(partitioning)) == [1, 2, 2, 2, 40]
    assert len(table.files()) == (4 if partitioning else 2)  # A file holds rows of one partition.


@pytest.mark.slow
def test_a_batch_of_no_rows_counts(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1))
    add(make(BY_DAY), 1, rows(1).slice(0, 0))
    assert make(BY_DAY).last_batch(APP) == 1
    assert numbers(make(BY_DAY)) == [1]


def test_a_new_column_is_added(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1))
    add(make(BY_DAY), 1, rows(2, colour="red"))
    add(make(BY_DAY), 2, rows(3))
    assert numbers(make(BY_DAY)) == [1, 2, 3]


def test_a_column_of_another_type_is_refused(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1, colour="red"))
    with pytest.raises(PipelineError, match=r"do not fit the table .* Cast the column"):
        add(make(BY_DAY), 1, rows(2, colour=b"red"))
    assert make(BY_DAY).last_batch(APP) == 0
    assert numbers(make(BY_DAY)) == [1]


def test_files_of_a_batch_that_broke_off_are_removed(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1, 2))
    table = make(BY_DAY)
    orphans = staged(table, 1, rows(3, 4, 5), BY_DAY)
    assert all(Path(each.path).exists() for each in orphans)
    removed = forget_unfinished(table.directory, APP, table.last_batch(APP), known=table.files)
    assert removed == 3
    assert not any(Path(each.path).exists() for each in orphans)
    assert numbers(make(BY_DAY)) == [1, 2]


def test_what_the_table_holds_is_not_removed(make: Make) -> None:
    """Even if its number were lost."""
    add(make(BY_DAY), 0, rows(1, 2))
    table = make(BY_DAY)
    assert forget_unfinished(table.directory, APP, -1, known=table.files) == 0
    assert numbers(make(BY_DAY)) == [1, 2]


@pytest.mark.slow
def test_small_files_become_one(make: Make) -> None:
    for batch in range(iceberg.FILES_TO_COMPACT):
        add(make(BY_DAY), batch, rows(1, 1) if batch else rows(1, 2))
    add(make(BY_DAY), iceberg.FILES_TO_COMPACT, rows(1, colour="red"))
    before = numbers(make(BY_DAY))
    assert make(BY_DAY).compact() == delta.SMALL_FILES_MIN + 1
    assert numbers(make(BY_DAY)) == before
    assert len(make(BY_DAY).files()) == 2
    assert make(BY_DAY).last_batch(APP) == iceberg.FILES_TO_COMPACT


def test_an_iceberg_table_is_read_by_others(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    table = IcebergTable(tmp_path / "lake" / "orders", BY_DAY)
    add(table, 0, rows(1, 2, 3))
    add(table, 1, rows(4, colour="red"))
    catalog = SqlCatalog("ottla", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    read = catalog.load_table("ottla.orders")
    assert sorted(read.scan(row_filter="number > 1").to_arrow()["number"].to_pylist()) == [2, 3, 4]
    day_two = list(read.scan(row_filter="timestamp >= '1970-01-03T00:00:00+00:00'").plan_files())
    assert len(day_two) == 3, "partitions are pruned"


def test_a_delta_table_is_read_by_others(tmp_path: Path) -> None:
    from deltalake import DeltaTable as Table

    add(DeltaTable(tmp_path / "orders", BY_DAY), 0, rows(1, 2, 3))
    add(DeltaTable(tmp_path / "orders", BY_DAY), 1, rows(4, colour="red"))
    read = Table(tmp_path / "orders").to_pyarrow_table().to_pydict()
    assert sorted(read["number"]) == [1, 2, 3, 4]
    assert sorted(read["timestamp_day"]) == ["1970-01-02", "1970-01-03", "1970-01-04", "1970-01-05"]


class Rows:
    """As much of a DataFrame as a table asks for, with one task."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.columns = batch.schema.names
        self.schema = from_arrow_schema(batch.schema)

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Rows:
        (self._told,) = task(iter([self._batch]))
        return self

    def collect(self) -> list[Row]:
        return [Row(**each) for each in self._told.to_pylist()]


def test_a_table_that_two_of_one_name_fill_stops_the_one_that_is_behind(make: Make) -> None:
    sink = TableSink(make(BY_DAY).location, "iceberg" if isinstance(make(BY_DAY), IcebergTable) else "delta", BY_DAY)
    one, other = (Filler(make(BY_DAY), sink, APP) for _ in range(2))

    def fill(filler: Filler, batch: int, number: int) -> None:
        filler.add(cast("DataFrame", Rows(rows(number))), batch)

    fill(one, 0, 1)
    fill(other, 0, 1)  # As after a crash between the table's commit and Spark's: it is there.
    fill(other, 1, 2)
    with pytest.raises(PipelineError, match=r"Another pipeline of the name orders fills the table .* batch 1"):
        fill(one, 1, 3)
    assert numbers(make(BY_DAY)) == [1, 2]


def test_plain_files_are_not_added_to_a_table_of_a_stream(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    run = Run(name="nightly", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(PipelineError, match="is filled by a stream"):
        TableSink.at(tmp_path, "parquet", time=None, by="day").write(cast("DataFrame", Rows(rows(1))), run)


@pytest.mark.slow
def test_the_history_of_an_iceberg_table_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {iceberg.SNAPSHOT_AGE: "0", iceberg.SNAPSHOTS_KEPT: "3", "write.metadata.previous-versions-max": "2"}
    monkeypatch.setattr(iceberg, "PROPERTIES", {**iceberg.PROPERTIES, **few})
    table = IcebergTable(tmp_path / "lake" / "orders", BY_DAY)
    for batch in range(8):
        add(table, batch, rows(batch))
    metadata = table.location / "metadata"
    assert len(list(metadata.glob("snap-*.avro"))) == 8
    table.compact()
    assert len(list(metadata.glob("snap-*.avro"))) == 3
    assert len(list(metadata.glob("*.metadata.json"))) <= 3
    again = IcebergTable(tmp_path / "lake" / "orders", BY_DAY)
    assert numbers(again) == list(range(8))
    assert again.last_batch(APP) == 7
    add(again, 8, rows(8))
    assert numbers(again) == list(range(9))


def test_partitioning_by_what_is_unknown() -> None:
    with pytest.raises(PipelineError, match="choose hour, day or month"):
        time_partitioning("timestamp", "week")
    assert time_partitioning(None, "week") is None


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """No file can grow larger, for this process: what a full disk says, this says."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_under_the_files_leaves_nothing_behind(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1))
    large = rows(2, payload=Random(7).randbytes(1 << 20))
    before = set(make(BY_DAY).directory.rglob("*.parquet"))
    with no_room_beyond(100_000), pytest.raises(PipelineError, match=r"cannot be written to .*: see to the disk"):
        staged(make(BY_DAY), 1, large, BY_DAY)
    assert set(make(BY_DAY).directory.rglob("*.parquet")) == before
    add(make(BY_DAY), 1, large)
    assert numbers(make(BY_DAY)) == [1, 2]


def test_a_full_disk_under_the_commit_adds_nothing_and_the_batch_comes_again(make: Make) -> None:
    add(make(BY_DAY), 0, rows(1))
    table, more = make(BY_DAY), rows(2, 3)
    files = staged(table, 1, more, BY_DAY)
    with no_room_beyond(1), pytest.raises(Exception, match=r"large|full|disk I/O"):
        table.commit(files, more.schema, APP, 1)
    assert make(BY_DAY).last_batch(APP) == 0
    assert numbers(make(BY_DAY)) == [1]
    make(BY_DAY).commit(files, more.schema, APP, 1)
    assert make(BY_DAY).last_batch(APP) == 1
    assert numbers(make(BY_DAY)) == [1, 2, 3]
