"""Framed Avro to Arrow columns, beside fastavro, and with bytes that nobody wrote."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.client.registry import FoundSchema, RegistryClient, RegistrySettings, UnknownSchema
from ottla.schemas.avro import parse
from ottla.schemas.framing import prefix
from ottla.spark.avro.columns import plan
from ottla.spark.avro.decoder import Decoded, Decoder
from ottla.spark.avro.encoder import Encoder, Unwritable
from ottla.spark.avro.encoder import plan as encoding_plan
from ottla.spark.avro.types import NoColumn, arrow_type


class Shelf(RegistryClient):
    """A registry in memory."""

    def __init__(self, *schemas: object) -> None:
        super().__init__(RegistrySettings(urls=("http://nowhere",)))
        self._schemas = [
            each if isinstance(each, FoundSchema) else found(at, each) for at, each in enumerate(schemas, 1)
        ]

    def by_id(self, schema_id: int) -> FoundSchema:
        for each in self._schemas:
            if each.id == schema_id:
                return each
        raise UnknownSchema(f"Schema {schema_id} not found")


def found(schema_id: int, schema: object, kind: str = "AVRO") -> FoundSchema:
    return FoundSchema(id=schema_id, kind=kind, text=json.dumps(schema), references=())


def record(*fields: object, name: str = "r") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: object, **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def framed(schema_id: int, schema: object, value: object) -> bytes:
    output = io.BytesIO()
    output.write(prefix(schema_id))
    fastavro.schemaless_writer(output, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return output.getvalue()


def decoded(reader: object, shelf: Shelf, *values: bytes | None) -> Decoded:
    return Decoder(parse(json.dumps(reader)), shelf).decode(pa.array(values, pa.binary()))


FLAT = record(
    field("b", "boolean"),
    field("i", "int"),
    field("l", "long"),
    field("f", "float"),
    field("d", "double"),
    field("s", "string"),
    field("y", "bytes"),
    field("n", ["null", "string"]),
    field("m", ["long", "null"]),
    field("e", {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}),
    field("x", {"type": "fixed", "name": "x", "size": 3}),
    field("in", record(field("a", "int"), field("t", ["null", "string"]), name="inner")),
    field("maybe", ["null", record(field("a", "int"), name="other")]),
)
ROWS: list[dict[str, Any]] = [
    {
        "b": number % 2 == 0,
        "i": [-(1 << 31), (1 << 31) - 1, number][number % 3],
        "l": [-(1 << 63), (1 << 63) - 1, number * 1_000_003][number % 3],
        "f": number / 4,
        "d": number / 3,
        "s": "ä" * (number % 5),
        "y": bytes(range(number % 7)),
        "n": None if number % 3 == 0 else f"text {number}" * 20,
        "m": None if number % 4 == 0 else number,
        "e": "ABC"[number % 3],
        "x": bytes([number % 256] * 3),
        "in": {"a": number, "t": None if number % 2 else "t"},
        "maybe": None if number % 5 else {"a": -number},
    }
    for number in range(500)
]


def test_flat_records_are_decoded_by_columns_as_fastavro_reads_them() -> None:
    assert plan(parse(json.dumps(FLAT)), parse(json.dumps(FLAT))) is not None
    got = decoded(FLAT, Shelf(FLAT), *(framed(1, FLAT, row) for row in ROWS))
    assert not got.errors
    assert set(got.schema_ids) == {1}
    assert got.values.to_pylist() == ROWS


def test_a_slice_of_a_column_is_decoded_from_where_it_begins() -> None:
    whole = pa.array([None, b"junk", *(framed(1, FLAT, row) for row in ROWS[:9]), b""], pa.binary())
    got = Decoder(parse(json.dumps(FLAT)), Shelf(FLAT)).decode(whole.slice(4, 5))
    assert got.values.to_pylist() == ROWS[2:7]


def test_each_record_is_read_by_the_schema_that_it_names() -> None:
    old = record(field("id", "int"), field("gone", "string"))
    new = record(
        field("id", "long"), field("note", "string", default="none"), field("score", ["null", "double"], default=None)
    )
    listed = record(field("id", "int"), field("tags", {"type": "array", "items": "string"}))
    shelf = Shelf(old, new, listed)
    got = decoded(
        new,
        shelf,
        framed(1, old, {"id": 1, "gone": "x"}),
        framed(2, new, {"id": 2, "note": "two", "score": 0.5}),
        None,
        framed(3, listed, {"id": 3, "tags": ["a"]}),
        framed(1, old, {"id": 4, "gone": ""}),
    )
    assert not got.errors
    assert got.values.to_pylist() == [
        {"id": 1, "note": "none", "score": None},
        {"id": 2, "note": "two", "score": 0.5},
        None,
        {"id": 3, "note": "none", "score": None},
        {"id": 4, "note": "none", "score": None},
    ]
    assert got.schema_ids.tolist() == [1, 2, -1, 3, 1]


def test_logical_types_and_what_needs_a_loop() -> None:
    schema = record(
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
        field("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        field("time", {"type": "int", "logicalType": "time-millis"}),
        field("tags", {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}),
    )
    raw = record(
        field("day", "int"),
        field("at", "long"),
        field("local", "long"),
        field("price", "bytes"),
        field("time", "int"),
        field("tags", {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}),
    )
    value = {"day": 3, "at": 1500, "local": 7, "price": (1234).to_bytes(2, "big"), "time": 9, "tags": {"k": [1, None]}}
    got = decoded(schema, Shelf(schema), framed(1, raw, value))
    assert not got.errors, got.errors
    (row,) = got.values.to_pylist()
    assert (row["price"], row["time"], row["tags"]) == (Decimal("12.34"), 9, [("k", [1, None])])
    assert (str(row["day"]), row["at"].timestamp(), row["local"].microsecond) == ("1970-01-04", 1.5, 7)
    flat = record(*schema["fields"][:3])  # type: ignore[index]
    assert plan(parse(json.dumps(flat)), parse(json.dumps(flat))) is not None
    got = decoded(flat, Shelf(record(*raw["fields"][:3])), framed(1, record(*raw["fields"][:3]), value))  # type: ignore[index]
    assert got.values.to_pylist() == [{"day": row["day"], "at": row["at"], "local": row["local"]}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "does not begin with a schema id"),
        (b"\x00\x00\x00", "does not begin with a schema id"),
        (b"\x01\x00\x00\x00\x01\x02", "does not begin with a schema id"),
        (b'{"id": 1}', "does not begin with a schema id"),
        (prefix(77) + b"\x02", "no schema with id 77"),
        (prefix(2) + b"\x02", "is of type JSON"),
        (prefix(3) + b"\x02", "cannot be read"),
        (prefix(1), "no record of schema 1"),
        (prefix(1) + b"\x02\x04a", "no record of schema 1"),
        (prefix(1) + b"\x02\x01", "no record of schema 1"),
        (prefix(1) + b"\x02\x02\xff", "no record of schema 1"),
        (prefix(1) + b"\x02\x02a!", "no record of schema 1"),
        (prefix(1) + b"\xff" * 30, "no record of schema 1"),
        (prefix(4) + b"\x02", "cannot be read"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_record_that_is_none_is_null_with_its_reason_and_its_neighbours_are_read(value: bytes, reason: str) -> None:
    schema = record(field("id", "int"), field("s", "string"))
    needs = record(field("id", "int"), name="another")
    shelf = Shelf(schema, found(2, {}, "JSON"), found(3, "nonsense"), needs)
    good = framed(1, schema, {"id": 5, "s": "fünf"})
    got = decoded(schema, shelf, good, value, good)
    assert list(got.errors) == [1]
    assert reason in got.errors[1]
    assert got.values.to_pylist() == [{"id": 5, "s": "fünf"}, None, {"id": 5, "s": "fünf"}]


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, 499), st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=20))
def test_a_changed_byte_never_fails_the_batch_nor_another_record(changes: list[tuple[int, int, int]]) -> None:
    values = []
    for row, at, byte in changes:
        good = framed(1, FLAT, ROWS[row])
        changed = bytearray(good)
        changed[PREFIX + at % (len(good) - PREFIX)] = byte
        values += [bytes(changed), good]
    got = decoded(FLAT, Shelf(FLAT), *values)
    assert got.values.to_pylist()[1::2] == [ROWS[row] for row, _, _ in changes]
    # What is called a record, fastavro reads, and reads the same.
    parsed = fastavro.parse_schema(json.loads(json.dumps(FLAT)))
    for row, (data, value) in enumerate(zip(values, got.values.to_pylist(), strict=True)):
        if row not in got.errors:
            source = io.BytesIO(data[PREFIX:])
            read = fastavro.schemaless_reader(source, parsed, None)
            assert repr(read) == repr(value)


PREFIX = 5
PRIMITIVES = ["boolean", "int", "long", "float", "double", "string", "bytes"]
WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}


def random_flat(chance: random.Random) -> tuple[dict[str, object], dict[str, object]]:
    """A writer's schema, and a reader's that can read it."""
    written, read = [], []
    for at in range(chance.randint(1, 6)):
        kind = chance.choice(PRIMITIVES)
        target = chance.choice([kind, kind, *WIDER.get(kind, [])])
        nullable = chance.random() < 0.4
        written.append(field(f"f{at}", ["null", kind] if nullable else kind))
        if chance.random() < 0.8:
            read.append(field(f"f{at}", ["null", target] if nullable or chance.random() < 0.2 else target))
    if chance.random() < 0.5:
        read.append(field("added", "string", default="d"))
    chance.shuffle(read)
    return record(*written), record(*read)


def random_value(kind: Any, chance: random.Random) -> Any:
    match kind:
        case list():
            return None if chance.random() < 0.4 else random_value(kind[1], chance)
        case "boolean":
            return chance.random() < 0.5
        case "int":
            return chance.randint(-(1 << 31), (1 << 31) - 1) >> chance.randint(0, 31)
        case "long":
            return chance.randint(-(1 << 63), (1 << 63) - 1) >> chance.randint(0, 63)
        case "float" | "double":
            return chance.randint(-1000, 1000) / 8
        case "string":
            return "é" * chance.randint(0, 100)
        case _:
            return chance.randbytes(chance.randint(0, 200))


@pytest.mark.parametrize("seed", range(40))
def test_columns_and_rows_read_the_same(seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = random_flat(chance)
    assert plan(parse(json.dumps(writer)), parse(json.dumps(reader))) is not None
    fields: Any = writer["fields"]
    values = [
        framed(1, writer, {each["name"]: random_value(each["type"], chance) for each in fields}) for _ in range(30)
    ]
    got = decoded(reader, Shelf(writer), *values)
    assert not got.errors
    written, read = (fastavro.parse_schema(json.loads(json.dumps(each))) for each in (writer, reader))
    expected = pa.array(
        [fastavro.schemaless_reader(io.BytesIO(each[PREFIX:]), written, read) for each in values],
        arrow_type(parse(json.dumps(reader))),
    )
    assert got.values.equals(expected)


def test_what_has_no_column_is_said() -> None:
    with pytest.raises(NoColumn, match="several types"):
        arrow_type(parse('["int", "string"]'))
    with pytest.raises(NoColumn, match="within itself"):
        arrow_type(parse(json.dumps(record(field("next", ["null", "r"])))))


def test_flat_rows_are_encoded_as_fastavro_writes_them() -> None:
    assert encoding_plan(parse(json.dumps(FLAT))) is not None
    values = pa.array([None, *ROWS, None], arrow_type(parse(json.dumps(FLAT))))
    encoded = Encoder(json.dumps(FLAT), 1).encode(values.slice(1, len(ROWS) + 1))
    assert encoded.to_pylist() == [*(framed(1, FLAT, row) for row in ROWS), None]


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_rows_write_the_same(seed: int) -> None:
    chance = random.Random(seed)
    schema, _ = random_flat(chance)
    fields: Any = schema["fields"]
    rows = [{each["name"]: random_value(each["type"], chance) for each in fields} for _ in range(30)]
    values = pa.array(rows, arrow_type(parse(json.dumps(schema))))
    assert Encoder(json.dumps(schema), 7).encode(values).to_pylist() == [framed(7, schema, row) for row in rows]


def test_what_needs_a_loop_is_encoded_row_by_row() -> None:
    schema = record(
        field("tags", {"type": "map", "values": {"type": "array", "items": "int"}}),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    assert encoding_plan(parse(json.dumps(schema))) is None
    kind = arrow_type(parse(json.dumps(schema)))
    values = pa.array([{"tags": [("k", [1, 2])], "price": Decimal("1.25"), "at": 1_500_000}, None], kind)
    encoded = Encoder(json.dumps(schema), 1).encode(values)
    got = Decoder(parse(json.dumps(schema)), Shelf(schema)).decode(encoded)
    assert not got.errors
    assert got.values.equals(values)
    times = record(
        field("at", {"type": "long", "logicalType": "timestamp-millis"}),
        field("day", {"type": "int", "logicalType": "date"}),
    )
    assert encoding_plan(parse(json.dumps(times))) is not None
    values = pa.array([{"at": -1_500_000, "day": 3}], arrow_type(parse(json.dumps(times))))
    encoded = Encoder(json.dumps(times), 1).encode(values)
    assert Decoder(parse(json.dumps(times)), Shelf(times)).decode(encoded).values.equals(values)


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (record(field("a", "int")), {"a": None}),
        (record(field("a", "int")), {"b": 1}),
        (record(field("a", "int")), {"a": 1 << 40}),
        (record(field("a", {"type": "enum", "name": "e", "symbols": ["A"]})), {"a": "B"}),
        (record(field("a", {"type": "fixed", "name": "x", "size": 3})), {"a": b"four"}),
        (record(field("a", {"type": "array", "items": "int"})), {"a": None}),
    ],
)
def test_a_row_that_the_schema_has_no_place_for_is_refused(schema: object, row: dict[str, object]) -> None:
    with pytest.raises(Unwritable):
        Encoder(json.dumps(schema), 1).encode(pa.array([row]))
