"""The types of schema that a registry keeps: one row each, with how a text is read and what judges compatibility.

All three are understood and judged. A Protobuf schema is kept as it came: as text, or as a descriptor in base64.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.schemas import avro, json_compatibility, protobuf, protobuf_compatibility
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.compatibility import incompatibilities

JSON_LEVELS_MAX = 200


class SchemaType(enum.StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """A schema as it is kept: its text, and the texts of what it refers to, each after those that it needs itself."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    canonical: Callable[[SchemaText, bool], str]
    """The text to keep, the same for all texts of one schema; normalised if so asked. Raises `InvalidSchema`."""
    troubles: Callable[[SchemaText, SchemaText], list[str]]
    """What keeps a reader with the first schema from reading what was written with the second."""


def _canonical_avro(schema: SchemaText, normalize: bool) -> str:
    parsed = avro.parse(schema.text, schema.references)
    return avro.canonical_text(parsed, schema.references, normalize=normalize)


def _avro_troubles(reader: SchemaText, writer: SchemaText) -> list[str]:
    # Both were judged when they were registered, perhaps by a registry that asked less of defaults.
    parsed_reader = avro.parse(reader.text, reader.references, strict=False)
    parsed_writer = avro.parse(writer.text, writer.references, strict=False)
    return [
        f"{{errorType:'{each.trouble.value}', path:'{each.path}', description:'{each.reason}'}}"
        for each in incompatibilities(parsed_reader, parsed_writer)
    ]


def _canonical_json(schema: SchemaText, normalize: bool) -> str:
    value = avro.read_json(schema.text)
    if not isinstance(value, dict | bool):
        raise InvalidSchema("A JSON schema is an object, or true or false.")
    if not _has_levels(value, JSON_LEVELS_MAX):
        raise InvalidSchema(f"The schema has more than {JSON_LEVELS_MAX} levels.")
    return avro.write_json(value, sort_keys=normalize)


def _json_troubles(reader: SchemaText, writer: SchemaText) -> list[str]:
    found = json_compatibility.troubles(avro.read_json(reader.text), avro.read_json(writer.text))
    return [f"{{errorType:'{each.kind}', path:'{each.path}'}}" for each in found]


def _has_levels(value: avro.Json, levels: int) -> bool:
    """Has it so many levels at most?"""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_has_levels(each, levels - 1) for each in inner)


def _canonical_protobuf(schema: SchemaText, normalize: bool) -> str:
    protobuf.parse(schema.text)
    return schema.text


def _protobuf_troubles(reader: SchemaText, writer: SchemaText) -> list[str]:
    found = protobuf_compatibility.troubles(protobuf.parse(reader.text), protobuf.parse(writer.text))
    return [f"{{errorType:'{each.kind}', path:'{each.path}'}}" for each in found]


KINDS: dict[SchemaType, Kind] = {
    SchemaType.AVRO: Kind(canonical=_canonical_avro, troubles=_avro_troubles),
    SchemaType.JSON: Kind(canonical=_canonical_json, troubles=_json_troubles),
    SchemaType.PROTOBUF: Kind(canonical=_canonical_protobuf, troubles=_protobuf_troubles),
}


class Level(enum.StrEnum):
    """How a new version must get on with those before it."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A version that a new one is judged against."""

    version: int
    kind: SchemaType
    schema: SchemaText


def judge(level: Level, kind: SchemaType, new: SchemaText, earlier: Sequence[Earlier]) -> list[str]:
    """Why `new` may not follow `earlier` (oldest first) at this level; nothing if it may."""
    if level is Level.NONE or not earlier:
        return []
    for old in reversed(earlier if level.is_transitive else earlier[-1:]):
        if old.kind is not kind:
            found = [f"{{errorType:'TYPE_MISMATCH', description:'a schema of type {kind} follows one of {old.kind}'}}"]
        else:
            found = KINDS[kind].troubles(new, old.schema) if level.new_reads_old else []
            found += KINDS[kind].troubles(old.schema, new) if level.old_reads_new else []
        if found:
            return [*found, f"{{oldSchemaVersion: {old.version}}}", f"{{compatibility: '{level}'}}"]
    return []
