"""Avro values one at a time: what is written is read again, and no bytes do harm."""

from __future__ import annotations

import contextlib
import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas import avro
from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue, decode, encode

ORDER = avro.parse(
    """{"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int", "default": 7},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": null},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "next", "type": ["null", "Order"], "default": null}]}"""
)
VALUE: dict[str, Json] = {
    "id": -(1 << 63),
    "small": 5,
    "paid": True,
    "price": 2.5,
    "note": "é",
    "raw": "\x00ÿ",
    "four": "abcd",
    "colour": "BLUE",
    "tags": ["x", "y"],
    "counts": {"a": -1},
    "next": None,
}


def test_what_is_written_is_read_again() -> None:
    nested = {**VALUE, "next": VALUE}
    assert decode(ORDER, encode(ORDER, nested)) == nested


def test_it_is_avro_as_others_write_it() -> None:
    parsed = fastavro.parse_schema(json.loads(avro.canonical_text(ORDER)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {**VALUE, "raw": b"\x00\xff", "four": b"abcd"})
    assert encode(ORDER, VALUE) == out.getvalue()
    assert decode(ORDER, out.getvalue()) == VALUE


def test_a_missing_field_gets_its_default() -> None:
    value = {key: item for key, item in VALUE.items() if key not in ("small", "note")}
    assert decode(ORDER, encode(ORDER, value)) == {**VALUE, "small": 7, "note": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [("id", "x"), ("id", 1 << 63), ("small", 1 << 31), ("paid", 1), ("four", "abc"), ("colour", "GREEN"), ("note", 1)],
)
def test_a_value_that_does_not_fit_is_told_with_its_place(key: str, value: Json) -> None:
    with pytest.raises(BadValue, match=rf"value\.{key} "):
        encode(ORDER, {**VALUE, key: value})


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    with contextlib.suppress(BadValue):
        decode(ORDER, data)


def test_spoilt_bytes_are_refused_and_none_are_left_over() -> None:
    whole = encode(ORDER, VALUE)
    for end in range(len(whole)):
        with pytest.raises(BadValue):
            decode(ORDER, whole[:end])
    with pytest.raises(BadValue, match="1 bytes are left"):
        decode(ORDER, whole + b"\0")


def test_items_without_bytes_cannot_be_claimed_without_end() -> None:
    nulls = avro.parse('{"type": "array", "items": "null"}')
    with pytest.raises(BadValue, match="more than"):
        decode(nulls, encode(avro.parse('"long"'), 1 << 40) + b"\0")
    deep = avro.parse('{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}')
    with pytest.raises(BadValue, match="levels"):
        decode(deep, b"\x02" * 10_000)
