"""What a message class says about its fields, read from the compact text in `SCHEMA`.

A line is `name type versions`, followed by any of `null=VERSIONS`, `default=VALUE`, `tag=NUMBER@VERSIONS`, `ignorable`
and `inflexible`. Types are Kafka's; `[]` before a type makes an array, and a type that begins with a capital is another
class of the same module. Only the two codec compilers and tests read schemas: nothing here runs on a hot path.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from ottla.wire.message import Message

FOREVER = 1 << 15
NONE = range(0)

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` format of each type whose size is fixed."""
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


class Field(NamedTuple):
    name: str
    kind: str
    """The type, or an array's element type: a key of `FORMATS`, "string", "bytes", "records" or "struct"."""
    struct: type[Message] | None
    is_array: bool
    versions: range
    nullable: range
    default: str
    """As written: a number, "true", "false", "null", or nothing for the type's own empty value."""
    tag: int
    tagged: range
    ignorable: bool
    inflexible: bool
    """Keeps the old encoding even in flexible versions; only the client id of request headers does."""

    def default_value(self) -> object:
        """A fresh default."""
        if self.default == "null" or self.kind == "records":
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return self.struct()
        if self.kind == "bool":
            return self.default == "true"
        if self.kind == "string":
            return ""
        if self.kind == "bytes":
            return b""
        if self.kind == "uuid":
            return bytes(16)
        return float(self.default or 0) if self.kind == "float64" else int(self.default or 0)


def parse_versions(text: str) -> range:
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), FOREVER)
    return range(int(first), int(last if dash else first) + 1)


def _parse_field(line: str, owner: type[Message]) -> Field:
    name, kind, versions, *options = line.split()
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct: type[Message] | None = None
    if kind[0].isupper():
        struct = getattr(sys.modules[owner.__module__], kind)
        kind = "struct"
    given = dict(option.split("=") for option in options if "=" in option)
    tag, _, tagged = given.get("tag", "").partition("@")
    return Field(
        name=name,
        kind=kind,
        struct=struct,
        is_array=is_array,
        versions=parse_versions(versions),
        nullable=parse_versions(given["null"]) if "null" in given else NONE,
        default=given.get("default", ""),
        tag=int(tag or -1),
        tagged=parse_versions(tagged) if tagged else NONE,
        ignorable="ignorable" in options,
        inflexible="inflexible" in options,
    )


_parsed: dict[type[Message], tuple[Field, ...]] = {}


def fields_of(owner: type[Message]) -> tuple[Field, ...]:
    """All fields of a message or struct, in the order of the wire."""
    fields = _parsed.get(owner)
    if fields is None:
        fields = tuple(_parse_field(line, owner) for line in owner.SCHEMA.splitlines() if line.strip())
        _parsed[owner] = fields
    return fields


def is_flexible(owner: type[Message], version: int) -> bool:
    return owner.FLEXIBLE_FROM is not None and version >= owner.FLEXIBLE_FROM


def least_size(owner: type[Message], version: int) -> int:
    """The fewest bytes that a struct takes in `version`: what bounds the count of an array of them."""
    flexible = is_flexible(owner, version)
    size = 1 if flexible else 0
    for field in fields_of(owner):
        if version in field.versions and version not in field.tagged:
            size += _least_field_size(field, version, flexible and not field.inflexible)
    return size


def least_element_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of an array takes."""
    if field.struct is not None:
        return least_size(field.struct, version)
    if field.kind in FORMATS:
        return SIZES[FORMATS[field.kind]]
    return _least_length_size(field.kind, flexible)


def _least_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None:
        return 1 if version in field.nullable else least_size(field.struct, version)
    if field.kind in FORMATS:
        return SIZES[FORMATS[field.kind]]
    return _least_length_size(field.kind, flexible)


def _least_length_size(kind: str, flexible: bool) -> int:
    if flexible:
        return 1
    return 2 if kind == "string" else 4
