"""May a reader with one JSON schema read whatever another schema lets be written?

`troubles(reader, writer)` walks both together and tells what is in the way, with its place in the reader's schema. The
names of troubles, and the rules for properties that come and go, are Confluent's: a property may be added where the
writer could not have written it as something else (`additionalProperties` false, or a schema that covers it), and may
be removed where the reader still takes it. Where Confluent knows a pair by its keywords, here whatever the writer may
write must be something that the reader takes: each branch of the writer's `anyOf` must fit one of the reader's.
Patterns of names are judged where they are the same on both sides, and for every name that is listed; whether two
patterns have names in common nobody asks.

References within a document are followed; one to elsewhere fits the same reference and nothing else. Pairs that are
being compared already are taken as fit, so that schemas may be recursive; how many are looked at is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeGuard
from urllib.parse import unquote

from ottla.schemas.avro import InvalidSchema

PAIRS_MAX = 50_000
LEVELS_MAX = 200
TROUBLES_MAX = 100

_IGNORED = frozenset(
    (
        *("$schema", "$id", "id", "$anchor", "$comment", "definitions", "$defs", "title", "description", "default"),
        *("examples", "format", "readOnly", "writeOnly", "deprecated", "contentEncoding", "contentMediaType"),
    )
)
"""Keywords that keep nothing out."""

_UPPER = {
    "maxLength": ("MAX_LENGTH", "string"),
    "maximum": ("MAXIMUM", "number"),
    "exclusiveMaximum": ("EXCLUSIVE_MAXIMUM", "number"),
    "maxItems": ("MAX_ITEMS", "array"),
    "maxProperties": ("MAX_PROPERTIES", "object"),
}
_LOWER = {
    "minLength": ("MIN_LENGTH", "string"),
    "minimum": ("MINIMUM", "number"),
    "exclusiveMinimum": ("EXCLUSIVE_MINIMUM", "number"),
    "minItems": ("MIN_ITEMS", "array"),
    "minProperties": ("MIN_PROPERTIES", "object"),
}

Schema = Any
"""True, false, or an object; whatever else stands in its place is taken for true."""


@dataclass(frozen=True, slots=True)
class Trouble:
    kind: str
    path: str
    """In the reader's schema."""


def troubles(reader: Schema, writer: Schema) -> list[Trouble]:
    """Raises `InvalidSchema` where the two are too large to be compared."""
    found = _Comparison(reader, writer).compare(reader, writer, "#", 0)
    return list(dict.fromkeys(found))[:TROUBLES_MAX]


@dataclass(slots=True)
class _Comparison:
    reader_root: Schema
    writer_root: Schema
    _assumed: dict[tuple[int, int], tuple[Schema, Schema]] = field(default_factory=dict)
    """Pairs that are taken as fit, by identity; they are held on to, so that no other gets the identity of one."""
    _pairs_left: int = PAIRS_MAX
    _together: dict[tuple[int, ...], dict[str, list[Schema]]] = field(default_factory=dict)
    """Schemas that hold of one property at once, by their identities: the same each time, so that recursion ends."""

    def compare(self, reader: Schema, writer: Schema, path: str, level: int) -> list[Trouble]:
        reader, reader_elsewhere = _resolved(reader, self.reader_root)
        writer, writer_elsewhere = _resolved(writer, self.writer_root)
        if reader_elsewhere or writer_elsewhere:
            return [] if reader_elsewhere == writer_elsewhere else [Trouble("REFERENCE_CHANGED", path)]
        pair = (id(reader), id(writer))
        if pair in self._assumed or _takes_all(reader) or writer is False or reader == writer:
            return []
        self._pairs_left -= 1
        if self._pairs_left < 0 or level > LEVELS_MAX:
            raise InvalidSchema(f"The schemas are too large to be compared: more than {PAIRS_MAX} pairs of types.")
        if reader is False:
            return [Trouble("SCHEMA_ADDED", path)]
        assumed = len(self._assumed)
        self._assumed[pair] = reader, writer
        found = self._compare(reader, {} if _takes_all(writer) else writer, path, level + 1)
        while found and len(self._assumed) > assumed:
            self._assumed.popitem()  # What fits may owe that to the assumption.
        return found

    def _compare(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, level: int) -> list[Trouble]:
        branches = _alternatives(writer)
        if branches is not None:
            # Whatever branch was written must be readable.
            return [each for branch in branches for each in self.compare(reader, branch, path, level)]
        branches = _alternatives(reader)
        if branches is not None:
            tried = [self.compare(branch, writer, path, level) for branch in branches]
            if any(not found for found in tried):
                return []
            return tried[0] if len(tried) == 1 else [Trouble("SUM_TYPE_NARROWED", path)]
        conjuncts = _conjuncts(reader)
        if conjuncts is not None:
            return [
                each
                for number, conjunct in enumerate(conjuncts)
                for each in self.compare(conjunct, writer, f"{path}/allOf/{number}", level)
            ]
        conjuncts = _conjuncts(writer)
        if conjuncts is not None:
            # What was written fits all of them, so it is enough that the reader takes what fits one.
            tried = [self.compare(reader, conjunct, path, level) for conjunct in conjuncts]
            return [] if any(not found for found in tried) else min(tried, key=len, default=[])
        return list(self._compare_plain(reader, writer, path, level))

    def _compare_plain(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, level: int
    ) -> Iterator[Trouble]:
        if "not" in reader and reader["not"] != writer.get("not"):
            yield Trouble("NOT_TYPE_EXTENDED", f"{path}/not")
        written = _values(writer)
        allowed = _values(reader)
        if allowed is not None:
            if written is None:
                yield Trouble("ENUM_ARRAY_CHANGED", f"{path}/enum")
            elif any(value not in allowed for value in written):
                yield Trouble("ENUM_ARRAY_NARROWED", f"{path}/enum")
            return
        if written is not None:
            if any(not _is_a(value, reader.get("type")) for value in written):
                yield Trouble("TYPE_CHANGED", path)
            return
        wanted, found = reader.get("type"), writer.get("type")
        if wanted is not None and wanted != found and (wanted, found) != ("number", "integer"):
            narrowed = found is None or (wanted, found) == ("integer", "number")
            yield Trouble("TYPE_NARROWED" if narrowed else "TYPE_CHANGED", path)
            return
        yield from _compare_bounds(reader, writer, path, found)
        if found in (None, "object"):
            yield from self._compare_objects(reader, writer, path, level)
        if found in (None, "array"):
            yield from self._compare_arrays(reader, writer, path, level)

    # Objects.

    def _compare_objects(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, level: int
    ) -> Iterator[Trouble]:
        read, written = _mapping(reader.get("properties")), _mapping(writer.get("properties"))
        required = {name for name in _list(reader.get("required")) if isinstance(name, str)}
        given = {name for name in _list(writer.get("required")) if isinstance(name, str)}
        for name in written:
            theirs = self._of(writer, name)
            if name in read:
                yield from self.compare(self._of(reader, name), theirs, f"{path}/properties/{name}", level)
            else:
                yield from self._removed(reader, name, theirs, path, level)
        for name in read:
            place = f"{path}/properties/{name}"
            has_default = isinstance(read[name], dict) and "default" in read[name]
            if name in written:
                if name in required and name not in given and not has_default:
                    yield Trouble("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required")
                continue
            rest, ours = self._of(writer, name), self._of(reader, name)
            if rest is not False:
                open_model = _takes_all(rest)
                if open_model and not _takes_all(ours):
                    yield Trouble("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", place)
                elif self.compare(ours, rest, place, level):
                    yield Trouble("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)
            if name in required and not has_default:
                yield Trouble("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", place)
        for name in sorted(required - given - read.keys()):
            yield Trouble("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")
        yield from self._compare_patterns(reader, writer, path, level)
        beyond = writer.get("additionalProperties", True)
        place = f"{path}/additionalProperties"
        if reader.get("additionalProperties", True) is False and beyond is not False:
            yield Trouble("ADDITIONAL_PROPERTIES_REMOVED", place)
        elif beyond is not False and self.compare(reader.get("additionalProperties", True), beyond, place, level):
            yield Trouble("ADDITIONAL_PROPERTIES_NARROWED", place)

    def _removed(
        self, reader: Mapping[str, Any], name: str, written: Schema, path: str, level: int
    ) -> Iterator[Trouble]:
        place = f"{path}/properties/{name}"
        rest = self._of(reader, name)
        if written is False or _takes_all(rest):
            return
        if rest is False:
            yield Trouble("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place)
        elif self.compare(rest, written, place, level):
            yield Trouble("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", place)

    def _compare_patterns(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, level: int
    ) -> Iterator[Trouble]:
        """Properties that no side lists, by the patterns of their names."""
        read, written = _mapping(reader.get("patternProperties")), _mapping(writer.get("patternProperties"))
        for pattern, ours in read.items():
            place = f"{path}/patternProperties/{pattern}"
            beyond = writer.get("additionalProperties", True)
            if pattern in written:
                yield from self.compare(ours, written[pattern], place, level)
            elif beyond is not False and self.compare(ours, beyond, place, level):
                model = "TO_OPEN_CONTENT_MODEL" if _takes_all(beyond) else "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                yield Trouble(f"PATTERN_PROPERTY_ADDED_{model}", place)
        for pattern, theirs in written.items():
            rest = reader.get("additionalProperties", True)
            if pattern not in read and self.compare(rest, theirs, f"{path}/patternProperties/{pattern}", level):
                closed = "FROM_CLOSED_CONTENT_MODEL"
                model = closed if rest is False else "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                yield Trouble(f"PATTERN_PROPERTY_REMOVED_{model}", f"{path}/patternProperties/{pattern}")

    def _of(self, schema: Mapping[str, Any], name: str) -> Schema:
        """What holds of the property `name`: what is listed for it, and what is said of names like it; or of all that
        is neither listed nor like any. A pattern that RE2 does not know may be like every name: then all may be."""
        listed = _mapping(schema.get("properties"))
        holding = [listed[name]] if name in listed else []
        for pattern, inner in _mapping(schema.get("patternProperties")).items():
            like = _is_like(pattern, name)
            if like is None and not holding:
                return True
            if like:
                holding.append(inner)
        if not holding:
            return schema.get("additionalProperties", True)
        if len(holding) == 1:
            return holding[0]
        return self._together.setdefault(tuple(map(id, holding)), {"allOf": holding})

    # Arrays.

    def _compare_arrays(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, level: int
    ) -> Iterator[Trouble]:
        if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
            yield Trouble("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
        read, read_rest = _items(reader)
        written, written_rest = _items(writer)
        for at in range(max(len(read), len(written))):
            ours = read[at] if at < len(read) else read_rest
            theirs = written[at] if at < len(written) else written_rest
            if theirs is not False:
                yield from self.compare(ours, theirs, f"{path}/items/{at}", level)
        if written_rest is not False:
            yield from self.compare(read_rest, written_rest, f"{path}/items", level)


def _compare_bounds(reader: Mapping[str, Any], writer: Mapping[str, Any], path: str, found: Any) -> Iterator[Trouble]:
    for bounds, tighter in ((_UPPER, "DECREASED"), (_LOWER, "INCREASED")):
        for keyword, (name, kind) in bounds.items():
            ours, theirs = reader.get(keyword), writer.get(keyword)
            if not _is_number(ours) or not _concerns(kind, found):
                continue
            if not _is_number(theirs):
                if not (bounds is _LOWER and kind != "number" and ours <= 0):
                    yield Trouble(f"{name}_ADDED", f"{path}/{keyword}")
            elif ours < theirs if bounds is _UPPER else ours > theirs:
                yield Trouble(f"{name}_{tighter}", f"{path}/{keyword}")
    if "pattern" in reader and reader["pattern"] != writer.get("pattern") and _concerns("string", found):
        yield Trouble("PATTERN_CHANGED" if "pattern" in writer else "PATTERN_ADDED", f"{path}/pattern")
    ours, theirs = reader.get("multipleOf"), writer.get("multipleOf")
    if _is_number(ours) and ours and _concerns("number", found):
        if not _is_number(theirs):
            yield Trouble("MULTIPLE_OF_ADDED", f"{path}/multipleOf")
        elif theirs % ours:
            yield Trouble("MULTIPLE_OF_CHANGED", f"{path}/multipleOf")


def _concerns(kind: str, found: Any) -> bool:
    return found is None or found == kind or (kind == "number" and found == "integer")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _takes_all(schema: Schema) -> bool:
    if isinstance(schema, dict):
        return not schema.keys() - _IGNORED
    return schema is not False


def _alternatives(schema: Mapping[str, Any]) -> list[Schema] | None:
    """The branches of which one must fit, each with what is asked for beside them; None if there are no branches."""
    for keyword in ("anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches:
            beside = {name: value for name, value in schema.items() if name != keyword}
            return branches if _takes_all(beside) else [{"allOf": [branch, beside]} for branch in branches]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in kinds]
    return None


def _conjuncts(schema: Mapping[str, Any]) -> list[Schema] | None:
    """The schemas that must all fit, what is asked for beside them among them; None if there are no such."""
    parts = schema.get("allOf")
    if not isinstance(parts, list) or not parts:
        return None
    beside = {name: value for name, value in schema.items() if name != "allOf"}
    return parts if _takes_all(beside) else [*parts, beside]


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """All that may be written, where the schema lists it."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _is_a(value: Any, kind: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return _is_number(value)
        case "integer":
            return _is_number(value) and value == int(value)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
    return True


def _is_like(pattern: str, name: str) -> bool | None:
    """Whether the pattern finds something in the name; None if it is none that RE2 knows."""
    found = _compiled(pattern)
    return None if found is None else found(name) is not None


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> Callable[[str], object] | None:
    import re2  # Here, because few schemas have patterns.

    options = re2.Options()
    options.log_errors = False
    try:
        search: Callable[[str], object] = re2.compile(pattern, options).search
    except (ValueError, re2.error):
        return None
    return search


def _items(schema: Mapping[str, Any]) -> tuple[list[Schema], Schema]:
    """Of the first items, each its own, and of the rest."""
    if isinstance(prefix := schema.get("prefixItems"), list):
        return prefix, schema.get("items", True)
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _resolved(schema: Schema, root: Schema) -> tuple[Schema, str]:
    """What a reference within the document refers to; or the reference, if it is to elsewhere."""
    for _ in range(LEVELS_MAX):
        if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
            return schema, ""
        if not reference.startswith("#"):
            return schema, reference
        found: Any = root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return schema, reference  # It leads nowhere: it fits the same one, and nothing else.
        schema = found
    return schema, "#"
