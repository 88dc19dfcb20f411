"""Which column an Avro schema is, and which Avro schema a column is.

    boolean, int, long, float, double, string, bytes        their namesakes
    int as date, long as timestamp-millis or -micros        date, timestamp
    long as local-timestamp-millis or -micros               timestamp without a zone
    bytes or fixed as decimal                               decimal
    enum                                                    string
    fixed                                                   binary
    array, map, record                                      array, map, struct
    a union of null and one type                            that type, which may be null

Other logical types are read as what they are made of. Records within themselves and unions of several types have no
column: a reader schema that leaves them out reads the rest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ottla.schemas.avro import (
    Array,
    Enum,
    Fixed,
    Json,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    canonical_text,
    simple_name,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

LOGICAL_TYPES = frozenset(
    {
        "date",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "decimal",
    }
)
DECIMAL_PRECISION_MAX = 38


class NoColumn(ValueError):
    """The schema has no column; the message is one sentence."""


def nullable_branch(schema: Schema) -> Schema | None:
    """The type that a union of it and null stands for; None for anything else."""
    if not isinstance(schema, Union):
        return None
    others = [branch for branch in schema.branches if branch.kind != "null"]
    return others[0] if len(others) == 1 else None


def logical_type(schema: Schema) -> str | None:
    """The logical type, if it is one that has a column of its own."""
    if not isinstance(schema, Primitive | Fixed):
        return None
    found = schema.props.get("logicalType")
    if found == "decimal":
        precision, scale = schema.props.get("precision"), schema.props.get("scale", 0)
        fits = (
            isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_PRECISION_MAX
        )
        return "decimal" if fits and precision and schema.kind in ("bytes", "fixed") else None
    expected = {"date": "int"}.get(str(found), "long")
    return str(found) if found in LOGICAL_TYPES and schema.kind == expected else None


def arrow_type(schema: Schema, within: tuple[str, ...] = ()) -> pa.DataType:
    """Raises `NoColumn`."""
    import pyarrow as pa

    plain = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
        "fixed": pa.binary(),
    }
    match logical_type(schema):
        case "date":
            return pa.date32()
        case "timestamp-millis" | "timestamp-micros":
            return pa.timestamp("us", tz="UTC")
        case "local-timestamp-millis" | "local-timestamp-micros":
            return pa.timestamp("us")
        case "decimal":
            assert isinstance(schema, Primitive | Fixed)
            precision, scale = schema.props["precision"], schema.props.get("scale", 0)
            assert isinstance(precision, int)
            assert isinstance(scale, int)
            return pa.decimal128(precision, scale)
    match schema:
        case Array():
            return pa.list_(arrow_type(schema.items, within))
        case Map():
            return pa.map_(pa.string(), arrow_type(schema.values, within))
        case Union():
            branch = nullable_branch(schema)
            if branch is None:
                raise NoColumn("A union of several types has no column: read with a schema that leaves its field out.")
            return arrow_type(branch, within)
        case Record():
            if schema.name in within:
                raise NoColumn(f"The record {schema.name} is within itself and has no column: leave its field out.")
            inner = (*within, schema.name)
            return pa.struct([pa.field(each.name, arrow_type(each.type, inner)) for each in schema.fields])
        case _:
            return plain[schema.kind]


def spark_type(schema: Schema) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(arrow_type(schema))


def plain_json(schema: Schema) -> Any:
    """The whole schema, with what it refers to, in JSON; logical types that have no column are left out of it."""
    return _without_others(json.loads(canonical_text(schema)))


def _without_others(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_others(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if key != "logicalType" or each in LOGICAL_TYPES}
    for key in ("type", "items", "values", "fields"):
        if key in kept:
            kept[key] = _without_others(kept[key])
    return kept


def default_value(schema: Schema, default: Json) -> Any:
    """A default as a value of Python, as `pyarrow.array` takes it for the schema's column."""
    match schema:
        case Union():
            branch = nullable_branch(schema)
            return None if default is None or branch is None else default_value(branch, default)
        case Array():
            return [default_value(schema.items, each) for each in default] if isinstance(default, list) else None
        case Map():
            return (
                [(key, default_value(schema.values, each)) for key, each in default.items()]
                if isinstance(default, dict)
                else None
            )
        case Record():
            given = default if isinstance(default, dict) else {}
            return {each.name: default_value(each.type, given.get(each.name, each.default)) for each in schema.fields}
        case Enum():
            return default
    logical = logical_type(schema)
    if logical is None:
        return str(default).encode("latin-1") if schema.kind in ("bytes", "fixed") else default
    if logical == "decimal":
        from decimal import Decimal

        assert isinstance(schema, Primitive | Fixed)
        scale = schema.props.get("scale", 0)
        assert isinstance(scale, int)
        unscaled = int.from_bytes(str(default).encode("latin-1"), "big", signed=True)
        return Decimal(unscaled).scaleb(-scale)
    assert isinstance(default, int)
    return default * 1000 if logical.endswith("millis") else default


def avro_of(data_type: DataType, name: str) -> Any:
    """The Avro schema, in JSON, of a column; every value may be null unless the column says otherwise. Raises
    `NoColumn` for types that Avro has no counterpart of."""
    from pyspark.sql import types as t

    simple = {
        "boolean": "boolean",
        "tinyint": "int",
        "smallint": "int",
        "int": "int",
        "bigint": "long",
        "float": "float",
        "double": "double",
        "string": "string",
        "binary": "bytes",
        "date": {"type": "int", "logicalType": "date"},
        "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
        "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    }
    match data_type:
        case t.StructType():
            return {
                "type": "record",
                "name": simple_name(name),
                **({"namespace": name.rpartition(".")[0]} if "." in name else {}),
                "fields": [
                    {"name": each.name, "type": _nullable(avro_of(each.dataType, f"{name}_{each.name}"), each.nullable)}
                    | ({"default": None} if each.nullable else {})
                    for each in data_type.fields
                ],
            }
        case t.ArrayType():
            items = avro_of(data_type.elementType, f"{name}_item")
            return {"type": "array", "items": _nullable(items, data_type.containsNull)}
        case t.MapType() if isinstance(data_type.keyType, t.StringType):
            values = avro_of(data_type.valueType, f"{name}_value")
            return {"type": "map", "values": _nullable(values, data_type.valueContainsNull)}
        case t.DecimalType():
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": data_type.precision,
                "scale": data_type.scale,
            }
    found = simple.get(data_type.simpleString())
    if found is None:
        raise NoColumn(f"A column of type {data_type.simpleString()} has no counterpart in Avro: cast it first.")
    return found


def _nullable(schema: Any, nullable: bool) -> Any:
    return ["null", schema] if nullable else schema
