"""A Delta table, by delta-rs. The number of a pipeline's last batch is an application transaction of Delta's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.pipelines.definition import PipelineError
from ottla.spark.pipelines.tables.files import StagedFile
from ottla.spark.pipelines.tables.partitioning import TimePartitioning

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as Table

SMALL_FILES_MIN = 16


class DeltaTable:
    """Partitions are a column of text that the files do not hold: their directory's name says it."""

    def __init__(self, location: Path, partitioning: TimePartitioning | None) -> None:
        self.location = location.absolute()
        self._partitioning = partitioning

    @property
    def directory(self) -> Path:
        return self.location

    def last_batch(self, app: str) -> int:
        table = self._table()
        found = None if table is None else table.transaction_version(app)
        return -1 if found is None else found

    def commit(self, staged: Sequence[StagedFile], schema: pa.Schema, app: str, batch: int) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        table = self._table() or self._make(schema)
        self._evolve(table, schema)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=str(Path(each.path).relative_to(self.location)),
                size=each.bytes,
                partition_values={} if self._partitioning is None else {self._partitioning.field: each.partition},
                modification_time=int(Path(each.path).stat().st_mtime * 1000),
                data_change=True,
                stats=json.dumps({"numRecords": each.rows}),
            )
            for each in staged
        ]
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema(),
            partition_by=None if self._partitioning is None else [self._partitioning.field],
            commit_properties=CommitProperties(app_transactions=[Transaction(app, batch)]),
        )

    def files(self) -> list[str]:
        table = self._table()
        return [] if table is None else table.file_uris()

    def compact(self) -> int:
        table = self._table()
        if table is None or len(table.file_uris()) < SMALL_FILES_MIN:
            return 0
        return int(table.optimize.compact()["numFilesRemoved"])

    def _table(self) -> Table | None:
        from deltalake import DeltaTable as Table
        from deltalake.exceptions import TableNotFoundError

        try:
            return Table(self.location)
        except TableNotFoundError:
            return None

    def _make(self, schema: pa.Schema) -> Table:
        import pyarrow as pa
        from deltalake import DeltaTable as Table

        if self._partitioning is None:
            return Table.create(self.location, schema)
        field = self._partitioning.field
        return Table.create(self.location, schema.append(pa.field(field, pa.string())), partition_by=[field])

    def _evolve(self, table: Table, schema: pa.Schema) -> None:
        """Add the columns that are new; a column that has become something else is refused."""
        from deltalake import Schema

        there = {field.name: field for field in table.schema().fields}
        wanted = Schema.from_arrow(schema).fields
        for field in wanted:
            known = there.get(field.name)
            if known is not None and known.type != field.type:
                raise PipelineError(
                    f"The rows do not fit the table {self.location}: the column {field.name} is {known.type.to_json()} "
                    f"there and {field.type.to_json()} here. Cast the column, or choose another table."
                )
        new = [field for field in wanted if field.name not in there]
        if new:
            table.alter.add_columns(new)
            table.update_incremental()
