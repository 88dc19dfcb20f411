"""JSON schemas: which may follow which, with the names that Confluent's registry gives to what is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.schemas.avro import InvalidSchema
from ottla.schemas.json_compatibility import troubles
from ottla.schemas.kinds import Earlier, Level, SchemaText, SchemaType, judge

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED: dict[str, Any] = {**OPEN, "additionalProperties": False}


def with_property(schema: dict[str, Any], name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], name: kind}, **more}


def patterned(schema: dict[str, Any] = OPEN, /, **patterns: Any) -> dict[str, Any]:
    return {**schema, "patternProperties": patterns}


FIT: list[tuple[Any, Any]] = [
    ({"type": "string"}, {"type": "string", "title": "other", "description": "words"}),
    ({"type": "number"}, {"type": "integer"}),
    ({"type": ["string", "null"]}, {"type": "string"}),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"oneOf": [{"type": "string"}]}),
    ({}, {"type": "string"}),
    (True, {"type": "string"}),
    ({"type": "string"}, False),
    ({"type": "string"}, {"enum": ["a", "b"]}),
    ({"enum": ["a", "b", "c"]}, {"enum": ["a", "b"]}),
    ({"enum": ["a", "b"]}, {"const": "a"}),
    ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}),
    ({"type": "string", "minLength": 0}, {"type": "string"}),
    ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2, "maximum": 5}),
    ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
    (OPEN, CLOSED),
    (with_property(CLOSED, "b", {"type": "integer"}), CLOSED),
    (with_property(CLOSED, "b", {"type": "integer", "default": 0}, required=["b"]), CLOSED),
    (with_property(OPEN, "b", {}), OPEN),
    (OPEN, with_property(OPEN, "b", {"type": "integer"})),
    (OPEN, {**OPEN, "required": ["a"]}),
    ({**OPEN, "properties": {"a": {"type": ["string", "null"]}}}, OPEN),
    (
        with_property({**OPEN, "additionalProperties": {"type": "integer"}}, "b", {"type": "number"}),
        {**OPEN, "additionalProperties": {"type": "integer"}},
    ),
    ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}),
    ({"allOf": [{"type": "string"}, {"maxLength": 5}]}, {"type": "string", "maxLength": 5}),
    ({"type": "string"}, {"allOf": [{"type": "string"}, {"maxLength": 5}]}),
    ({"$ref": "#/definitions/x", "definitions": {"x": {"type": "number"}}}, {"type": "integer"}),
    ({"$ref": "other.json"}, {"$ref": "other.json"}),
    # Names that are like a pattern.
    (patterned(**{"^n_": {"type": "number"}}), patterned(**{"^n_": {"type": "integer"}})),
    (patterned(**{"^n_": {"type": "number"}}), patterned(CLOSED)),
    (patterned(OPEN), patterned(**{"^n_": {"type": "integer"}})),
    (
        with_property(patterned(CLOSED, **{"^n_": {"type": "number"}}), "n_a", {"type": "number"}),
        patterned(CLOSED, **{"^n_": {"type": "integer"}}),
    ),
    (patterned(CLOSED, **{"^n_": {"type": "number"}}), with_property(CLOSED, "n_a", {"type": "integer"})),
    (patterned(OPEN, **{"(?=a)": {"type": "number"}}), patterned(OPEN, **{"(?=a)": {"type": "integer"}})),
]
UNFIT: list[tuple[Any, Any, str]] = [
    ({"type": "integer"}, {"type": "string"}, "TYPE_CHANGED"),
    ({"type": "string"}, {"type": "number"}, "TYPE_CHANGED"),
    ({"type": "integer"}, {"type": "number"}, "TYPE_NARROWED"),
    ({"type": "integer"}, {}, "TYPE_NARROWED"),
    ({"type": "string"}, {"type": ["string", "null"]}, "TYPE_CHANGED"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "string"}, "SUM_TYPE_NARROWED"),
    (False, {"type": "string"}, "SCHEMA_ADDED"),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_NARROWED"),
    ({"enum": ["a"]}, {"type": "string"}, "ENUM_ARRAY_CHANGED"),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, "MAX_LENGTH_DECREASED"),
    ({"type": "string", "maxLength": 5}, {"type": "string"}, "MAX_LENGTH_ADDED"),
    ({"type": "number", "minimum": 0}, {"type": "number"}, "MINIMUM_ADDED"),
    ({"type": "array", "minItems": 2}, {"type": "array", "minItems": 1}, "MIN_ITEMS_INCREASED"),
    ({"type": "string", "pattern": "a"}, {"type": "string"}, "PATTERN_ADDED"),
    ({"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 2}, "MULTIPLE_OF_CHANGED"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
    ({"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "string"}}, "TYPE_CHANGED"),
    (CLOSED, OPEN, "ADDITIONAL_PROPERTIES_REMOVED"),
    (with_property(OPEN, "b", {"type": "integer"}), OPEN, "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        with_property(CLOSED, "b", {"type": "integer"}, required=["b"]),
        CLOSED,
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    ),
    (CLOSED, with_property(CLOSED, "b", {"type": "integer"}), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ({**OPEN, "required": ["a"]}, OPEN, "REQUIRED_ATTRIBUTE_ADDED"),
    ({**OPEN, "properties": {"a": {"type": "integer"}}}, OPEN, "TYPE_CHANGED"),
    (
        with_property({**OPEN, "additionalProperties": {"type": "integer"}}, "b", {"type": "string"}),
        {**OPEN, "additionalProperties": {"type": "integer"}},
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (
        {**OPEN, "additionalProperties": {"type": "integer"}},
        with_property({**OPEN, "additionalProperties": {"type": "integer"}}, "b", {"type": "string"}),
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    ({"$ref": "other.json"}, {"$ref": "another.json"}, "REFERENCE_CHANGED"),
    ({"not": {"type": "string"}}, {}, "NOT_TYPE_EXTENDED"),
    (patterned(**{"^n_": {"type": "integer"}}), patterned(**{"^n_": {"type": "number"}}), "TYPE_NARROWED"),
    (patterned(**{"^n_": {"type": "integer"}}), OPEN, "PATTERN_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        patterned(**{"^n_": {"type": "integer"}}),
        {**OPEN, "additionalProperties": {"type": "string"}},
        "PATTERN_PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (CLOSED, patterned(CLOSED, **{"^n_": {}}), "PATTERN_PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (
        {**OPEN, "additionalProperties": {"type": "string"}},
        patterned(CLOSED, **{"^n_": {"type": "integer"}}),
        "PATTERN_PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (
        with_property(CLOSED, "n_a", {"type": "string"}),
        patterned(CLOSED, **{"^n_": {"type": "integer"}}),
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (
        patterned(CLOSED, **{"^n_": {"type": "integer"}}),
        with_property(CLOSED, "n_a", {"type": "string"}),
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (patterned(CLOSED, **{"^a$": {"type": "integer"}}), CLOSED, "TYPE_CHANGED"),
]


@pytest.mark.parametrize(("reader", "writer"), FIT, ids=str)
def test_what_the_reader_takes(reader: Any, writer: Any) -> None:
    assert troubles(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "kind"), UNFIT, ids=str)
def test_what_it_does_not(reader: Any, writer: Any, kind: str) -> None:
    assert kind in [each.kind for each in troubles(reader, writer)]


@pytest.mark.parametrize("schema", [side for pair in FIT for side in pair], ids=str)
def test_every_schema_reads_itself(schema: Any) -> None:
    again = dict(schema) if isinstance(schema, dict) else schema
    assert troubles(again, schema) == []


def test_a_schema_may_hold_itself() -> None:
    def tree(kind: str) -> Any:
        node = {"type": "object", "properties": {"value": {"type": kind}, "next": {"$ref": "#"}}}
        return {**node, "additionalProperties": False}

    assert troubles(tree("number"), tree("integer")) == []
    (found,) = troubles(tree("string"), tree("integer"))
    assert (found.kind, found.path) == ("TYPE_CHANGED", "#/properties/value")
    assert troubles({"$ref": "#"}, {"$ref": "#"}) == []


def test_schemas_that_would_take_for_ever_are_refused() -> None:
    def wide(levels: int, leaf: str) -> Any:
        if not levels:
            return {"type": leaf}
        return {"anyOf": [wide(levels - 1, leaf) for _ in range(4)]}

    with pytest.raises(InvalidSchema, match="too large"):
        troubles(wide(5, "string"), wide(5, "integer"))


def test_levels_judge_both_ways() -> None:
    earlier = [Earlier(version=1, kind=SchemaType.JSON, schema=SchemaText(text='{"type": "integer"}'))]
    wider = SchemaText(text='{"type": "number"}')
    assert judge(Level.BACKWARD, SchemaType.JSON, wider, earlier) == []
    assert "TYPE_NARROWED" in judge(Level.FORWARD, SchemaType.JSON, wider, earlier)[0]
