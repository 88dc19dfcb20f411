"""Avro values one at a time: what is written is read again, and no bytes do harm."""

from __future__ import annotations

import contextlib
import io
import json
from itertools import pairwise

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


def test_a_short_schema_cannot_make_any_number_of_values_of_nothing() -> None:
    """Each record has two of the next: forty of them are a million millions of nulls."""
    names = [f"r{at}" for at in range(40)]
    texts = ['{"type": "record", "name": "r0", "fields": [{"name": "a", "type": "null", "default": null}]}']
    for before, name in pairwise(names):
        fields = ", ".join(f'{{"name": "{each}", "type": "{before}", "default": {{}}}}' for each in "ab")
        texts.append(f'{{"type": "record", "name": "{name}", "fields": [{fields}]}}')
    schema = avro.parse(f'"{names[-1]}"', texts, strict=False)
    with pytest.raises(BadValue, match="more than 1000000 values"):
        decode(schema, b"")
    with pytest.raises(BadValue, match="more than 1000000 values"):
        encode(schema, {})


def test_a_deep_value_is_refused_before_it_is_written() -> None:
    deep = avro.parse('{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}')
    value: Json = None
    for _ in range(500):
        value = {"n": value}
    with pytest.raises(BadValue, match="more than 100 levels"):
        encode(deep, value)


def test_a_field_that_the_schema_has_not_is_no_slip_that_goes_unnoticed() -> None:
    with pytest.raises(BadValue, match="value has no field 'smal' in the schema"):
        encode(ORDER, {**VALUE, "smal": 5})
    # Of two records of a union, the one is meant that has the field.
    either = avro.parse(
        """[{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int", "default": 0}]},
            {"type": "record", "name": "B", "fields": [{"name": "y", "type": "int", "default": 0}]}]"""
    )
    assert decode(either, encode(either, {"y": 4})) == {"y": 4}
