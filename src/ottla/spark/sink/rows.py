"""Which columns a DataFrame's rows become records of, and what is wrong with those that cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.packing import RecordColumns
from ottla.spark.sink.handover import SinkError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class Rows(NamedTuple):
    """The rows of one Arrow batch, their columns checked as Spark's Kafka connector checks them."""

    columns: RecordColumns
    key: pa.Array | None
    topics: pa.Array | None
    """None if all go to `topic`."""
    topic: str | None
    partitions: NDArray[np.int64] | None
    """-1 where the row says none."""

    @classmethod
    def of(cls, batch: pa.RecordBatch, topic: str | None) -> Rows:
        """Raises `SinkError` where the columns are not what records are made of."""
        import numpy as np
        import pyarrow as pa

        by_name = {name.lower(): index for index, name in enumerate(batch.schema.names)}

        def column(name: str) -> pa.Array | None:
            return batch.column(by_name[name]) if name in by_name else None

        check_schema(batch.schema, topic)
        key, partition, timestamp = column("key"), column("partition"), column("timestamp")
        now_ms = int(time.time() * 1000)
        if timestamp is None:
            timestamps = np.full(batch.num_rows, now_ms, np.int64)
        else:
            in_ms = timestamp.cast(pa.timestamp("ms", timestamp.type.tz), safe=False).cast(pa.int64())
            timestamps = np.ascontiguousarray(in_ms.fill_null(now_ms).to_numpy(zero_copy_only=False))
        try:
            columns = RecordColumns.of(
                timestamps_ms=timestamps,
                key=_or_none(key),
                value=_or_none(column("value")),
                headers=_or_none(column("headers")),
            )
        except ValueError as error:
            raise SinkError(str(error)) from None
        topics = None if topic is not None else column("topic")
        if topics is not None and topics.null_count:
            raise SinkError("A row has no topic: fill the topic column, or set the option topic for all rows.")
        partitions = None
        if partition is not None:
            filled = partition.cast(pa.int64()).fill_null(-1)
            partitions = filled.to_numpy(zero_copy_only=False)
            if (partitions < -1).any() or (partitions == -1).sum() != partition.null_count:
                raise SinkError(
                    "The partition column has a negative number: leave it null where any partition will do."
                )
        return cls(columns, _or_none(key), topics, topic, partitions)

    def by_topic(self) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        """Each topic, and which rows go there; None for all."""
        import numpy as np

        if self.topic is not None:
            yield self.topic, None
            return
        assert self.topics is not None
        encoded = self.topics.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            yield name, np.flatnonzero(codes == code).astype(np.int64)


def check_schema(schema: pa.Schema, topic: str | None) -> None:
    """Raises `SinkError` where a column is missing or of a type that cannot be written."""
    import pyarrow as pa

    fields = {field.name.lower(): field.type for field in schema}
    if topic is None and "topic" not in fields:
        raise SinkError("The topic is missing: set the option topic, or add a column of that name.")
    if "value" not in fields:
        raise SinkError("The column value is missing: records are made of value, and key, headers, … if there are any.")
    wanted = {
        "key": ("a string or binary", (_is_bytes,)),
        "value": ("a string or binary", (_is_bytes,)),
        "topic": ("a string", (pa.types.is_string, pa.types.is_large_string)),
        "partition": ("an int", (pa.types.is_integer,)),
        "timestamp": ("a timestamp", (pa.types.is_timestamp,)),
        "headers": ("an array of structs of a string key and a binary value", (_is_headers,)),
    }
    for name, (what, tests) in wanted.items():
        if name in fields and not pa.types.is_null(fields[name]) and not any(test(fields[name]) for test in tests):
            raise SinkError(f"The column {name} is of type {fields[name]}, and must be {what}: cast it.")


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return any(test(kind) for test in (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string))


def _is_headers(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    inner = kind.value_type
    return pa.types.is_struct(inner) and inner.num_fields == 2 and all(_is_bytes(inner.field(at).type) for at in (0, 1))


def _or_none(array: pa.Array | None) -> pa.Array | None:
    """A column of nothing is no column."""
    return None if array is None or array.null_count == len(array) else array
