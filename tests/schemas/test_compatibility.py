"""May this reader read what that writer wrote? By example, and beside fastavro, which tries it."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas.avro import InvalidSchema, Schema, parse
from ottla.schemas.compatibility import PAIRS_MAX, Trouble, incompatibilities
from ottla.schemas.kinds import Earlier, Level, SchemaText, SchemaType, judge


def record(*fields: object, **more: object) -> str:
    return json.dumps({"type": "record", "name": "r", **more, "fields": list(fields)})


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def troubles(reader: str, writer: str) -> list[tuple[Trouble, str]]:
    return [(each.trouble, each.path) for each in incompatibilities(parse(reader), parse(writer))]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ('"long"', '"int"'),
        ('"double"', '"float"'),
        ('"float"', '"long"'),
        ('"string"', '"bytes"'),
        ('"bytes"', '"string"'),
        ('["null", "int"]', '"int"'),
        ('["null", "long"]', '["int", "null"]'),
        ('"int"', '["int"]'),
        ('{"type":"array","items":"long"}', '{"type":"array","items":"int"}'),
        ('{"type":"map","values":["null","int"]}', '{"type":"map","values":"int"}'),
        ('{"type":"enum","name":"e","symbols":["A","B"]}', '{"type":"enum","name":"e","symbols":["A"]}'),
        ('{"type":"enum","name":"e","symbols":["A"],"default":"A"}', '{"type":"enum","name":"e","symbols":["A","B"]}'),
        ('{"type":"fixed","name":"n.f","size":4}', '{"type":"fixed","name":"m.f","size":4}'),
        (record(field("a", default=1)), record()),
        (record(), record(field("a"))),
        (record(field("b", aliases=["a"])), record(field("a"))),
        (record(aliases=["old"]), json.dumps({"type": "record", "name": "old", "fields": []})),
        (record(field("next", ["null", "r"])), record(field("next", ["null", "r"]))),
    ],
)
def test_what_fits(reader: str, writer: str) -> None:
    assert troubles(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "trouble", "path"),
    [
        ('"int"', '"long"', Trouble.TYPE_MISMATCH, "/"),
        ('"int"', '["int", "string"]', Trouble.TYPE_MISMATCH, "/"),
        ('["null", "string"]', '"int"', Trouble.MISSING_UNION_BRANCH, "/"),
        (record(field("a")), record(), Trouble.READER_FIELD_MISSING_DEFAULT_VALUE, "/fields/0"),
        (record(field("a", "int")), record(field("a", "string")), Trouble.TYPE_MISMATCH, "/fields/0/type"),
        (record(name="s"), record(), Trouble.NAME_MISMATCH, "/name"),
        (
            '{"type":"fixed","name":"f","size":4}',
            '{"type":"fixed","name":"f","size":8}',
            Trouble.FIXED_SIZE_MISMATCH,
            "/size",
        ),
        (
            '{"type":"enum","name":"e","symbols":["A"]}',
            '{"type":"enum","name":"e","symbols":["A","B"]}',
            Trouble.MISSING_ENUM_SYMBOLS,
            "/symbols",
        ),
        (
            record(field("next", ["null", "r"]), field("a", "int")),
            record(field("next", ["null", "r"]), field("a", "string")),
            Trouble.TYPE_MISMATCH,
            "/fields/1/type",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(reader: str, writer: str, trouble: Trouble, path: str) -> None:
    assert (trouble, path) in troubles(reader, writer)


def test_a_branch_that_failed_leaves_no_assumption_behind() -> None:
    """The first branch of the reader's union fits but for its last field; the second must be judged afresh."""
    reader = json.dumps(
        [
            {"type": "record", "name": "n.r", "fields": [field("x", ["null", "n.r"]), field("gone", "int")]},
            {"type": "record", "name": "m.r", "fields": [field("x", ["null", "m.r", "n.r"])]},
        ]
    )
    writer = json.dumps({"type": "record", "name": "w.r", "fields": [field("x", ["null", "w.r"])]})
    assert troubles(reader, writer) == []
    alone = json.dumps({"type": "record", "name": "n.r", "fields": [field("x", ["null", "n.r"]), field("gone", "int")]})
    assert troubles(alone, writer) != []


@pytest.mark.slow
def test_a_comparison_without_end_is_refused() -> None:
    names = range(int(PAIRS_MAX**0.5) + 20)
    reader = json.dumps([{"type": "fixed", "name": f"a{n}", "size": 1} for n in names])
    writer = json.dumps([{"type": "fixed", "name": f"b{n}", "size": 1} for n in names])
    with pytest.raises(InvalidSchema, match="too large"):
        troubles(reader, writer)


def test_doubling_at_each_level_costs_no_more_than_the_levels() -> None:
    def tower(leaf: str) -> str:
        kind: object = leaf
        for level in range(40):
            kind = {
                "type": "record",
                "name": f"l{level}",
                "fields": [field("a", kind), field("b", f"l{level - 1}" if level else leaf)],
            }
        return json.dumps(kind)

    assert len(troubles(tower("int"), tower("string"))) <= 100


# Levels.

V1 = record(field("a"))
V2 = record(field("a"), field("b", default=0))
V3 = record(field("a"), field("b", default=0), field("c"))


def judged(level: Level, new: str, *earlier: str) -> bool:
    others = [
        Earlier(version=at, kind=SchemaType.AVRO, schema=SchemaText(text=text)) for at, text in enumerate(earlier, 1)
    ]
    return not judge(level, SchemaType.AVRO, SchemaText(text=new), others)


@pytest.mark.parametrize(
    ("level", "new", "earlier", "fits"),
    [
        (Level.NONE, '"int"', ['"string"'], True),
        (Level.BACKWARD, V2, [V1], True),
        (Level.BACKWARD, V3, [V2], False),
        (Level.FORWARD, V3, [V2], True),
        (Level.FORWARD, record(), [V1], False),
        (Level.FULL, V2, [V1], True),
        (Level.FULL, V3, [V2], False),
        # A field came with a default, lost the default: each step fits, the whole way does not.
        (Level.BACKWARD, record(field("a"), field("b")), [V1, V2], True),
        (Level.BACKWARD_TRANSITIVE, record(field("a"), field("b")), [V1, V2], False),
        (Level.FORWARD, V1, [record(field("a"), field("b")), V2], True),
        (Level.FORWARD_TRANSITIVE, V1, [record(field("a"), field("b")), V2], False),
        (Level.FULL_TRANSITIVE, V2, [V1, V2], True),
    ],
)
def test_each_level_asks_what_it_says(level: Level, new: str, earlier: list[str], fits: bool) -> None:
    assert judged(level, new, *earlier) == fits


def test_a_schema_of_another_type_does_not_follow() -> None:
    earlier = [Earlier(version=1, kind=SchemaType.JSON, schema=SchemaText(text="{}"))]
    assert judge(Level.BACKWARD, SchemaType.AVRO, SchemaText(text='"int"'), earlier)
    assert not judge(Level.NONE, SchemaType.AVRO, SchemaText(text='"int"'), earlier)


def test_references_cannot_make_schemas_deeper_than_they_are_compared() -> None:
    """Each record has the one before it as a field: short texts, and as deep a graph as one likes."""

    def chain(length: int) -> Schema:
        fields = [field("f", f"r{at - 1}" if at else "int") for at in range(length)]
        texts = [record(each, name=f"r{at}") for at, each in enumerate(fields)]
        return parse(f'"r{length - 1}"', texts)

    assert incompatibilities(chain(50), chain(50)) == []
    with pytest.raises(InvalidSchema, match="too deep to be compared"):
        incompatibilities(chain(3000), chain(3000))


# Beside fastavro: what we call readable, it reads, whatever was written; what it fails to read, we have refused.

PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
SYMBOLS = st.lists(st.sampled_from("ABCD"), min_size=1, max_size=3, unique=True)


def schemas(depth: int) -> st.SearchStrategy[Any]:
    """Names say what a type is, so that a reader and a writer often mean the same one."""
    if depth == 0:
        return PRIMITIVES
    inner = schemas(depth - 1)
    fields = st.lists(
        st.tuples(st.sampled_from("abc"), inner, st.booleans()), min_size=0, max_size=3, unique_by=lambda each: each[0]
    )
    return st.one_of(
        PRIMITIVES,
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.builds(lambda size: {"type": "fixed", "name": f"F{depth}", "size": size}, st.integers(1, 2)),
        st.builds(
            lambda symbols, has: {
                "type": "enum",
                "name": f"E{depth}",
                "symbols": symbols,
                **({"default": symbols[0]} if has else {}),
            },
            SYMBOLS,
            st.booleans(),
        ),
        st.builds(
            lambda found: {
                "type": "record",
                "name": f"R{depth}",
                "fields": [
                    {"name": name, "type": ["null", kind] if has else kind, **({"default": None} if has else {})}
                    for name, kind, has in found
                    if not (has and kind == "null")
                ],
            },
            fields,
        ),
        st.builds(
            lambda kind: ["null", kind], inner.filter(lambda kind: kind != "null" and not isinstance(kind, list))
        ),
    )


def usable(schema: Any) -> bool:
    try:
        parse(json.dumps(schema))
    except InvalidSchema:
        return False  # Two types of one name, or a union within a union.
    return True


def write_any(schema: Any, chance: random.Random) -> bytes:
    """Some record of the schema, written."""
    parsed = fastavro.parse_schema(schema)
    output = io.BytesIO()
    fastavro.schemaless_writer(output, parsed, value_of(schema, chance))
    return output.getvalue()


def value_of(schema: Any, chance: random.Random) -> Any:
    if isinstance(schema, list):
        return value_of(chance.choice(schema), chance)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "null":
            return None
        case "boolean":
            return chance.random() < 0.5
        case "int" | "long":
            return chance.randint(-100, 100)
        case "float" | "double":
            return float(chance.randint(-9, 9))
        case "bytes":
            return b"by"
        case "string":
            return "st"
        case "array":
            return [value_of(schema["items"], chance)]
        case "map":
            return {"k": value_of(schema["values"], chance)}
        case "fixed":
            return b"f" * schema["size"]
        case "enum":
            return chance.choice(schema["symbols"])
        case _:
            return {each["name"]: value_of(each["type"], chance) for each in schema["fields"]}


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(2).filter(usable), schemas(2).filter(usable), st.integers(0, 1000))
def test_what_we_call_readable_fastavro_reads(reader: Any, writer: Any, seed: int) -> None:
    found = incompatibilities(parse(json.dumps(reader)), parse(json.dumps(writer)))
    chance = random.Random(seed)
    for _ in range(8):
        written = write_any(writer, chance)
        try:
            fastavro.schemaless_reader(
                io.BytesIO(written), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
            )
        except Exception:
            assert found, f"{json.dumps(reader)} cannot read {json.dumps(writer)}"
            return


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas(2).filter(usable))
def test_every_schema_reads_itself(schema: Any) -> None:
    assert troubles(json.dumps(schema), json.dumps(schema)) == []
