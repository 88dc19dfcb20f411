"""May a reader with one Avro schema read what was written with another? The specification's resolution, as a judgement.

`incompatibilities(reader, writer)` walks both schemas together and returns what is in the way, with its place in the
reader's schema; nothing if every record that the writer can write can be read. Named types may be recursive: a pair
that is being compared already is taken as fit, since if it is not, the comparison that goes on will say so. Two schemas
of a client can have many pairs of types, and names can make them deeper than their texts are: how many are looked at,
and how deep, is bounded.

The kinds of trouble have the names that Avro's Java library gives them, which tools look for.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ottla.schemas.avro import (
    DEPTH_MAX,
    Array,
    Enum,
    Field,
    Fixed,
    InvalidSchema,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    simple_name,
)

PROMOTIONS: dict[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""What may have been written where the reader expects this type."""

PAIRS_MAX = 200_000
TROUBLES_MAX = 100


class Trouble(enum.Enum):
    NAME_MISMATCH = "NAME_MISMATCH"
    FIXED_SIZE_MISMATCH = "FIXED_SIZE_MISMATCH"
    MISSING_ENUM_SYMBOLS = "MISSING_ENUM_SYMBOLS"
    READER_FIELD_MISSING_DEFAULT_VALUE = "READER_FIELD_MISSING_DEFAULT_VALUE"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    MISSING_UNION_BRANCH = "MISSING_UNION_BRANCH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    trouble: Trouble
    path: str
    """Where, in the reader's schema, as a path through its JSON."""
    reason: str


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    return _Comparison().compare(reader, writer, "")


def names_match(reader: Named, writer: Named) -> bool:
    """Names count without their namespaces; the reader's aliases are whole."""
    return simple_name(reader.name) == simple_name(writer.name) or writer.name in reader.aliases


def written_field(field: Field, writer: Record) -> Field | None:
    """The field of the writer that `field` of the reader is read from: the one of its name, or of an alias of it."""
    by_name = {each.name: each for each in writer.fields}
    for name in (field.name, *field.aliases):
        if name in by_name:
            return by_name[name]
    return None


class _Comparison:
    """What has been assumed or found so far, by pair. A pair that does not fit never will, whatever is assumed; a pair
    that fits may owe that to an assumption, and is forgotten with it."""

    def __init__(self) -> None:
        self._assumed: dict[tuple[int, int], None] = {}
        self._failed: dict[tuple[int, int], list[Incompatibility]] = {}
        self._pairs_left = PAIRS_MAX
        self._depth = 0

    def compare(self, reader: Schema, writer: Schema, path: str) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._assumed:
            return []
        if (known := self._failed.get(pair)) is not None:
            return known
        self._pairs_left -= 1
        if self._pairs_left < 0:
            raise InvalidSchema(f"The schemas are too large to be compared: more than {PAIRS_MAX} pairs of types.")
        if self._depth > DEPTH_MAX:
            raise InvalidSchema(f"The schemas are too deep to be compared: more than {DEPTH_MAX} levels.")
        assumed = len(self._assumed)
        self._assumed[pair] = None
        self._depth += 1
        found = list(dict.fromkeys(self._compare(reader, writer, path)))[:TROUBLES_MAX]
        self._depth -= 1
        if found:
            while len(self._assumed) > assumed:
                self._assumed.popitem()
            self._failed[pair] = found
        return found

    def _compare(self, reader: Schema, writer: Schema, path: str) -> list[Incompatibility]:
        if isinstance(writer, Union):
            # Whatever branch was written must be readable.
            return [trouble for branch in writer.branches for trouble in self.compare(reader, branch, path)]
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, f"{path}/{at}") for at, branch in enumerate(reader.branches)):
                return []
            return [_found(Trouble.MISSING_UNION_BRANCH, path, f"the reader's union has no branch for {_name(writer)}")]
        match reader, writer:
            case Record(), Record():
                return self._records(reader, writer, path)
            case Enum(), Enum():
                return self._enums(reader, writer, path)
            case Fixed(), Fixed():
                return self._fixed(reader, writer, path)
            case Array(), Array():
                return self.compare(reader.items, writer.items, f"{path}/items")
            case Map(), Map():
                return self.compare(reader.values, writer.values, f"{path}/values")
            case Primitive(), Primitive() if reader.kind == writer.kind or writer.kind in PROMOTIONS.get(
                reader.kind, ()
            ):
                return []
        reason = f"the reader expects {_name(reader)}, and {_name(writer)} was written"
        return [_found(Trouble.TYPE_MISMATCH, path, reason)]

    def _records(self, reader: Record, writer: Record, path: str) -> list[Incompatibility]:
        found = _mismatch(reader, writer, path)
        for at, field in enumerate(reader.fields):
            written = written_field(field, writer)
            if written is not None:
                found += self.compare(field.type, written.type, f"{path}/fields/{at}/type")
            elif not field.has_default:
                reason = f"the reader's field '{field.name}' has no default, and was not written"
                found.append(_found(Trouble.READER_FIELD_MISSING_DEFAULT_VALUE, f"{path}/fields/{at}", reason))
        return found

    def _enums(self, reader: Enum, writer: Enum, path: str) -> list[Incompatibility]:
        found = _mismatch(reader, writer, path)
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if missing and reader.default is None:
            reason = f"the reader does not know the symbols {', '.join(missing)}, and has no default for them"
            found.append(_found(Trouble.MISSING_ENUM_SYMBOLS, f"{path}/symbols", reason))
        return found

    def _fixed(self, reader: Fixed, writer: Fixed, path: str) -> list[Incompatibility]:
        found = _mismatch(reader, writer, path)
        if reader.size != writer.size:
            reason = f"the reader expects {reader.size} bytes, and {writer.size} were written"
            found.append(_found(Trouble.FIXED_SIZE_MISMATCH, f"{path}/size", reason))
        return found


def _mismatch(reader: Named, writer: Named, path: str) -> list[Incompatibility]:
    if names_match(reader, writer):
        return []
    return [_found(Trouble.NAME_MISMATCH, f"{path}/name", f"the reader expects {reader.name}, not {writer.name}")]


def _found(trouble: Trouble, path: str, reason: str) -> Incompatibility:
    return Incompatibility(trouble=trouble, path=path or "/", reason=reason)


def _name(schema: Schema) -> str:
    return f"{schema.kind} {schema.name}" if isinstance(schema, Record | Enum | Fixed) else schema.kind
