"""What a query calls: functions of columns and DataFrames, which send a decoder or an encoder to the tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.client.registry import RegistrySettings, shared_registry
from ottla.client.settings import ClientSettings
from ottla.schemas.avro import Schema, canonical_text, parse
from ottla.spark.avro.decoder import Decoded, Decoder
from ottla.spark.avro.encoder import Encoder
from ottla.spark.avro.types import avro_of, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

FAIL = "fail"
NULL = "null"


class UndecodableRecord(Exception):
    """A record that cannot be decoded, where it was said that this is to stop the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an executor must know to decode; sent along with the query."""

    registry: RegistrySettings
    schema: str
    """The reader's, whole."""

    def decoder(self) -> Decoder:
        return Decoder(parse(self.schema, strict=False), shared_registry(self.registry))


def from_confluent_avro(
    column: Column | str,
    *,
    registry: str,
    subject: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    on_error: str = FAIL,
) -> Column:
    """A typed column of a binary one. A record that cannot be decoded fails the query; with `on_error="null"` it is
    null.

    `schema` is the reader's, in JSON; without it, the newest of `subject` is. `options` may have
    `basic.auth.user.info`."""
    if on_error not in (FAIL, NULL):
        raise ValueError(f'on_error is {on_error!r}; choose "fail" or "null".')
    reading, reader = _reading(registry, subject, schema, options)

    def read(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = reading.decoder()
        for batch in values:
            decoded = decoder.decode(batch)
            if on_error == FAIL:
                _refuse(decoded)
            yield decoded.values

    return _applied(read, spark_type(reader), column)


def decode(
    frame: DataFrame,
    *,
    registry: str,
    subject: str | None = None,
    schema: str | None = None,
    column: str = "value",
    options: Mapping[str, str] | None = None,
    dead_letter_topic: str | None = None,
    failure_column: str | None = None,
    kafka: Mapping[str, str] | None = None,
) -> DataFrame:
    """`frame`, as the source gives it, with `column` typed. A record that cannot be decoded fails the query.

    With `dead_letter_topic` it goes there, at least once, and the query goes on without it; `kafka` are the settings of
    the cluster that has that topic, under the names that Kafka's clients give them. With `failure_column` it stays,
    null, and the column of that name says why: `dead_letters.letters` makes records of such rows, which a sink that is
    exactly once writes once."""
    from pyspark.sql.types import StructField, StructType

    reading, reader = _reading(registry, subject, schema, options)
    if failure_column is not None and dead_letter_topic is not None:
        raise ValueError("Give dead_letter_topic or failure_column, not both.")
    dead_letters = None
    if dead_letter_topic is not None:
        if not kafka:
            raise ValueError("dead_letter_topic needs a cluster: give kafka={'bootstrap.servers': 'host:port'}.")
        missing = {"topic", "partition", "offset"} - set(frame.columns)
        if missing:
            raise ValueError(f"Dead letters say where they came from: keep the columns {', '.join(sorted(missing))}.")
        dead_letters = DeadLetters(topic=dead_letter_topic, client=ClientSettings.parse(kafka), column=column)
    target = StructType(
        [
            StructField(
                each.name,
                spark_type(reader) if each.name == column else each.dataType,
                each.name == column or each.nullable,
            )
            for each in frame.schema.fields
        ]
    )
    if failure_column is not None:
        target = target.add(failure_column, _failure_type())
    return frame.mapInArrow(_batches(reading, column, dead_letters, failure_column), target)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where records go that cannot be decoded."""

    topic: str
    client: ClientSettings
    column: str

    def send(self, batch: pa.RecordBatch, decoded: Decoded) -> None:
        from ottla.spark.clients import shared_client
        from ottla.spark.dead_letters import DeadLetter, send

        letters = []
        for row, error in sorted(decoded.errors.items()):
            (line,) = batch.slice(row, 1).to_pylist()
            headers = line.get("headers") or ()
            timestamp = line.get("timestamp")
            letters.append(
                DeadLetter(
                    key=line.get("key"),
                    value=line.get("value"),
                    headers=tuple((each["key"], each["value"]) for each in headers),
                    topic=line["topic"],
                    partition=line["partition"],
                    offset=line["offset"],
                    timestamp_ms=round(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else None,
                    error=error,
                    schema_id=int(decoded.schema_ids[row]),
                    column=self.column,
                )
            )
        send(shared_client(self.client), self.topic, letters)


def _batches(
    reading: Reading, column: str, dead_letters: DeadLetters | None, failure_column: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        decoder = reading.decoder()
        for batch in batches:
            at = batch.schema.get_field_index(column)
            decoded = decoder.decode(batch.column(at))
            typed = batch.set_column(at, pa.field(column, decoded.values.type), decoded.values)
            if failure_column is not None:
                yield typed.append_column(failure_column, _failures(batch.column(at), decoded))
                continue
            if dead_letters is None:
                _refuse(decoded)
            elif decoded.errors:
                dead_letters.send(batch, decoded)
            if decoded.errors:
                good = np.ones(len(typed), dtype=bool)
                good[list(decoded.errors)] = False
                typed = typed.filter(pa.array(good))
            yield typed

    return convert


def _failure_type() -> StructType:
    """Why a record could not be decoded, the id of the schema that it names, and what it was."""
    from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

    return StructType().add("error", StringType()).add("schemaId", IntegerType()).add("bytes", BinaryType())


def _failures(column: pa.Array, decoded: Decoded) -> pa.Array:
    """A struct for each record that could not be decoded, null for the others."""
    import pyarrow as pa

    kind = pa.struct([("error", pa.string()), ("schemaId", pa.int32()), ("bytes", pa.binary())])
    if not decoded.errors:
        return pa.nulls(len(column), kind)
    told: list[dict[str, object] | None] = [None] * len(column)
    for row, error in decoded.errors.items():
        schema_id = int(decoded.schema_ids[row])
        named = schema_id if schema_id >= 0 else None
        told[row] = {"error": error, "schemaId": named, "bytes": column[row].as_py()}
    return pa.array(told, kind)


def _refuse(decoded: Decoded) -> None:
    for row, error in sorted(decoded.errors.items())[:1]:
        schema_id = int(decoded.schema_ids[row])
        which = f" (schema id {schema_id})" if schema_id >= 0 else ""
        raise UndecodableRecord(f"A record cannot be decoded{which}: {error}")


def _reading(
    registry: str, subject: str | None, schema: str | None, options: Mapping[str, str] | None
) -> tuple[Reading, Schema]:
    settings = RegistrySettings.parse(registry, options)
    if schema is not None:
        reader = parse(schema)
    elif subject is not None:
        found = shared_registry(settings).latest(subject)
        if found.kind != "AVRO":
            raise ValueError(f"The subject {subject} holds schemas of type {found.kind}, not Avro.")
        reader = parse(found.text, found.references, strict=False)
    else:
        raise ValueError("Say what to read as: give the subject whose newest schema counts, or a schema.")
    return Reading(registry=settings, schema=canonical_text(reader)), reader


# Writing.


def to_confluent_avro(
    column: Column | str,
    *,
    registry: str,
    subject: str,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Column:
    """A binary column of a struct, in the format of Confluent's serializers. `schema` is registered under `subject`;
    without it, the newest that the subject has is written with. See `schema_of` for that of a DataFrame."""
    from pyspark.sql.types import BinaryType

    client = shared_registry(RegistrySettings.parse(registry, options))
    if schema is None:
        found = client.latest(subject)
        schema_id, written = found.id, parse(found.text, found.references, strict=False)
    else:
        written = parse(schema)
        schema_id = client.register(subject, canonical_text(written))
    text = canonical_text(written)

    def write(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encoder = Encoder(text, schema_id)
        for batch in values:
            yield encoder.encode(batch)

    return _applied(write, BinaryType(), column)


def schema_of(struct: StructType, name: str = "Row") -> str:
    """The Avro schema of a DataFrame's `schema`, or of a struct column's type."""
    return json.dumps(avro_of(struct, name))


def _applied(
    function: Callable[[Iterator[pa.Array]], Iterator[pa.Array]], kind: DataType, column: Column | str
) -> Column:
    """`function`, which turns the batches of one column into those of another, on a column of a query."""
    import pyarrow as pa
    from pyspark.sql.functions import col
    from pyspark.sql.pandas import functions

    # By its annotations PySpark knows that it takes batches one after the other; they must be there when it runs.
    function.__annotations__ = dict.fromkeys((*function.__annotations__, "return"), Iterator[pa.Array])
    make: Any = functions.arrow_udf
    made: Callable[[Column], Column] = make(function, kind)
    return made(col(column) if isinstance(column, str) else column)
