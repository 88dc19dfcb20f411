"""Columns of framed Avro records to typed columns: each record by the schema that its id names, all as one type.

`Decoder` groups the records of a batch by their ids and decodes each group at once (`columns`), or one by one with
fastavro where a schema needs it. A record that cannot be decoded becomes null, with the reason beside it; whoever calls
decides what that means.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.registry import FoundSchema, RegistryClient, UnknownSchema
from ottla.records.packing import byte_strings
from ottla.schemas.avro import Array, InvalidSchema, Map, Record, Schema, Union, parse
from ottla.schemas.framing import MAGIC, PREFIX_BYTES
from ottla.spark.avro.columns import Batch, Step, decode, plan
from ottla.spark.avro.types import arrow_type, nullable_branch, plain_json

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[Any]]

NO_SCHEMA_ID = -1


class Decoded(NamedTuple):
    """A line for each record that came in."""

    values: pa.Array
    """Of the reader's type; null where there is an error, or where there was no record."""
    errors: dict[int, str]
    """Why a record could not be decoded, by its line."""
    schema_ids: Numbers
    """`NO_SCHEMA_ID` where the record names none."""


class Writer(NamedTuple):
    """What is known of an id: how its records are read, or why they cannot be."""

    step: Step | None = None
    row_reader: RowReader | None = None
    problem: str = ""


class Decoder:
    """Of one reader's schema. One a task."""

    def __init__(self, reader: Schema, registry: RegistryClient) -> None:
        self._reader = reader
        self._registry = registry
        self._writers: dict[int, Writer] = {}
        self.type = arrow_type(reader)

    def decode(self, column: pa.Array) -> Decoded:
        """`column` is binary, in one piece."""
        import numpy as np

        data, begin, end, present = _layout(column)
        errors: dict[int, str] = {}
        framed = present & (end - begin >= PREFIX_BYTES)
        framed[framed] &= data[begin[framed]] == MAGIC
        for row in np.flatnonzero(present & ~framed):
            errors[int(row)] = (
                "The record does not begin with a schema id: it was not written by a serializer of schemas."
            )
        ids = np.full(len(column), NO_SCHEMA_ID, dtype=np.int64)
        at = begin[framed][:, None] + np.arange(1, PREFIX_BYTES)
        ids[framed] = np.ascontiguousarray(data[at]).view(">i4")[:, 0] if len(at) else []
        parts: list[pa.Array] = []
        order: list[Numbers] = []
        for schema_id in np.unique(ids[framed]):
            rows = np.flatnonzero(framed & (ids == schema_id))
            batch = Batch(data, begin[rows] + PREFIX_BYTES, end[rows])
            parts.append(self._decode_group(int(schema_id), batch, rows, errors))
            order.append(rows)
        return Decoded(self._together(len(column), parts, order, errors), errors, ids)

    def _together(self, count: int, parts: list[pa.Array], order: list[Numbers], errors: dict[int, str]) -> pa.Array:
        """The values of all groups in the order in which their records came; null for bad ones, and those of none."""
        import numpy as np
        import pyarrow as pa

        if not parts:
            return pa.nulls(count, self.type)
        if len(parts) == 1 and len(parts[0]) == count and not errors:
            return parts[0]
        place = np.full(count, -1, dtype=np.int64)
        rows = np.concatenate(order)
        place[rows] = np.arange(len(rows))
        place[list(errors)] = -1
        missing = place < 0
        return pa.concat_arrays(parts).take(pa.array(np.where(missing, 0, place), mask=missing))

    def _decode_group(self, schema_id: int, batch: Batch, rows: Numbers, errors: dict[int, str]) -> pa.Array:
        import pyarrow as pa

        writer = self._writer(schema_id)
        if writer.problem:
            errors |= dict.fromkeys(rows.tolist(), writer.problem)
            return pa.nulls(len(rows), self.type)
        if writer.step is not None:
            values = decode(batch, writer.step)
            errors |= dict.fromkeys(rows[batch.bad].tolist(), f"The bytes are no record of schema {schema_id}.")
            return values
        assert writer.row_reader is not None
        values, problems = writer.row_reader.read(batch)
        for at, problem in problems.items():
            errors[int(rows[at])] = problem
        return values

    def _writer(self, schema_id: int) -> Writer:
        known = self._writers.get(schema_id)
        if known is None:
            try:
                known = self._make_writer(self._registry.by_id(schema_id))
            except UnknownSchema:
                # It may be registered a moment later: it is asked for again with the next batch.
                return Writer(problem=f"There is no schema with id {schema_id}.")
            except InvalidSchema as error:
                known = Writer(problem=f"Schema {schema_id} cannot be read: {error}")
            self._writers[schema_id] = known
        return known

    def _make_writer(self, found: FoundSchema) -> Writer:
        if found.kind != "AVRO":
            return Writer(problem=f"Schema {found.id} is of type {found.kind}, not Avro.")
        written = parse(found.text, found.references, strict=False)
        step = plan(written, self._reader)
        if step is not None:
            return Writer(step=step)
        return Writer(row_reader=RowReader(written, self._reader))


def _layout(column: pa.Array) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The bytes of a binary column, where each value begins and ends in them, and which values there are."""
    import numpy as np

    strings = byte_strings(column)
    offsets = strings.offsets.astype(np.int64)
    present = np.ones(len(column), dtype=bool) if strings.valid is None else strings.valid
    return strings.data, offsets[:-1], offsets[1:], present


class RowReader:
    """One record after the other, with fastavro: for schemas that columns cannot be made of directly."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        import fastavro

        self._reader = reader
        self._type = arrow_type(reader)
        self._writer_schema = fastavro.parse_schema(json.loads(json.dumps(plain_json(writer))))
        self._reader_schema = fastavro.parse_schema(json.loads(json.dumps(plain_json(reader))))

    def read(self, batch: Batch) -> tuple[pa.Array, dict[int, str]]:
        """The values, and what was wrong, by row."""
        import pyarrow as pa

        values: list[Any] = []
        problems: dict[int, str] = {}
        for row in range(len(batch)):
            try:
                values.append(self._read_one(batch.data[batch.position[row] : batch.end[row]].tobytes()))
            except Exception as error:  # fastavro fails in as many ways as bytes can be wrong.
                values.append(None)
                problems[row] = f"The record cannot be read: {type(error).__name__}: {error}"[:500]
        return pa.array(values, self._type), problems

    def _read_one(self, data: bytes) -> Any:
        from fastavro import schemaless_reader

        source = io.BytesIO(data)
        value = schemaless_reader(source, self._writer_schema, self._reader_schema)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over")
        return _for_arrow(self._reader, value)


def _for_arrow(schema: Schema, value: Any) -> Any:
    """Maps become pairs, as Arrow takes them, wherever they are."""
    match schema:
        case Union():
            branch = nullable_branch(schema)
            return None if value is None or branch is None else _for_arrow(branch, value)
        case Array():
            return [_for_arrow(schema.items, each) for each in value]
        case Map():
            return [(key, _for_arrow(schema.values, each)) for key, each in value.items()]
        case Record():
            return {each.name: _for_arrow(each.type, value[each.name]) for each in schema.fields}
        case _:
            return value
