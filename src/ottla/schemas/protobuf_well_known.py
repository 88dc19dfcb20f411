"""Google's own Protobuf types, which schemas import without anybody registering them, and their words in JSON.

A moment is `2026-11-16T09:30:00.500Z`, a length of time `1.500s`, a wrapped number the number itself, and a struct the
JSON that it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf import parse
from ottla.schemas.protobuf_types import File

PACKAGE = "google.protobuf"
VALUE = f"{PACKAGE}.Value"
NULL = f"{PACKAGE}.NullValue"

_WRAPPED = {
    "DoubleValue": "double",
    "FloatValue": "float",
    "Int64Value": "int64",
    "UInt64Value": "uint64",
    "Int32Value": "int32",
    "UInt32Value": "uint32",
    "BoolValue": "bool",
    "StringValue": "string",
    "BytesValue": "bytes",
}
_ZEROS: dict[str, Json] = {"int64": "0", "uint64": "0", "bool": False, "string": "", "bytes": ""}

_TEXT = """
syntax = "proto3";
package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Empty {}
message Any { string type_url = 1; bytes value = 2; }
message FieldMask { repeated string paths = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
    Struct struct_value = 5; ListValue list_value = 6;
  }
}
"""


@dataclass(frozen=True, slots=True)
class Special:
    """How a message of a type is shown as JSON, given its fields by name, and which fields a value in JSON has."""

    shown: Callable[[dict[str, Json]], Json]
    fields: Callable[[Json, str], dict[str, Json]]


@cache
def files() -> tuple[File, ...]:
    wrapped = "".join(f"message {name} {{ {kind} value = 1; }}\n" for name, kind in _WRAPPED.items())
    return (parse(_TEXT + wrapped),)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999."""


def _show_moment(fields: dict[str, Json]) -> Json:
    seconds, nanos = int(str(fields.get("seconds") or 0)), int(str(fields.get("nanos") or 0))
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < 1_000_000_000:
        raise BadValue("A timestamp is not of the years 1 to 9999.")
    return f"{(_EPOCH + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S').zfill(19)}{_fraction(nanos)}Z"


def _moment(value: Json, where: str) -> dict[str, Json]:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", str(value))
    if not isinstance(value, str) or found is None:
        raise BadValue(f"{where} must be a time, as in 2026-11-16T09:30:00Z.")
    try:
        when = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
    except ValueError:
        raise BadValue(f"{where} must be a time, as in 2026-11-16T09:30:00Z.") from None
    return {"seconds": (when - _EPOCH) // timedelta(seconds=1), "nanos": int((found[2] or "").ljust(9, "0"))}


def _show_duration(fields: dict[str, Json]) -> Json:
    seconds, nanos = int(str(fields.get("seconds") or 0)), int(str(fields.get("nanos") or 0))
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _duration(value: Json, where: str) -> dict[str, Json]:
    found = re.fullmatch(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?s", str(value))
    if not isinstance(value, str) or found is None:
        raise BadValue(f"{where} must be a length of time, as in 1.5s.")
    sign = -1 if found[1] else 1
    return {"seconds": sign * int(found[2]), "nanos": sign * int((found[3] or "").ljust(9, "0"))}


def _fraction(nanos: int) -> str:
    """None, three, six or nine digits."""
    if nanos == 0:
        return ""
    text = f"{nanos:09d}"
    return f".{text[: 3 if text.endswith('000000') else 6 if text.endswith('000') else 9]}"


def _show_value(fields: dict[str, Json]) -> Json:
    if "number_value" in fields and isinstance(fields["number_value"], str):
        raise BadValue("A number is not one that JSON has.")
    return next(iter(fields.values()), None)


def _value(value: Json, where: str) -> dict[str, Json]:
    match value:
        case None:
            return {"null_value": None}
        case bool():
            return {"bool_value": value}
        case int() | float():
            return {"number_value": value}
        case str():
            return {"string_value": value}
        case dict():
            return {"struct_value": value}
        case _:
            return {"list_value": value}


def _struct(value: Json, where: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise BadValue(f"{where} must be an object.")
    return {"fields": value}


def _list(value: Json, where: str) -> dict[str, Json]:
    if not isinstance(value, list):
        raise BadValue(f"{where} must be a list.")
    return {"values": value}


def _wrapper(kind: str) -> Special:
    zero = _ZEROS.get(kind, 0)
    return Special(lambda fields: fields.get("value", zero), lambda value, where: {"value": value})


SPECIAL: dict[str, Special] = {
    f"{PACKAGE}.Timestamp": Special(_show_moment, _moment),
    f"{PACKAGE}.Duration": Special(_show_duration, _duration),
    f"{PACKAGE}.Struct": Special(lambda fields: fields.get("fields", {}), _struct),
    f"{PACKAGE}.ListValue": Special(lambda fields: fields.get("values", []), _list),
    VALUE: Special(_show_value, _value),
    **{f"{PACKAGE}.{name}": _wrapper(kind) for name, kind in _WRAPPED.items()},
}
"""By full name."""
