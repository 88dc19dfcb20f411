"""Batches straight from Arrow columns: how records get from a DataFrame to a topic without a Python object each.

`RecordColumns.of` takes the columns of an Arrow batch apart into the buffers that they are made of; `rows_by_partition`
says which rows go together, and `batches_of` packs them, by one compiled call a batch (`pack_columns`). numpy and
pyarrow are loaded on use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.records._hot import pack_columns, part_rows
from ottla.records.builder import BatchBuilder
from ottla.records.partitioner import ByteStrings, bytes_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ottla.records._pure import HeaderColumns


class Headers(NamedTuple):
    """Row r has the headers `lists[r]` to `lists[r + 1]`, each a name and a content, which may be none."""

    lists: NDArray[np.int32]
    names: ByteStrings
    contents: ByteStrings

    def raw(self) -> HeaderColumns:
        return bytes_of(self.lists), self.names.raw(), self.contents.raw()


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
    """A batch that lacks only its header, for which there is room: who sends it, and with which sequence, is known
    later."""

    records: bytearray
    number: int
    base_timestamp: int
    max_timestamp: int

    def seal(self, builder: BatchBuilder) -> bytearray:
        builder.append_packed(*self)
        return builder.build()


def batches_of(columns: RecordColumns, rows: NDArray[np.int64], bytes_max: int) -> Iterator[PackedBatch]:
    """The chosen rows in order, in batches of at most `bytes_max` before compression; a row that is larger than that
    gets a batch of its own."""
    key = None if columns.key is None else columns.key.raw()
    value = None if columns.value is None else columns.value.raw()
    headers = None if columns.headers is None else columns.headers.raw()
    first, end = 0, len(rows)
    chosen, timestamps = bytes_of(rows), bytes_of(columns.timestamps_ms)
    while first < end:
        packed = PackedBatch(*pack_columns(chosen, first, bytes_max, timestamps, key, value, headers))
        first += packed.number
        yield packed


def rows_by_partition(partitions: NDArray[np.int64], count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each of the `count` partitions that some rows go to, and those rows, in their order."""
    import numpy as np

    for partition, rows in part_rows(bytes_of(partitions), count):
        yield partition, np.frombuffer(rows, np.int64)


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
    import pyarrow.compute as pc

    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if array.null_count:
        # Lists that are null may still span something: what is flattened leaves that out.
        structs = array.flatten()
        lists = np.zeros(len(array) + 1, np.int32)
        np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy(), out=lists[1:])
    else:
        structs = array.values
        lists = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    names = byte_strings(structs.field(0))
    if names.valid is not None or structs.null_count:
        raise ValueError("A header has no key: every struct of the headers column needs one.")
    return Headers(lists, names, byte_strings(structs.field(1)))


def _filled(flags: pa.Array) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return filled
