"""Protobuf schemas: read from their text or from a descriptor, and which may follow which."""

from __future__ import annotations

import base64
import contextlib

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.avro import InvalidSchema
from ottla.schemas.kinds import KINDS, SchemaText, SchemaType
from ottla.schemas.protobuf import parse
from ottla.schemas.protobuf_compatibility import troubles
from ottla.schemas.protobuf_types import Field

SHOP = """
syntax = "proto3"; // A shop.
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "x";
/* Orders;
   { of all kinds } */
message Order {
  option (my.option) = { a: 1, b: "}" };
  reserved 8, 9 to 11, max; reserved "old";
  string id = 1 [deprecated = true, (x).y = "];"];
  repeated Line lines = 2;
  Kind kind = 3;
  map<string, .shop.v1.Order.Line> by_name = 4;
  oneof pay { string card = 5; int64 cash = 6; }
  optional int32 weight = 7;
  google.protobuf.Timestamp at = 0x0c;
  message Line { string item = 1; Kind kind = 2; Order parent = 3; string message = 4; bool enum = 5; }
  enum Kind { option allow_alias = true; NONE = 0; BIG = 1 [deprecated = true]; NEGATIVE = -1; }
}
service Shop { rpc Buy (Order) returns (stream Order) { option (x) = "}"; } rpc Sell (Order) returns (Order); }
"""


def test_a_schema_is_read() -> None:
    file = parse(SHOP)
    assert file.package == "shop.v1"
    assert list(file.messages) == ["Order", "Order.Line"]
    assert file.enums == {"Order.Kind": {"NONE": 0, "BIG": 1, "NEGATIVE": -1}}
    fields = file.messages["Order"].fields
    assert fields[1] == Field(name="id", number=1, label="", type="string")
    assert (fields[2].label, fields[4].type, fields[5].oneof, fields[7].label) == ("repeated", "map", "pay", "optional")
    assert fields[12].type == "google.protobuf.Timestamp"
    assert [field.name for field in file.messages["Order.Line"].fields.values()] == [
        *("item", "kind", "parent", "message", "enum")
    ]
    assert file.type_of("Order.Line", "Kind") == "Order.Kind"
    assert file.type_of("Order", ".shop.v1.Order.Line") == "Order.Line"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no schema",
        "message",
        "message A {",
        "message A { string a = 0; }",
        "message A { string a = 1; string b = 1; }",
        "message A { string a; }",
        "message A {} message A {}",
        'syntax = "proto3";',
        "message A { string a = 1 }",
        "message A { 5 a = 1; }",
        "message A.B {}",
        "message A {}}",
        "\x00",
        "message A {" * 100,
        base64.b64encode(b"\xff\xff\xff").decode(),
        "AAAA",
    ],
    ids=repr,
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(text)


@given(st.text(max_size=60))
def test_no_text_does_harm(text: str) -> None:
    for spoilt in (text, f"message A {{ {text} }}", base64.b64encode(text.encode("utf-8", "replace")).decode()):
        with contextlib.suppress(InvalidSchema):
            parse(spoilt)


def descriptor() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop.v1", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_weight")
    kinds = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="lines", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.v1.Order.Line", label=kinds.LABEL_REPEATED
    )
    order.field.add(name="kind", number=3, type=kinds.TYPE_ENUM, type_name=".shop.v1.Order.Kind")
    order.field.add(
        name="by_name",
        number=4,
        type=kinds.TYPE_MESSAGE,
        type_name=".shop.v1.Order.ByNameEntry",
        label=kinds.LABEL_REPEATED,
    )
    order.field.add(name="card", number=5, type=kinds.TYPE_STRING, oneof_index=0)
    order.field.add(name="cash", number=6, type=kinds.TYPE_INT64, oneof_index=0)
    order.field.add(name="weight", number=7, type=kinds.TYPE_INT32, oneof_index=1, proto3_optional=True)
    order.field.add(name="at", number=12, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=kinds.TYPE_STRING)
    line.field.add(name="kind", number=2, type=kinds.TYPE_ENUM, type_name=".shop.v1.Order.Kind")
    line.field.add(name="parent", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.v1.Order")
    line.field.add(name="message", number=4, type=kinds.TYPE_STRING)
    line.field.add(name="enum", number=5, type=kinds.TYPE_BOOL)
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.v1.Order.Line")
    kind = order.enum_type.add(name="Kind")
    for name, number in (("NONE", 0), ("BIG", 1), ("NEGATIVE", -1)):
        kind.value.add(name=name, number=number)
    return file


def test_text_and_descriptor_say_the_same() -> None:
    text, binary = parse(SHOP), parse(base64.b64encode(descriptor().SerializeToString()).decode())
    assert binary.package == text.package
    assert set(binary.messages) == set(text.messages)
    assert binary.enums == text.enums
    assert [
        (each.oneof, each.type == "map", each.is_explicit) for each in binary.messages["Order"].fields.values()
    ] == [(each.oneof, each.type == "map", each.is_explicit) for each in text.messages["Order"].fields.values()]
    assert troubles(text, binary) == troubles(binary, text) == []


def judged(reader: str, writer: str) -> list[str]:
    return [each.kind for each in troubles(parse(reader), parse(writer))]


def message(*fields: str, more: str = "") -> str:
    return f'syntax = "proto3"; message A {{ {" ".join(fields)} }} {more}'


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (message("string a = 1;", "int32 b = 2;"), message("string a = 1;")),
        (message("string a = 1;"), message("string a = 1;", "int32 b = 2;")),
        (message("string other = 1;"), message("string a = 1;")),
        (message("int64 a = 1;"), message("int32 a = 1;")),
        (message("bool a = 1;"), message("E a = 1;", more="enum E { X = 0; }")),
        (message("bytes a = 1;"), message("string a = 1;")),
        (message("repeated string a = 1;"), message("string a = 1;")),
        (message("oneof o { string a = 1; }"), message("string a = 1;")),
        (message("oneof o { string a = 1; string b = 2; }"), message("oneof o { string a = 1; }")),
        (message("string a = 1;", "string b = 2;"), message("oneof o { string a = 1; string b = 2; }")),
        (message("string a = 1;", more="message B {}"), message("string a = 1;")),
    ],
)
def test_what_may_follow(reader: str, writer: str) -> None:
    assert judged(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind"),
    [
        (message("int32 a = 1;"), message("string a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
        (message("sint32 a = 1;"), message("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED"),
        (message("B a = 1;", more="message B {}"), message("string a = 1;", more="message B {}"), "FIELD_KIND_CHANGED"),
        (
            message("B a = 1;", more="message B {} message C {}"),
            message("C a = 1;", more="message B {} message C {}"),
            "FIELD_NAMED_TYPE_CHANGED",
        ),
        (message("repeated int32 a = 1;"), message("int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED"),
        ("package b; message A {}", "package a; message A {}", "PACKAGE_CHANGED"),
        (message(), message(more="message B {}"), "MESSAGE_REMOVED"),
        (
            message("oneof o { string a = 1; }"),
            message("oneof o { string a = 1; string b = 2; }"),
            "ONEOF_FIELD_REMOVED",
        ),
        (
            message("oneof o { string a = 1; string b = 2; }"),
            message("string a = 1;", "string b = 2;"),
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        ),
        (
            message("oneof o { string a = 1; string b = 2; }"),
            message("oneof o { string a = 1; }", "string b = 2;"),
            "FIELD_MOVED_TO_EXISTING_ONEOF",
        ),
        ("message A { required string a = 1; }", "message A {}", "REQUIRED_FIELD_ADDED"),
        ("message A {}", "message A { required string a = 1; }", "REQUIRED_FIELD_REMOVED"),
    ],
)
def test_what_may_not(reader: str, writer: str, kind: str) -> None:
    assert kind in judged(reader, writer)


def test_the_registry_judges_by_it() -> None:
    kind = KINDS[SchemaType.PROTOBUF]
    old, new = SchemaText(text=message("string a = 1;")), SchemaText(text=message("int32 a = 1;"))
    assert kind.canonical(old, True) == old.text
    assert kind.troubles(new, old) == ["{errorType:'FIELD_SCALAR_KIND_CHANGED', path:'#/A/1'}"]
