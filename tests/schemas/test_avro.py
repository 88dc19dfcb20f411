"""Avro schemas: what is one, what is none, and the one text that each has."""

from __future__ import annotations

import json

import pytest

from ottla.schemas.avro import DEPTH_MAX, InvalidSchema, Record, Union, canonical_text, parse


def record(*fields: object, name: str = "r", **more: object) -> str:
    return json.dumps({"type": "record", "name": name, **more, "fields": list(fields)})


def text_of(schema: str, *references: str, normalize: bool = False) -> str:
    return canonical_text(parse(schema, references), references, normalize=normalize)


def test_two_texts_of_one_schema_become_the_same() -> None:
    spread = '{ "name": "r",\n "fields": [ {"type": {"type": "string"}, "name": "a"} ], "type": "record" }'
    assert text_of(spread) == text_of(record({"name": "a", "type": "string"}))
    assert text_of(spread) == '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("string", '"string"'),
        ('{"type": "string"}', '"string"'),
        ('{"type": {"type": "long"}}', '"long"'),
        (
            '{"type": "bytes", "logicalType": "decimal", "precision": 9}',
            '{"type":"bytes","logicalType":"decimal","precision":9}',
        ),
        ('["null", {"type": "array", "items": "int"}]', '["null",{"type":"array","items":"int"}]'),
        (
            '{"name": "e", "type": "enum", "default": "A", "symbols": ["A", "B"], "doc": "d", "namespace": "n"}',
            '{"type":"enum","name":"e","namespace":"n","doc":"d","symbols":["A","B"],"default":"A"}',
        ),
        (
            '{"aliases": ["g"], "type": "fixed", "size": 4, "name": "f"}',
            '{"type":"fixed","name":"f","size":4,"aliases":["g"]}',
        ),
        ('{"type": "map", "values": "boolean", "x": 1}', '{"type":"map","values":"boolean","x":1}'),
    ],
)
def test_a_schema_is_written_as_java_writes_it(given: str, written: str) -> None:
    assert text_of(given) == written
    assert text_of(written) == written


def test_names_are_written_as_short_as_their_place_allows() -> None:
    inner = {"type": "record", "name": "b.In", "fields": [{"name": "again", "type": ["null", "b.In", "a.Out"]}]}
    written = text_of(record({"name": "x", "type": inner}, {"name": "y", "type": "b.In"}, name="a.Out"))
    assert json.loads(written) == {
        "type": "record",
        "name": "Out",
        "namespace": "a",
        "fields": [
            {
                "name": "x",
                "type": {
                    "type": "record",
                    "name": "In",
                    "namespace": "b",
                    "fields": [{"name": "again", "type": ["null", "In", "a.Out"]}],
                },
            },
            {"name": "y", "type": "b.In"},
        ],
    }


def test_what_a_reference_defines_is_named_and_not_written_out() -> None:
    address = record({"name": "street", "type": "string"}, name="com.Address")
    person = record({"name": "home", "type": "com.Address"}, name="Person")
    assert (
        text_of(person, address) == '{"type":"record","name":"Person","fields":[{"name":"home","type":"com.Address"}]}'
    )


def test_normalising_orders_what_avro_gives_no_meaning_to() -> None:
    one = text_of('{"type": "int", "b": 1, "a": 2}', normalize=True)
    other = text_of('{"a": 2, "type": "int", "b": 1}', normalize=True)
    assert one == other == '{"type":"int","a":2,"b":1}'


def test_a_record_may_be_of_its_own_type() -> None:
    parsed = parse(record({"name": "next", "type": ["null", "r"], "default": None}))
    assert isinstance(parsed, Record)
    union = parsed.fields[0].type
    assert isinstance(union, Union)
    assert union.branches[1] is parsed


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "nonsense",
        "{",
        "[1]",
        '"unknown"',
        "{}",
        '{"type": "record", "name": "r"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "1r", "fields": []}',
        '{"type": "record", "name": "a..b", "fields": []}',
        '{"type": "record", "name": "int", "fields": []}',
        record({"name": "a"}),
        record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
        record({"name": "a b", "type": "int"}),
        record({"name": "a", "type": "int", "order": "sideways"}),
        record({"name": "a", "type": "int", "default": "text"}),
        record({"name": "a", "type": "int", "default": 1 << 31}),
        record({"name": "a", "type": ["null", "int"], "default": "text"}),
        record({"name": "a", "type": "bytes", "default": "\u0100"}),
        record("a"),
        '{"type": "array"}',
        '{"type": "map"}',
        '{"type": "fixed", "name": "f"}',
        '{"type": "fixed", "name": "f", "size": -1}',
        '{"type": "fixed", "name": "f", "size": true}',
        '{"type": "enum", "name": "e"}',
        '{"type": "enum", "name": "e", "symbols": ["A", "A"]}',
        '{"type": "enum", "name": "e", "symbols": ["A-B"]}',
        '{"type": "enum", "name": "e", "symbols": ["A"], "default": "B"}',
        '["int", "int"]',
        '["int", ["null"]]',
        '[{"type": "fixed", "name": "f", "size": 1}, {"type": "fixed", "name": "f", "size": 1}]',
        '{"type": "int", "x": NaN}',
        record({"name": "a", "type": "double", "default": "1e999"}).replace('"1e999"', "1e999"),
        "[" * 100_000,
        '{"type": ' * 500 + '"int"' + "}" * 500,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema_is_refused(bad: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse(bad)
    assert len(str(refused.value)) < 400


def test_a_number_that_json_cannot_say_again_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="too large"):
        text_of('{"type": "int", "x": 1e999}')


def test_defaults_may_be_of_any_branch_and_of_records() -> None:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": ""}],
    }
    parse(
        record({"name": "x", "type": ["null", "int"], "default": 7}, {"name": "y", "type": inner, "default": {"a": 1}})
    )
    with pytest.raises(InvalidSchema):
        parse(record({"name": "y", "type": inner, "default": {"b": "no a"}}))


def test_nesting_is_bounded_where_it_is_still_readable() -> None:
    def nested(levels: int) -> str:
        return '{"type":"array","items":' * levels + '"int"' + "}" * levels

    parse(nested(DEPTH_MAX))
    with pytest.raises(InvalidSchema, match="levels"):
        parse(nested(DEPTH_MAX + 1))
