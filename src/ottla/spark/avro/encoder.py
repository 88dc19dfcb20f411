"""Typed columns to framed Avro records without a loop over rows.

The counterpart of `columns`: a record's bytes are its fields' one after the other, so each field says how long it
is in every row (`Piece.lengths`); that gives every field's place in every row, and all rows of a field are written at
once.
`plan` returns None for schemas that need a loop of their own; then rows are written one by one with fastavro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.records.packing import byte_strings
from ottla.schemas.avro import Enum, Fixed, Primitive, Record, Schema, Union, parse
from ottla.schemas.framing import prefix
from ottla.spark.avro.types import logical_type, nullable_branch, plain_json

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[Any]]

VARINT_BYTES_MAX = 10


class Unwritable(ValueError):
    """A value that the schema has no place for; the message is one sentence."""


class Piece(NamedTuple):
    """One value of each row: how long it is, and how it is written to where it belongs."""

    lengths: Numbers
    write: Callable[[Numbers, Numbers], None]
    """Into these bytes, at these places."""


Step = Callable[["pa.Array"], Piece]


class Encoder:
    """Of one schema, whose id stands in front of every record."""

    def __init__(self, schema: str, schema_id: int) -> None:
        parsed = parse(schema, strict=False)
        self._prefix = prefix(schema_id)
        self._step = plan(parsed)
        self._rows = None if self._step is not None else RowWriter(parsed)

    def encode(self, column: pa.Array) -> pa.Array:
        """A binary column; null where there was no row. Raises `Unwritable`."""
        if self._step is None:
            assert self._rows is not None
            return self._rows.write(column, self._prefix)
        return self._encode(column, self._step)

    def _encode(self, column: pa.Array, step: Step) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        present = np.asarray(column.is_valid())
        piece = step(column.drop_null() if column.null_count else column)
        lengths = np.zeros(len(column), dtype=np.int64)
        lengths[present] = piece.lengths + len(self._prefix)
        offsets = np.zeros(len(column) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > np.iinfo(np.int32).max:
            raise Unwritable("A batch is more than 2 GiB of Avro: lower spark.sql.execution.arrow.maxRecordsPerBatch.")
        data = np.empty(offsets[-1], dtype=np.uint8)
        begin = offsets[:-1][present]
        for at, byte in enumerate(self._prefix):
            data[begin + at] = byte
        piece.write(data, begin + len(self._prefix))
        encoded = pa.Array.from_buffers(
            pa.binary(), len(column), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        )
        if not column.null_count:
            return encoded
        return encoded.take(pa.array(np.arange(len(column)), mask=~present))


def plan(schema: Schema) -> Step | None:
    """How a column, without nulls, is written; None if it takes a loop."""
    match schema:
        case Record():
            return _plan_record(schema)
        case Union():
            return _plan_union(schema)
        case Enum():
            return _enum_step(schema)
        case Fixed():
            return None if logical_type(schema) else _fixed_step(schema)
        case Primitive() if logical_type(schema) != "decimal":
            return _plan_primitive(schema)
    return None


def _plan_record(schema: Record) -> Step | None:
    steps = []
    for field in schema.fields:
        if _is_within(schema, field.type):
            return None
        step = plan(field.type)
        if step is None:
            return None
        steps.append((field.name, step, isinstance(field.type, Union) or field.type.kind == "null"))

    def write_record(column: pa.Array) -> Piece:
        import numpy as np
        import pyarrow.compute as pc

        names = [each.name for each in column.type]
        pieces = []
        for name, step, may_be_null in steps:
            if name not in names:
                raise Unwritable(f"The column has no field {name}, which the schema {schema.name} asks for.")
            values = pc.struct_field(column, [names.index(name)])
            if values.null_count and not may_be_null:
                raise Unwritable(f"The field {name} is null, which the schema {schema.name} does not allow.")
            pieces.append(step(values))

        def write(data: Numbers, at: Numbers) -> None:
            for piece in pieces:
                piece.write(data, at)
                at = at + piece.lengths

        return Piece(sum((piece.lengths for piece in pieces), np.zeros(len(column), dtype=np.int64)), write)

    return write_record


def _is_within(record: Record, schema: Schema, seen: tuple[int, ...] = ()) -> bool:
    """Does the schema lead back to the record?"""
    if schema is record or id(schema) in seen:
        return True
    if isinstance(schema, Record):
        return any(_is_within(record, each.type, (*seen, id(schema))) for each in schema.fields)
    branch = nullable_branch(schema)
    return branch is not None and _is_within(record, branch, seen)


def _plan_union(schema: Union) -> Step | None:
    branch = nullable_branch(schema)
    step = None if branch is None or len(schema.branches) != 2 else plan(branch)
    if step is None or branch is None:
        return None
    value_branch = schema.branches.index(branch)

    def write_union(column: pa.Array) -> Piece:
        import numpy as np

        present = np.asarray(column.is_valid())
        which = _varints(np.where(present, value_branch, 1 - value_branch))
        inner = step(column.drop_null() if column.null_count else column)
        lengths = which.lengths.copy()
        lengths[present] += inner.lengths

        def write(data: Numbers, at: Numbers) -> None:
            which.write(data, at)
            inner.write(data, (at + which.lengths)[present])

        return Piece(lengths, write)

    return write_union


def _enum_step(schema: Enum) -> Step:
    def write_enum(column: pa.Array) -> Piece:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(column.cast(pa.string()), value_set=pa.array(schema.symbols, pa.string()))
        if found.null_count:
            raise Unwritable(f"A value of the enum {schema.name} is none of its symbols.")
        return _varints(found.to_numpy())

    return write_enum


def _fixed_step(schema: Fixed) -> Step:
    def write_fixed(column: pa.Array) -> Piece:
        data, begin, lengths = _bytes_of(column)
        if (lengths != schema.size).any():
            raise Unwritable(f"A value of {schema.name} does not have {schema.size} bytes.")
        return Piece(lengths, lambda out, at: _copy(data, begin, lengths, out, at))

    return write_fixed


def _plan_primitive(schema: Primitive) -> Step | None:
    logical = logical_type(schema)
    match schema.kind:
        case "null":
            return _nothing
        case "boolean":
            return _booleans
        case "int" | "long":
            return _whole_step(schema.kind, 1000 if logical is not None and logical.endswith("millis") else 1)
        case "float" | "double":
            return _floating_step(4 if schema.kind == "float" else 8)
        case _:
            return _spans


def _nothing(column: pa.Array) -> Piece:
    import numpy as np

    return Piece(np.zeros(len(column), dtype=np.int64), lambda data, at: None)


def _booleans(column: pa.Array) -> Piece:
    import numpy as np

    values = np.asarray(column).astype(np.uint8)

    def write(data: Numbers, at: Numbers) -> None:
        data[at] = values

    return Piece(np.ones(len(column), dtype=np.int64), write)


def _whole_step(kind: str, divisor: int) -> Step:
    def write_whole(column: pa.Array) -> Piece:
        import pyarrow as pa

        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        try:
            values = column.cast(pa.int32() if kind == "int" else pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise Unwritable(f"A number does not fit into Avro's {kind}: {error}") from None
        return _varints(values // divisor)

    return write_whole


def _floating_step(size: int) -> Step:
    def write_floating(column: pa.Array) -> Piece:
        import numpy as np

        values = np.ascontiguousarray(column.to_numpy(zero_copy_only=False).astype(f"<f{size}"))
        lines = values.view(np.uint8).reshape(len(values), size)

        def write(data: Numbers, at: Numbers) -> None:
            data[at[:, None] + np.arange(size)] = lines

        return Piece(np.full(len(values), size, dtype=np.int64), write)

    return write_floating


def _spans(column: pa.Array) -> Piece:
    data, begin, lengths = _bytes_of(column)
    front = _varints(lengths)

    def write(out: Numbers, at: Numbers) -> None:
        front.write(out, at)
        _copy(data, begin, lengths, out, at + front.lengths)

    return Piece(front.lengths + lengths, write)


def _varints(values: Numbers) -> Piece:
    import numpy as np

    signed = values.astype(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.ones(len(signed), dtype=np.int64)
    for at in range(1, VARINT_BYTES_MAX):
        longer = zigzag >= np.uint64(1 << (7 * at))
        if not longer.any():
            break
        lengths += longer

    def write(data: Numbers, at: Numbers) -> None:
        for place in range(int(lengths.max(initial=0))):
            rows = lengths > place
            byte = (zigzag[rows] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
            data[at[rows] + place] = byte | ((lengths[rows] > place + 1).astype(np.uint8) << 7)

    return Piece(lengths, write)


def _bytes_of(column: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """The bytes of a column of texts or bytes, where each value begins in them, and how long it is."""
    import numpy as np

    strings = byte_strings(column)
    return strings.data, strings.offsets[:-1].astype(np.int64), np.diff(strings.offsets).astype(np.int64)


def _copy(source: Numbers, begin: Numbers, lengths: Numbers, target: Numbers, at: Numbers) -> None:
    """So many bytes from each of these places to each of those."""
    import numpy as np

    total = int(lengths.sum())
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(at, lengths) + within] = source[np.repeat(begin, lengths) + within]


class RowWriter:
    """One row after the other, with fastavro."""

    def __init__(self, schema: Schema) -> None:
        import fastavro

        self._schema = fastavro.parse_schema(json.loads(json.dumps(plain_json(schema))))

    def write(self, column: pa.Array, front: bytes) -> pa.Array:
        import pyarrow as pa

        rows = column.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if row is None else self._write_one(row, front) for row in rows], pa.binary())

    def _write_one(self, row: Any, front: bytes) -> bytes:
        from fastavro import schemaless_writer

        output = io.BytesIO()
        output.write(front)
        try:
            schemaless_writer(output, self._schema, row)
        except (ValueError, TypeError, KeyError) as error:
            raise Unwritable(f"A row cannot be written with the schema: {error}") from None
        return output.getvalue()
