"""Records by columns, with numpy and pyarrow: what `_native` does where there is no compiler.

No record is looked at alone. Records lie one behind the other, so that finding them is a walk, but record k of *every*
batch is found in one step; all else is done for all records at once. Byte strings are gathered by Arrow's own `take`
from one array that sees the bytes as they lie: key, what is between, value, what is between, key ….
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ottla.records.batch import Buffer

    Ints = NDArray[np.int64]
    RawBinary = tuple[Buffer | None, Buffer, Buffer]
    RawHeaders = tuple[int, Buffer | None, Buffer, RawBinary, RawBinary]
    RawColumns = tuple[int, Buffer, Buffer, Buffer, RawBinary, RawBinary, RawHeaders | None]

_SPAN_FIELDS = 7
_RECORD_BYTES_MIN = 7
"""A record's length, attributes, two deltas, two field lengths and number of headers take at least a byte each."""

_HEADER_BYTES_MIN = 2
_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10


def columns(data: Buffer, spans: Buffer, first_offset: int, end_offset: int, with_headers: bool) -> RawColumns:
    """See `ottla.records.columns`."""
    import numpy as np

    table = np.frombuffer(spans, np.int64).reshape(-1, _SPAN_FIELDS)
    starts, ends, counts = table[:, 0], table[:, 1], table[:, 2]
    sizes = ends - starts
    if (
        (starts < 0).any()
        or (sizes < 0).any()
        or (ends > len(data)).any()
        or (counts < 0).any()
        or (counts > sizes // _RECORD_BYTES_MIN).any()
        or sizes.sum() >= 1 << 31
    ):
        raise ValueError("a batch says that it has more records than its bytes can hold")
    try:
        with np.errstate(over="ignore"):
            return _Walk(np.frombuffer(data, np.uint8)).read(table, first_offset, end_offset, with_headers)
    except IndexError:
        raise _flaw() from None


def _flaw() -> ValueError:
    return ValueError("the bytes are not the records that their batch says")


class _Walk:
    """Reads at many positions at once. Positions only grow and are held against an end after every length, so that
    none comes from outside the bytes."""

    def __init__(self, bytes_: NDArray[np.uint8]) -> None:
        self._bytes = bytes_

    def read(self, table: Ints, first_offset: int, end_offset: int, with_headers: bool) -> RawColumns:
        import numpy as np

        counts = table[:, 2]
        begins, ends = self._records(table)
        batch = np.repeat(np.arange(len(table)), counts)
        timestamp_deltas, at = self._varint(begins + 1, _VARLONG_BYTES_MAX)
        offset_deltas, at = self._varint(at, _VARINT_BYTES_MAX)
        key_begins, key_ends, key_nulls = self._field(at, ends)
        value_begins, value_ends, value_nulls = self._field(key_ends, ends)
        header_counts, at = self._varint(value_ends, _VARINT_BYTES_MAX)
        if (header_counts < 0).any() or (header_counts > (ends - at) // _HEADER_BYTES_MIN).any():
            raise _flaw()
        headers = self._headers(at, ends, header_counts)
        offsets = table[batch, 3] + offset_deltas
        appended = table[batch, 5]
        timestamps = np.where(appended, table[batch, 6], table[batch, 4] + timestamp_deltas) * 1000
        kept = (offsets >= first_offset) & (offsets < end_offset)
        if not kept.all():
            offsets, timestamps, appended = offsets[kept], timestamps[kept], appended[kept]
            key_begins, key_ends, key_nulls = key_begins[kept], key_ends[kept], key_nulls[kept]
            value_begins, value_ends, value_nulls = value_begins[kept], value_ends[kept], value_nulls[kept]
        keys, values = self._gather(key_begins, key_ends, key_nulls, value_begins, value_ends, value_nulls)
        return (
            len(offsets),
            offsets.tobytes(),
            timestamps.tobytes(),
            appended.astype(np.int32).tobytes(),
            keys,
            values,
            self._kept_headers(headers, header_counts, kept) if with_headers else None,
        )

    def _records(self, table: Ints) -> tuple[Ints, Ints]:
        """Where each record begins, behind its length, and ends; in order of batches and, in a batch, of records."""
        import numpy as np

        starts, ends, counts = table[:, 0], table[:, 1], table[:, 2]
        firsts = np.cumsum(counts) - counts
        record_begins = np.empty(int(counts.sum()), np.int64)
        record_ends = np.empty_like(record_begins)
        order = np.argsort(-counts, kind="stable")
        at, last, first, left = starts[order], ends[order], firsts[order], counts[order]
        for step in range(int(left[0]) if len(left) else 0):
            living = int(np.searchsorted(-left, -step, side="left"))
            if living < len(at):
                if (at[living:] != last[living : len(at)]).any():
                    raise _flaw()
                at = at[:living]
            lengths, begins = self._varint(at, _VARINT_BYTES_MAX)
            at = begins + lengths
            if (lengths < 1).any() or (at > last[:living]).any():
                raise _flaw()
            record_begins[first[:living] + step] = begins
            record_ends[first[:living] + step] = at
        if (at != last[: len(at)]).any():
            raise _flaw()
        return record_begins, record_ends

    def _varint(self, at: Ints, bytes_max: int) -> tuple[Ints, Ints]:
        """The zigzag numbers at these positions, and where each ends."""
        import numpy as np

        byte = self._bytes[at].astype(np.uint64)
        raw = byte & np.uint64(0x7F)
        at = at + 1
        longer = np.flatnonzero(byte >= 0x80)
        for place in range(1, bytes_max):
            if not longer.size:
                break
            byte = self._bytes[at[longer]].astype(np.uint64)
            raw[longer] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
            at[longer] += 1
            longer = longer[byte >= 0x80]
        if longer.size:
            raise _flaw()
        if bytes_max == _VARINT_BYTES_MAX:
            raw &= np.uint64(0xFFFFFFFF)  # As in Kafka, what does not fit is dropped.
        value: Ints = (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)
        return value, at

    def _field(self, at: Ints, limits: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Where each byte string begins and ends, and which are null."""
        import numpy as np

        lengths, begins = self._varint(at, _VARINT_BYTES_MAX)
        ends = begins + np.maximum(lengths, 0)
        if (ends > limits).any():
            raise _flaw()
        return begins, ends, lengths < 0

    def _headers(self, at: Ints, limits: Ints, counts: Ints) -> list[tuple[Any, ...]]:
        """For each k: the records that have a header k, and where its key and its value lie."""
        import numpy as np

        found: list[tuple[Any, ...]] = []
        living = np.flatnonzero(counts)
        for step in range(int(counts.max()) if len(counts) else 0):
            living = living[counts[living] > step]
            key_begins, key_ends, key_nulls = self._field(at[living], limits[living])
            value_begins, value_ends, value_nulls = self._field(key_ends, limits[living])
            if key_nulls.any():
                raise _flaw()
            at[living] = value_ends
            found.append((living, key_begins, key_ends, key_nulls, value_begins, value_ends, value_nulls))
        if (at != limits).any():
            raise _flaw()
        return found

    def _kept_headers(self, found: list[tuple[Any, ...]], counts: Ints, kept: NDArray[np.bool_]) -> RawHeaders:
        import numpy as np

        firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        fields: list[Any] = [np.empty(total, np.bool_ if place in (2, 5) else np.int64) for place in range(6)]
        for step, (living, *parts) in enumerate(found):
            for field, part in zip(fields, parts, strict=True):
                field[firsts[living] + step] = part
        if not kept.all():
            mask = np.repeat(kept, counts)
            fields = [field[mask] for field in fields]
            counts = counts[kept]
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        keys, values = self._gather(*fields)
        validity = np.packbits(counts > 0, bitorder="little").tobytes() if (counts == 0).any() else None
        return len(fields[0]), validity, offsets.tobytes(), keys, values

    def _gather(self, *fields: Any) -> tuple[RawBinary, RawBinary]:
        import numpy as np
        import pyarrow as pa

        key_begins, key_ends, key_nulls, value_begins, value_ends, value_nulls = fields
        rows = len(key_begins)
        if not rows:
            return (None, bytes(4), b""), (None, bytes(4), b"")
        bounds = np.empty(4 * rows, np.int32)
        bounds[0::4], bounds[1::4], bounds[2::4], bounds[3::4] = key_begins, key_ends, value_begins, value_ends
        seen = pa.BinaryArray.from_buffers(
            pa.binary(), 4 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self._bytes)]
        )
        places = np.arange(0, 4 * rows, 4, dtype=np.int32)
        keys = seen.take(pa.array(places, mask=key_nulls if key_nulls.any() else None))
        values = seen.take(pa.array(places + 2, mask=value_nulls if value_nulls.any() else None))
        return tuple(keys.buffers()), tuple(values.buffers())
