"""Protobuf messages one at a time, held against Google's own library: the same JSON, the same bytes, and no harm."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf_values import Schema

TEXT = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
message Other { string note = 1; message Inner { int32 x = 1; } message Deep { Inner inner = 1; } }
message Order {
  double a_double = 1; float a_float = 2; int32 an_int32 = 3; int64 an_int64 = 4; uint32 a_uint32 = 5;
  uint64 a_uint64 = 6; sint32 a_sint32 = 7; sint64 a_sint64 = 8; fixed32 a_fixed32 = 9; fixed64 a_fixed64 = 10;
  sfixed32 a_sfixed32 = 11; sfixed64 a_sfixed64 = 12; bool a_bool = 13; string a_string = 14; bytes some_bytes = 15;
  Kind kind = 16; Order next = 17;
  repeated int32 many = 18; repeated string texts = 19; repeated Order orders = 20; repeated Kind kinds = 21;
  repeated sint64 unpacked = 22 [packed = false];
  map<string, int32> counts = 23; map<int64, Order> by_number = 24; map<bool, string> said = 25;
  oneof pay { string card = 26; int64 cash = 27; Other.Inner inner = 28; }
  optional int32 weight = 29;
  google.protobuf.Timestamp at = 30; google.protobuf.Duration took = 31; google.protobuf.Struct free = 32;
  google.protobuf.Int64Value maybe = 33; google.protobuf.Value any_value = 34; google.protobuf.BoolValue sure = 35;
  repeated double prices = 36;
}
enum Kind { NONE = 0; BIG = 1; NEGATIVE = -1; }
"""
KINDS = descriptor_pb2.FieldDescriptorProto
SCALARS = (
    *("DOUBLE", "FLOAT", "INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "FIXED32", "FIXED64"),
    *("SFIXED32", "SFIXED64", "BOOL", "STRING", "BYTES"),
)
NAMES = (
    *("a_double", "a_float", "an_int32", "an_int64", "a_uint32", "a_uint64", "a_sint32", "a_sint64", "a_fixed32"),
    *("a_fixed64", "a_sfixed32", "a_sfixed64", "a_bool", "a_string", "some_bytes"),
)


def descriptor() -> descriptor_pb2.FileDescriptorProto:
    """What a compiler makes of `TEXT`."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop.v1", syntax="proto3")
    for name in ("timestamp", "duration", "struct", "wrappers"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    other = file.message_type.add(name="Other")
    other.field.add(name="note", number=1, type=KINDS.TYPE_STRING)
    inner = other.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=KINDS.TYPE_INT32)
    deep = other.nested_type.add(name="Deep")
    deep.field.add(name="inner", number=1, type=KINDS.TYPE_MESSAGE, type_name=".shop.v1.Other.Inner")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(zip(NAMES, SCALARS, strict=True), 1):
        order.field.add(name=name, number=number, type=getattr(KINDS, f"TYPE_{kind}"))

    def add(name: str, number: int, kind: str, type_name: str = "", many: bool = False, **more: Any) -> None:
        label = KINDS.LABEL_REPEATED if many else KINDS.LABEL_OPTIONAL
        made = order.field.add(name=name, number=number, type=getattr(KINDS, f"TYPE_{kind}"), label=label, **more)
        if type_name:
            made.type_name = type_name

    def add_map(name: str, number: int, key: str, kind: str, type_name: str = "") -> None:
        entry = order.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=getattr(KINDS, f"TYPE_{key}"))
        value = entry.field.add(name="value", number=2, type=getattr(KINDS, f"TYPE_{kind}"))
        if type_name:
            value.type_name = type_name
        add(name, number, "MESSAGE", f".shop.v1.Order.{entry.name}", many=True)

    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_weight")
    add("kind", 16, "ENUM", ".shop.v1.Kind")
    add("next", 17, "MESSAGE", ".shop.v1.Order")
    add("many", 18, "INT32", many=True)
    add("texts", 19, "STRING", many=True)
    add("orders", 20, "MESSAGE", ".shop.v1.Order", many=True)
    add("kinds", 21, "ENUM", ".shop.v1.Kind", many=True)
    add("unpacked", 22, "SINT64", many=True, options=descriptor_pb2.FieldOptions(packed=False))
    add_map("counts", 23, "STRING", "INT32")
    add_map("by_number", 24, "INT64", "MESSAGE", ".shop.v1.Order")
    add_map("said", 25, "BOOL", "STRING")
    add("card", 26, "STRING", oneof_index=0)
    add("cash", 27, "INT64", oneof_index=0)
    add("inner", 28, "MESSAGE", ".shop.v1.Other.Inner", oneof_index=0)
    add("weight", 29, "INT32", oneof_index=1, proto3_optional=True)
    add("at", 30, "MESSAGE", ".google.protobuf.Timestamp")
    add("took", 31, "MESSAGE", ".google.protobuf.Duration")
    add("free", 32, "MESSAGE", ".google.protobuf.Struct")
    add("maybe", 33, "MESSAGE", ".google.protobuf.Int64Value")
    add("any_value", 34, "MESSAGE", ".google.protobuf.Value")
    add("sure", 35, "MESSAGE", ".google.protobuf.BoolValue")
    add("prices", 36, "DOUBLE", many=True)
    kind = file.enum_type.add(name="Kind")
    for name, number in (("NONE", 0), ("BIG", 1), ("NEGATIVE", -1)):
        kind.value.add(name=name, number=number)
    return file


def google_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(descriptor())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


ORDER = google_class("shop.v1.Order")
SCHEMAS = {"text": Schema(TEXT), "descriptor": Schema(base64.b64encode(descriptor().SerializeToString()).decode())}
IN_THE_SECOND_MESSAGE = b"\x02\x02"

VALUES: list[dict[str, Json]] = [
    {},
    {
        "aDouble": -2.5,
        "aFloat": 0.1,
        "anInt32": -1,
        "anInt64": str(-(1 << 63)),
        "aUint32": (1 << 32) - 1,
        "aUint64": str((1 << 64) - 1),
        "aSint32": -(1 << 31),
        "aSint64": str((1 << 63) - 1),
        "aFixed32": 7,
        "aFixed64": "8",
        "aSfixed32": -7,
        "aSfixed64": "-8",
        "aBool": True,
        "aString": "é\x00\U0001f600",
        "someBytes": "AP8=",
        "kind": "NEGATIVE",
    },
    {"next": {"next": {"aString": "deep"}}, "many": [1, 0, -1], "texts": ["", "x"], "orders": [{}, {"anInt32": 5}]},
    {"kinds": ["BIG", "NONE", 17], "unpacked": ["-1", "5"], "counts": {"": 0, "b": -2}, "prices": [0.5, "NaN"]},
    {"byNumber": {"-5": {"kind": 12}, "0": {}}, "said": {"true": "yes", "false": ""}},
    {"card": ""},
    {"cash": "0", "weight": 0},
    {"inner": {}},
    {"at": "2026-11-16T09:30:00Z", "took": "-1.500s"},
    {"at": "1969-12-31T23:59:59.000000001Z", "took": "3s"},
    {"at": "0001-01-01T00:00:00.120Z", "took": "0.000001s"},
    {"free": {"a": None, "b": [1.0, "x", True, {}], "c": {"d": -0.5}}, "maybe": "0", "sure": False},
    {"anyValue": None},
    {"anyValue": [None, 2.0]},
    {"aFloat": "-Infinity", "aDouble": "Infinity"},
    {"aString": "0", "aDouble": -0.0},
]


@pytest.mark.parametrize("form", SCHEMAS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_is_protobuf_as_google_s_library_writes_and_shows_it(form: str, value: dict[str, Json]) -> None:
    schema = SCHEMAS[form]
    google = json_format.ParseDict(value, ORDER())
    written = schema.encode(value, "Order")
    assert written.startswith(IN_THE_SECOND_MESSAGE)
    assert ORDER.FromString(written[2:]) == google
    assert len(written[2:]) == len(google.SerializeToString())
    assert schema.decode(IN_THE_SECOND_MESSAGE + google.SerializeToString()) == json_format.MessageToDict(google)


@pytest.mark.parametrize("form", SCHEMAS)
@given(data=st.binary(max_size=40))
@settings(max_examples=200, derandomize=True)
def test_what_google_s_library_reads_is_read_alike_and_nothing_does_harm(form: str, data: bytes) -> None:
    expected: Json = None
    with contextlib.suppress(Exception):
        expected = json_format.MessageToDict(ORDER.FromString(data))
    try:
        found = SCHEMAS[form].decode(IN_THE_SECOND_MESSAGE + data)
    except BadValue:
        return
    if expected is not None:
        assert found == expected


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["anInt32", "next", "counts", "free", "at", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
@settings(max_examples=200, derandomize=True)
def test_a_value_is_written_as_protobuf_or_refused(value: Json) -> None:
    with contextlib.suppress(BadValue):
        ORDER.FromString(SCHEMAS["text"].encode(value, "shop.v1.Order")[2:])


def test_a_record_says_which_message_it_is() -> None:
    schema = SCHEMAS["text"]
    assert schema.encode({"note": "x"}) == b"\x00\x0a\x01x"
    assert schema.encode({"inner": {"x": 1}}, "Other.Deep") == b"\x04\x00\x02\x0a\x02\x08\x01"
    assert schema.decode(b"\x04\x00\x02\x0a\x02\x08\x01") == {"inner": {"x": 1}}
    assert schema.decode(b"\x02\x00\x0a\x01x") == {"note": "x"}
    for lost in (b"", b"\x02\x08", b"\x06\x00\x00\x00", b"\x01\x00", b"\x04\x02\x00", b"\x7f"):
        with pytest.raises(BadValue):
            schema.decode(lost)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5, "value must be an object."),
        ({"nope": 1}, "value has no field nope: it has note."),
        ({"note": 5}, "value.note must be a text."),
    ],
)
def test_a_mistake_is_one_sentence(value: Json, said: str) -> None:
    with pytest.raises(BadValue, match=f"^{said}$"):
        SCHEMAS["text"].encode(value)


@pytest.mark.parametrize(
    "value",
    [
        {"anInt32": 1 << 31},
        {"anInt32": 1.5},
        {"anInt32": True},
        {"anInt64": "x"},
        {"aUint32": -1},
        {"aBool": 1},
        {"someBytes": "*"},
        {"kind": "HUGE"},
        {"many": 5},
        {"counts": []},
        {"card": "a", "cash": 1},
        {"at": "yesterday"},
        {"at": "2026-13-01T00:00:00Z"},
        {"took": "5"},
        {"free": 5},
    ],
    ids=repr,
)
def test_what_does_not_fit_is_refused(value: Json) -> None:
    with pytest.raises(BadValue):
        SCHEMAS["text"].encode(value, "Order")


def test_what_a_schema_refers_to_is_found() -> None:
    schema = Schema("import 'b.proto'; message A { b.B b = 1; }", ["package b; message B { required int32 x = 1; }"])
    assert schema.decode(schema.encode({"b": {"x": 0}})) == {"b": {"x": 0}}
    with pytest.raises(BadValue, match="missing"):
        schema.encode({"b": {}})
    with pytest.raises(BadValue, match="neither in the schema nor in what it refers to"):
        Schema("message A { b.B b = 1; }").decode(b"\0")


def test_groups_of_old_schemas_are_read() -> None:
    schema = Schema("message A { optional group Part = 1 { optional int32 x = 2; } optional int32 y = 3; }")
    assert schema.decode(b"\0\x0b\x10\x05\x0c\x18\x07") == {"part": {"x": 5}, "y": 7}
    for cut in (b"\0\x0b\x10\x05", b"\0\x0b\x14", b"\0\x0c", b"\0" + b"\x0b" * 200):
        with pytest.raises(BadValue):
            schema.decode(cut)


def test_no_nesting_is_too_deep_for_an_answer() -> None:
    data = b""
    for _ in range(500):
        size = bytearray()
        number = len(data)
        while number > 0x7F:
            size.append(number & 0x7F | 0x80)
            number >>= 7
        size.append(number)
        data = b"\x8a\x01" + bytes(size) + data
    with pytest.raises(BadValue, match="levels"):
        SCHEMAS["text"].decode(IN_THE_SECOND_MESSAGE + data)
