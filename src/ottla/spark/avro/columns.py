"""Avro records to Arrow columns without a loop over records: all of them are walked together, field by field.

The encoding has no lengths to jump by, so a record can only be read from its beginning. But records of one schema have
the same fields in the same order: `numpy` reads the first field of every record at once, which says where each one's
second field begins, and so on. `plan` makes the steps for a writer's schema and a reader's; it returns None where a
step would need a loop of its own (arrays, maps, decimals, records within themselves), and then another decoder is due.

A record that is not what it should be does not stop the others: its row is marked in `Batch.bad`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.schemas.avro import Enum, Fixed, Primitive, Record, Schema, Union
from ottla.schemas.compatibility import names_match, written_field
from ottla.spark.avro.types import arrow_type, default_value, logical_type, nullable_branch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[Any]]

VARINT_BYTES_MAX = 10
_DEPTH_MAX = 20


class Batch:
    """Records of one schema in one buffer, each from `position` to `end`, in the buffer's order."""

    def __init__(self, data: Numbers, position: Numbers, end: Numbers) -> None:
        import numpy as np

        self.data = data
        self.begin = position.copy()
        self.position = position
        self.end = end
        self.bad = np.zeros(len(position), dtype=bool)
        self._last = max(len(data) - 1, 0)

    def __len__(self) -> int:
        return len(self.position)

    def refuse(self, rows: Numbers) -> None:
        self.bad[rows] = True
        self.position[rows] = self.end[rows]

    def varint(self, rows: Numbers) -> Numbers:
        """The next number of each of these rows, zigzag undone."""
        import numpy as np

        position = self.position[rows]
        end = self.end[rows]
        value = np.zeros(len(rows), dtype=np.uint64)
        open_rows = np.arange(len(rows))
        for at in range(VARINT_BYTES_MAX):
            here = position[open_rows]
            byte = self.data[np.minimum(here, self._last)] if len(self.data) else np.zeros(len(here), dtype=np.uint8)
            short = here >= end[open_rows]
            if short.any():
                self.refuse(rows[open_rows[short]])
                open_rows, byte = open_rows[~short], byte[~short]
            value[open_rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * at)
            position[open_rows] += 1
            open_rows = open_rows[byte >= 0x80]
            if not len(open_rows):
                break
        else:
            self.refuse(rows[open_rows])
        self._move(rows, position)
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def fixed(self, rows: Numbers, size: int) -> Numbers:
        """The next `size` bytes of each of these rows, a line each."""
        import numpy as np

        position = self.position[rows]
        self.refuse(rows[position + size > self.end[rows]])
        at = np.minimum(position[:, None] + np.arange(size), self._last)
        self._move(rows, position + size)
        return np.ascontiguousarray(self.data[at]) if len(self.data) else np.zeros((len(rows), size), dtype=np.uint8)

    def spans(self, rows: Numbers, lengths: Numbers) -> pa.Array:
        """The next `lengths` bytes of each of these rows, as binary values over the buffer itself."""
        import numpy as np
        import pyarrow as pa

        start = self.position[rows]
        wrong = (lengths < 0) | (lengths > self.end[rows] - start)
        self.refuse(rows[wrong])
        start = np.where(wrong, self.begin[rows], start)
        stop = np.where(wrong, start, start + lengths)
        self._move(rows, stop)
        # Every second value is what stands between two of ours: one array over the buffer, and no byte is copied before
        # `take` picks ours.
        offsets = np.empty(2 * len(rows) + 1, dtype=np.int32)
        offsets[0:-1:2], offsets[1::2] = start, stop
        offsets[-1] = offsets[-2] if len(rows) else 0
        both = pa.Array.from_buffers(pa.binary(), 2 * len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(self.data)])
        return both.take(pa.array(np.arange(0, 2 * len(rows), 2)))

    def _move(self, rows: Numbers, position: Numbers) -> None:
        import numpy as np

        self.position[rows] = np.where(self.bad[rows], self.end[rows], position)


Step = Callable[[Batch, "Numbers"], "pa.Array"]
"""Reads the next value of each of these rows, and leaves the batch behind it."""


def decode(batch: Batch, step: Step) -> pa.Array:
    """All records of the batch; those that end too early or too late are bad."""
    import numpy as np

    rows = np.arange(len(batch))
    values = step(batch, rows)
    batch.bad |= batch.position != batch.end
    return values


def plan(writer: Schema, reader: Schema, depth: int = 0) -> Step | None:
    """How values that were written with one schema become a column of another; None if this cannot be done here."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(writer, Union):
        return _plan_union(writer, reader, depth)
    if isinstance(reader, Union):
        branch = nullable_branch(reader)
        return None if branch is None else plan(writer, branch, depth)
    match writer, reader:
        case Record(), Record() if names_match(reader, writer):
            return _plan_record(writer, reader, depth)
        case Enum(), Enum() if names_match(reader, writer):
            return _plan_enum(writer, reader)
        case Fixed(), Fixed() if names_match(reader, writer) and writer.size == reader.size:
            return None if logical_type(reader) else _read_fixed(writer.size)
        case Primitive(), Primitive():
            return _plan_primitive(writer, reader)
    return None


def _plan_record(writer: Record, reader: Record, depth: int) -> Step | None:
    import pyarrow as pa

    sources = {each.name: written_field(each, writer) for each in reader.fields}
    steps: list[tuple[str, Step]] = []
    for field in writer.fields:
        wanted = [each for each in reader.fields if sources[each.name] is field]
        if len(wanted) > 1:
            return None
        target = wanted[0].type if wanted else field.type
        step = plan(field.type, target, depth + 1)
        if step is None:
            return None
        steps.append((wanted[0].name if wanted else "", step))
    missing = [each for each in reader.fields if sources[each.name] is None]
    if any(not each.has_default for each in missing):
        return None
    kinds = [pa.field(each.name, arrow_type(each.type)) for each in reader.fields]
    defaults = {each.name: default_value(each.type, each.default) for each in missing}

    def read(batch: Batch, rows: Numbers) -> pa.Array:
        columns: dict[str, pa.Array] = {}
        for name, step in steps:
            found = step(batch, rows)
            if name:
                columns[name] = found
        for name, value in defaults.items():
            kind = next(each.type for each in kinds if each.name == name)
            columns[name] = pa.repeat(pa.scalar(value, kind), len(rows))
        return (
            pa.StructArray.from_arrays([columns[each.name] for each in kinds], fields=kinds) if kinds else _empty(rows)
        )

    return read


def _empty(rows: Numbers) -> pa.Array:
    import pyarrow as pa

    return pa.array([{}] * len(rows), pa.struct([]))


def _plan_union(writer: Union, reader: Schema, depth: int) -> Step | None:
    import numpy as np
    import pyarrow as pa

    branch = nullable_branch(writer)
    if branch is None or len(writer.branches) > 2:
        return None
    may_be_null = isinstance(reader, Union) or reader.kind == "null"
    target = nullable_branch(reader) if isinstance(reader, Union) else reader
    step = None if target is None else plan(branch, target, depth)
    if step is None or target is None:
        return None
    value_branch = writer.branches.index(branch)
    known = len(writer.branches)
    kind = arrow_type(target)

    def read(batch: Batch, rows: Numbers) -> pa.Array:
        which = batch.varint(rows)
        batch.refuse(rows[(which < 0) | (which >= known)])
        present = (which == value_branch) & ~batch.bad[rows]
        if not may_be_null:
            batch.refuse(rows[~present])
        values = step(batch, rows[present])
        if present.all():
            return values
        if not present.any():
            return pa.nulls(len(rows), kind)
        return values.take(pa.array(np.cumsum(present) - 1, mask=~present))

    return read


def _plan_enum(writer: Enum, reader: Enum) -> Step | None:
    import numpy as np
    import pyarrow as pa

    symbols = [each if each in reader.symbols else reader.default for each in writer.symbols]
    texts = pa.array([*symbols, None], pa.string())
    unknown = np.array([each is None for each in (*symbols, None)])

    def read(batch: Batch, rows: Numbers) -> pa.Array:
        which = batch.varint(rows)
        which = np.where((which < 0) | (which >= len(symbols)), len(symbols), which)
        batch.refuse(rows[unknown[which]])
        return texts.take(pa.array(which))

    return read


def _plan_primitive(writer: Primitive, reader: Primitive) -> Step | None:
    logical = logical_type(reader)
    if logical == "decimal" or logical_type(writer) not in (None, logical):
        return None
    numbers = {"int": 0, "long": 1, "float": 2, "double": 3}
    if writer.kind in numbers and reader.kind in numbers:
        if numbers[writer.kind] > numbers[reader.kind]:
            return None
        return _read_number(writer.kind, arrow_type(reader), 1000 if logical and logical.endswith("millis") else 1)
    if writer.kind in ("string", "bytes") and reader.kind in ("string", "bytes"):
        return _read_text if reader.kind == "string" else _read_bytes
    if writer.kind == reader.kind == "boolean":
        return _read_boolean
    return _read_null if writer.kind == reader.kind == "null" else None


def _read_null(batch: Batch, rows: Numbers) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(len(rows))


def _read_boolean(batch: Batch, rows: Numbers) -> pa.Array:
    import pyarrow as pa

    byte = batch.fixed(rows, 1)[:, 0]
    batch.refuse(rows[byte > 1])
    return pa.array(byte == 1)


def _read_number(kind: str, target: pa.DataType, scale: int) -> Step:
    import numpy as np
    import pyarrow as pa

    def read(batch: Batch, rows: Numbers) -> pa.Array:
        if kind in ("float", "double"):
            found = batch.fixed(rows, 4 if kind == "float" else 8)
            values = found.view("<f4" if kind == "float" else "<f8")[:, 0]
        else:
            values = batch.varint(rows)
            if kind == "int":
                batch.refuse(rows[(values < -(1 << 31)) | (values >= 1 << 31)])
        if pa.types.is_floating(target):
            return pa.array(values.astype(np.float32 if target == pa.float32() else np.float64))
        # A bad row's number may be anything; nobody reads it.
        whole = np.where(batch.bad[rows], 0, values)
        if pa.types.is_date32(target) or target == pa.int32():
            return pa.array(whole.astype(np.int32)).cast(target)
        return pa.array(whole * scale).cast(target)

    return read


def _read_bytes(batch: Batch, rows: Numbers) -> pa.Array:
    return batch.spans(rows, batch.varint(rows))


def _read_text(batch: Batch, rows: Numbers) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    found = _read_bytes(batch, rows)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = np.array([not _is_text(each.as_py()) for each in found])
        batch.refuse(rows[wrong])
        texts = [b"" if is_wrong else each.as_py() for each, is_wrong in zip(found, wrong, strict=True)]
        return pa.array(texts, pa.binary()).cast(pa.string())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_fixed(size: int) -> Step:
    import numpy as np

    def read(batch: Batch, rows: Numbers) -> pa.Array:
        return batch.spans(rows, np.full(len(rows), size, dtype=np.int64))

    return read
