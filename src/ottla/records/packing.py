"""Batches straight from Arrow columns: how records get from a DataFrame to a topic without a Python object each.

`RecordColumns.of` takes the columns of an Arrow batch apart into the buffers that they are made of; `batches_of` packs
chosen rows of them, by one compiled call a batch (`pack_columns`). numpy and pyarrow are loaded on use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.records._hot import pack_columns
from ottla.records.builder import BatchBuilder
from ottla.records.partitioner import ByteStrings

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ottla.records._pure import BytesColumn, HeaderColumns


class Headers(NamedTuple):
    """Row r has the headers `lists[r]` to `lists[r + 1]`, each a name and a content, which may be none."""

    lists: NDArray[np.int32]
    names: ByteStrings
    contents: ByteStrings


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """What records are made of, a row a record."""

    timestamps_ms: NDArray[np.int64]
    key: ByteStrings | None
    value: ByteStrings | None
    headers: Headers | None

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    @classmethod
    def of(
        cls,
        *,
        timestamps_ms: NDArray[np.int64],
        key: pa.Array | None,
        value: pa.Array | None,
        headers: pa.Array | None,
    ) -> RecordColumns:
        """Of Arrow arrays: bytes or strings, and headers as a list of structs of a name and a content."""
        return cls(
            timestamps_ms=timestamps_ms,
            key=None if key is None else byte_strings(key),
            value=None if value is None else byte_strings(value),
            headers=None if headers is None else _headers(headers),
        )


class PackedBatch(NamedTuple):
    """A batch that lacks only its header: who sends it, and with which sequence, is known later."""

    records: bytes
    number: int
    base_timestamp: int
    max_timestamp: int

    def seal(self, builder: BatchBuilder) -> bytearray:
        builder.append_packed(*self)
        return builder.build()


def batches_of(columns: RecordColumns, rows: NDArray[np.int64], bytes_max: int) -> Iterator[PackedBatch]:
    """The chosen rows in order, in batches of at most `bytes_max` before compression; a row that is larger than that
    gets a batch of its own."""
    key, value, headers = _raw(columns.key), _raw(columns.value), _raw_headers(columns.headers)
    first, end = 0, len(rows)
    chosen, timestamps = _view(rows), _view(columns.timestamps_ms)
    while first < end:
        packed = PackedBatch(*pack_columns(chosen, first, bytes_max, timestamps, key, value, headers))
        first += packed.number
        yield packed


def rows_by_partition(partitions: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition that some rows go to, and those rows, in their order."""
    import numpy as np

    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(ordered[start]), order[start:end]


def byte_strings(array: pa.Array) -> ByteStrings:
    """The buffers of an Arrow array of bytes or strings, wherever in them it begins."""
    import numpy as np
    import pyarrow as pa

    if array.type != pa.binary():
        array = array.cast(pa.binary())
    _, offsets, data = array.buffers()
    length = len(array)
    begin = array.offset
    read = np.frombuffer(offsets, np.int32)[begin : begin + length + 1] if length else np.zeros(1, np.int32)
    valid = None if not array.null_count else _filled(array.is_valid())
    return ByteStrings(read, np.frombuffer(b"" if data is None else data, np.uint8), valid)


def _headers(array: pa.Array) -> Headers:
    """A row whose list is null has no headers."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if array.null_count:
        # Lists that are null may still span something: make them empty.
        array = pa.array(array.to_pylist(), array.type).fill_null([])
    lists = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    structs = array.values
    names = byte_strings(structs.field(0))
    if names.valid is not None:
        raise ValueError("A header has no key: every struct of the headers column needs one.")
    return Headers(lists, names, byte_strings(structs.field(1)))


def _filled(flags: pa.Array) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return filled


def _raw(column: ByteStrings | None) -> BytesColumn | None:
    if column is None:
        return None
    return _view(column.offsets), _view(column.data), None if column.valid is None else _view(column.valid)


def _raw_headers(headers: Headers | None) -> HeaderColumns | None:
    if headers is None:
        return None
    names, contents = _raw(headers.names), _raw(headers.contents)
    assert names is not None
    assert contents is not None
    return _view(headers.lists), names, contents


def _view(array: NDArray[np.generic]) -> memoryview:
    """The array's bytes. (Before Python 3.12 no type says that an array is a buffer.)"""
    import numpy as np

    return np.ascontiguousarray(array).view(np.uint8).data
