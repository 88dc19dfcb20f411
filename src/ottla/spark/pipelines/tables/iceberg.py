"""An Iceberg table, by pyiceberg: no jar, and a catalog in a file of SQLite unless another is given.

The number of a pipeline's last batch is a property of the table, set by the commit that adds the batch's files: so it
stays when snapshots expire, which old ones do whenever small files are looked for.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.tables.files import StagedFile, local_path
from ottla.spark.pipelines.tables.partitioning import TimePartitioning, Unit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

NAMESPACE = "ottla"
SMALL_FILE_BYTES = 32 * 1024 * 1024
FILES_TO_COMPACT = 16
"""So many small files in one partition are made one."""

SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
SNAPSHOTS_KEPT = "history.expire.min-snapshots-to-keep"
PROPERTIES: Mapping[str, str] = {
    # Every commit writes down all snapshots that there are. Streams commit every second or so: without an end to that
    # a table of some hours would be gigabytes of its own history.
    SNAPSHOT_AGE: str(3_600_000),
    SNAPSHOTS_KEPT: "100",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
"""Of a new table, under Iceberg's own names: whoever wants to look back further sets others."""


class IcebergTable:
    def __init__(self, location: Path, partitioning: TimePartitioning | None, catalog: Catalog | None = None) -> None:
        self.location = location.absolute()
        self._partitioning = partitioning
        self._catalog = catalog or _sqlite_catalog(self.location.parent)
        self._name = (NAMESPACE, self.location.name)

    @property
    def directory(self) -> Path:
        return self.location / "data"

    def last_batch(self, app: str) -> int:
        """-1 before the first."""
        table = self._table()
        return -1 if table is None else int(table.properties.get(_property(app), -1))

    def commit(self, staged: Sequence[StagedFile], schema: pa.Schema, app: str, batch: int) -> None:
        table = self._table() or self._make(schema)
        self._check(table, schema)
        with table.transaction() as change:
            with change.update_schema() as columns:
                columns.union_by_name(schema)
            if staged:
                change.add_files([each.path for each in staged], snapshot_properties={"ottla.batch": f"{app} {batch}"})
            change.set_properties({_property(app): str(batch)})

    def files(self) -> list[str]:
        table = self._table()
        return [] if table is None else [task.file.file_path for task in table.scan().plan_files()]

    def compact(self) -> int:
        """Make one file of the small ones of each partition that has many. How many files are gone."""
        table = self._table()
        if table is None:
            return 0
        small: dict[str, list[DataFile]] = defaultdict(list)
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_FILE_BYTES:
                small[str(task.file.partition)].append(task.file)
        gone = 0
        for files in small.values():
            if len(files) >= FILES_TO_COMPACT:
                self._replace(table, files)
                table = table.refresh()
                gone += len(files)
        _expire(table)
        return gone

    def _replace(self, table: Table, files: list[DataFile]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import parquet_files_to_data_files, schema_to_pyarrow

        rows = pa.concat_tables(
            [pq.read_table(local_path(each.file_path)) for each in files], promote_options="permissive"
        )
        merged = self.directory / f"compacted-{uuid4().hex}.parquet"
        wanted = schema_to_pyarrow(table.schema(), include_field_ids=False)
        pq.write_table(rows.cast(_narrowed(wanted, rows.schema)), merged, compression="zstd")
        with (
            table.transaction() as change,
            change.update_snapshot(snapshot_properties={"ottla.compaction": str(len(files))}).overwrite() as snapshot,
        ):
            for each in files:
                snapshot.delete_data_file(each)
            for made in parquet_files_to_data_files(table.io, change.table_metadata, iter([str(merged)])):
                snapshot.append_data_file(made)

    def _check(self, table: Table, schema: pa.Schema) -> None:
        """Columns may be new, or wider numbers than before; anything else would not be read as it was written."""
        from pyarrow import types
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        there = schema_to_pyarrow(table.schema(), include_field_ids=False)
        for field in schema:
            if field.name not in there.names:
                continue
            known, wanted = there.field(field.name).type, field.type
            wider = (types.is_integer(known) and types.is_integer(wanted)) or (
                types.is_floating(known) and types.is_floating(wanted)
            )
            if not wider and not _is_same(known, wanted):
                raise PipelineError(
                    f"The rows do not fit the table {self.location}: the column {field.name} is {known} there and "
                    f"{wanted} here. Cast the column, or choose another table."
                )

    def _table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _make(self, schema: pa.Schema) -> Table:
        from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform

        transforms: dict[Unit, Any] = {
            Unit.HOUR: HourTransform(),
            Unit.DAY: DayTransform(),
            Unit.MONTH: MonthTransform(),
        }
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        location = self.location.as_uri()
        with self._catalog.create_table_transaction(
            self._name, schema, location=location, properties=dict(PROPERTIES)
        ) as creation:
            partitioning = self._partitioning
            if partitioning is not None:
                with creation.update_spec() as spec:
                    spec.add_field(partitioning.column, transforms[partitioning.unit], partitioning.field)
        return self._catalog.load_table(self._name)


def _expire(table: Table) -> None:
    """Forgets snapshots that are neither young nor among the newest. The files with their rows stay."""
    kept, age_ms = (int(table.properties.get(name, PROPERTIES[name])) for name in (SNAPSHOTS_KEPT, SNAPSHOT_AGE))
    named = {each.snapshot_id for each in table.metadata.refs.values()}
    by_age = sorted(table.snapshots(), key=lambda each: each.timestamp_ms)
    before_ms = time.time() * 1000 - age_ms
    old = [each for each in by_age[:-kept] if each.timestamp_ms < before_ms and each.snapshot_id not in named]
    if not old:
        return
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    for each in old:
        with suppress(OSError):
            table.io.delete(each.manifest_list)  # The one file that no other snapshot shares.


def _property(app: str) -> str:
    return f"ottla.batch.{app}"


def _sqlite_catalog(directory: Path) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog

    directory.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(
        "ottla",
        uri=f"sqlite:///{directory / 'catalog.db'}",
        warehouse=directory.as_uri(),
        init_catalog_tables="true",
    )


def _is_same(known: pa.DataType, wanted: pa.DataType) -> bool:
    """Iceberg's types come back as the larger of Arrow's two for texts and bytes; what is nested is its own matter."""
    from pyarrow import types

    def kind(each: pa.DataType) -> str:
        if types.is_string(each) or types.is_large_string(each):
            return "string"
        if types.is_binary(each) or types.is_large_binary(each):
            return "binary"
        return "nested" if types.is_nested(each) else str(each)

    return kind(known) == kind(wanted)


def _narrowed(wanted: pa.Schema, there: pa.Schema) -> pa.Schema:
    """The table's types for the columns that there are."""
    import pyarrow as pa

    return pa.schema([wanted.field(name) if name in wanted.names else there.field(name) for name in there.names])
