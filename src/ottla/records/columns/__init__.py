"""Records by columns: keys, values, offsets, timestamps and headers of many batches, each as Arrow lays it out.

`columns` makes them in one go from the bodies of any number of batches, compiled where it can be (`_native.c`), else
with numpy and pyarrow (`_pure.py`); the tests hold one against the other. `records/arrow.py` drives it: it finds the
batches, checks and unpacks them, and makes Arrow's record batches of the result.

A span says where a batch's records lie and what they count from, as seven 64-bit integers: start and end in the bytes,
record count, base offset, base timestamp, 1 for log append time or else 0, and max timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.compiled import side

if TYPE_CHECKING:
    from ottla.records.batch import Buffer


class Binary(NamedTuple):
    """Byte strings, one a row: as Arrow's `binary`, with offsets of 32 bits."""

    validity: Buffer | None
    """A bit a row, unset for null; None if there is no null."""
    offsets: Buffer
    data: Buffer


class Headers(NamedTuple):
    """The headers of each row, as Arrow's list of (key, value); a row without headers is null."""

    total: int
    """How many there are in all rows together."""
    validity: Buffer | None
    offsets: Buffer
    keys: Binary
    values: Binary


class Columns(NamedTuple):
    row_count: int
    offsets: Buffer
    """64 bits each."""
    timestamps: Buffer
    """Microseconds, 64 bits each."""
    timestamp_types: Buffer
    """32 bits each."""
    keys: Binary
    values: Binary
    headers: Headers | None


_side = side("ottla.records.columns")
NATIVE = _side.__name__.endswith("._native")
"""Is it the compiled side?"""

if TYPE_CHECKING:
    from ottla.records.columns._pure import columns as _columns
else:
    _columns = _side.columns


def columns(data: Buffer, spans: Buffer, first_offset: int, end_offset: int, with_headers: bool) -> Columns:
    """The records of all `spans` in `data` with offsets from `first_offset` up to, not including, `end_offset`.
    Raises `ValueError` if the bytes are not records, all of them and nothing else."""
    rows, offsets, timestamps, types, keys, values, found = _columns(
        data, spans, first_offset, end_offset, with_headers
    )
    headers = None
    if found is not None:
        total, validity, list_offsets, names, contents = found
        headers = Headers(total, validity, list_offsets, Binary(*names), Binary(*contents))
    return Columns(rows, offsets, timestamps, types, Binary(*keys), Binary(*values), headers)
