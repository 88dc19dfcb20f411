"""Arrow record batches straight from fetched bytes: what Spark, or any tool that thinks in columns, reads a topic as.

`FetchedBatches` looks at the headers of what a fetch brought, so that the next fetch can be sent at once; then
`record_batches` makes the rows, a window of some megabytes at a time: CRC checked, unpacked where compressed, without
control batches and without the records of aborted transactions. The columns are those of Spark's Kafka source. No
record ever becomes a Python object. pyarrow is imported on use: a node does without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    crc_is_valid,
    read_header,
)
from ottla.records.columns import Binary, Columns, Headers, columns
from ottla.records.control import ControlType, control_type
from ottla.records.records import body_of, decode

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_BYTES = 8 * 1024 * 1024
"""Bytes of records, unpacked, that become one record batch: enough that what is paid once a batch weighs little."""

OFFSET_END = (1 << 63) - 1


class Aborted(NamedTuple):
    """A transaction whose records are not to be seen, as a fetch lists it."""

    producer_id: int
    first_offset: int


def schema(*, with_headers: bool = False) -> pa.Schema:
    """The columns, in the order of Spark's Kafka source."""
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if with_headers:
        fields.append(pa.field("headers", pa.list_(_header_type())))
    return pa.schema(fields)


class FetchedBatches:
    """The whole batches at the beginning of `data`; a partial one at the end is left out, as consumers do (KIP-74).

    Raises `Malformed` at a header that makes no sense, and `KafkaError` for a format older than Kafka's v2.
    """

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self._batches: list[tuple[BatchHeader, int]] = []
        position, end = 0, len(self._data)
        while end - position >= HEADER_SIZE:
            magic = self._data[position + MAGIC_POSITION]
            if magic != MAGIC_V2:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    f"The records are in message format v{magic}, which only brokers before 4.0 keep: rewrite it.",
                )
            header = read_header(self._data, position)
            size = header.batch_length + LOG_OVERHEAD
            if size > end - position:
                break
            self._batches.append((header, position))
            position += size

    @property
    def next_offset(self) -> int | None:
        """The offset after the last whole batch; None if there is none."""
        return self._batches[-1][0].next_offset if self._batches else None

    def record_batches(
        self,
        topic: str,
        partition: int,
        *,
        first_offset: int = 0,
        end_offset: int = OFFSET_END,
        aborted: Iterable[Aborted] = (),
        with_headers: bool = False,
        window_bytes: int = WINDOW_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """The records with offsets from `first_offset` up to, not including, `end_offset`, in order.

        `aborted` is what the fetch said of aborted transactions; nothing, for those who want to see them. Raises
        `KafkaError` (CORRUPT_MESSAGE) at a batch that is not what it was when it was written.
        """
        window = _Window(self._data)
        for header, position in self._visible(first_offset, end_offset, aborted):
            try:
                window.add(header, position)
            except Malformed as error:
                raise _corrupt(topic, partition, header, str(error)) from None
            if window.size >= window_bytes:
                yield from window.take(topic, partition, first_offset, end_offset, with_headers)
        yield from window.take(topic, partition, first_offset, end_offset, with_headers)

    def _visible(
        self, first_offset: int, end_offset: int, aborted: Iterable[Aborted]
    ) -> Iterator[tuple[BatchHeader, int]]:
        """The batches with records for the reader. As Kafka's consumer: from its first offset on until its marker, an
        aborted transaction hides what its producer wrote."""
        upcoming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        hidden: set[int] = set()
        for header, position in self._batches:
            while upcoming and upcoming[-1].first_offset <= header.last_offset:
                hidden.add(upcoming.pop().producer_id)
            if header.is_control:
                if header.producer_id in hidden and self._is_abort(header, position):
                    hidden.discard(header.producer_id)
            elif (
                header.last_offset >= first_offset
                and header.base_offset < end_offset
                and not (header.is_transactional and header.producer_id in hidden)
            ):
                yield header, position

    def _is_abort(self, header: BatchHeader, position: int) -> bool:
        batch = self._data[position : position + header.size]
        return any(control_type(record.key) == ControlType.ABORT for record in decode(body_of(batch, header), header))


class _Window:
    """Batches that become one record batch. Where none of them is compressed, their bytes stay where they are."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._reset()

    def _reset(self) -> None:
        self._spans = array("q")
        self._first: BatchHeader | None = None
        self._bodies: list[memoryview] = []
        self._is_compressed = False
        self.size = 0

    def add(self, header: BatchHeader, position: int) -> None:
        """Raises `Malformed`."""
        if not crc_is_valid(self._data, position, header.size):
            raise Malformed("its CRC does not match")
        if self._first is None:
            self._first = header
        compressed = header.compression != 0
        start, end = position + HEADER_SIZE, position + header.size
        body = body_of(self._data[position:end], header) if compressed else self._data[start:end]
        self._is_compressed |= compressed
        self._bodies.append(body)
        self._spans.extend(
            (
                start,
                end,
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.timestamp_type,
                header.max_timestamp,
            )
        )
        self.size += len(body)

    def take(
        self, topic: str, partition: int, first_offset: int, end_offset: int, with_headers: bool
    ) -> Iterator[pa.RecordBatch]:
        """The record batch of what was added since it was last called, if there is anything in it."""
        if self._first is None:
            return
        data: Buffer = self._data
        if self._is_compressed:
            data = b"".join(self._bodies)
            end = 0
            for place, body in enumerate(self._bodies):
                self._spans[7 * place] = end
                end += len(body)
                self._spans[7 * place + 1] = end
        try:
            found = columns(data, memoryview(self._spans).cast("B"), first_offset, end_offset, with_headers)
        except ValueError as error:
            raise _corrupt(topic, partition, self._first, str(error)) from None
        self._reset()
        if found.row_count:
            yield _record_batch(found, topic, partition)


def _corrupt(topic: str, partition: int, header: BatchHeader, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"Partition {topic}-{partition} cannot be read from offset {header.base_offset} on: {reason}.",
    )


def _record_batch(found: Columns, topic: str, partition: int) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    rows = found.row_count
    name = topic.encode()
    topics = pa.Array.from_buffers(
        pa.string(),
        rows,
        [
            None,
            pa.py_buffer(np.arange(0, (rows + 1) * len(name), len(name), dtype=np.int32)),
            pa.py_buffer(name * rows),
        ],
    )
    arrays = [
        _binary(found.keys, rows),
        _binary(found.values, rows),
        topics,
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.full(rows, partition, np.int32))]),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(found.offsets)]),
        pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, pa.py_buffer(found.timestamps)]),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(found.timestamp_types)]),
    ]
    if found.headers is not None:
        arrays.append(_headers(found.headers, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema(with_headers=found.headers is not None))


def _header_type() -> pa.StructType:
    import pyarrow as pa

    return pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def _headers(found: Headers, rows: int) -> pa.Array:
    import pyarrow as pa

    names = _binary(found.keys, found.total)
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        # Kafka's clients say that keys are UTF-8, but nobody checks it.
        keys = pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([keys, _binary(found.values, found.total)], fields=list(_header_type()))
    validity = None if found.validity is None else pa.py_buffer(found.validity)
    return pa.Array.from_buffers(
        pa.list_(_header_type()), rows, [validity, pa.py_buffer(found.offsets)], children=[pairs]
    )


def _binary(column: Binary, rows: int) -> pa.Array:
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(pa.binary(), rows, [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)])
