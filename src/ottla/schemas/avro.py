"""Avro schemas: the text in JSON as a graph of types, and the graph as text again.

`parse` reads a schema after the Avro specification and refuses what is none (`InvalidSchema`). Named types may refer to
themselves and to each other, so the types form a graph. `canonical_text` writes it as Avro's Java library does, with
everything but white space and redundant names kept: two texts of one schema become equal, which is how a registry knows
a schema again.

A schema comes from a client: nesting, and with it recursion, is bounded by `DEPTH_MAX`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

DEPTH_MAX = 100
"""Levels of types within types. What people write has a dozen."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ORDERS = ("ascending", "descending", "ignore")
_FIELD_KEYS = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_INT = range(-(1 << 31), 1 << 31)
_LONG = range(-(1 << 63), 1 << 63)


class InvalidSchema(ValueError):
    """The text is no schema; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    kind: str
    props: Mapping[str, Json]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: Schema
    props: Mapping[str, Json]
    kind: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: Schema
    props: Mapping[str, Json]
    kind: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[Schema, ...]
    kind: str = "union"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Enum:
    name: str
    """The full name, here as in all named types."""
    symbols: tuple[str, ...]
    default: str | None
    aliases: tuple[str, ...]
    doc: str | None
    props: Mapping[str, Json]
    kind: str = "enum"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fixed:
    name: str
    size: int
    aliases: tuple[str, ...]
    doc: str | None
    props: Mapping[str, Json]
    kind: str = "fixed"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    name: str
    type: Schema
    has_default: bool
    default: Json
    order: str
    aliases: tuple[str, ...]
    doc: str | None
    props: Mapping[str, Json]


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    name: str
    aliases: tuple[str, ...]
    doc: str | None
    props: Mapping[str, Json]
    is_error: bool
    fields: tuple[Field, ...] = field(default=())
    """Set once, after the record's name is known: its fields may be of its own type."""
    kind: str = "record"


Named: TypeAlias = Record | Enum | Fixed
Schema: TypeAlias = Primitive | Array | Map | Union | Named


def simple_name(name: str) -> str:
    return name.rpartition(".")[2]


def namespace_of(name: str) -> str:
    return name.rpartition(".")[0]


def read_json(text: str) -> Json:
    """Raises `InvalidSchema`, also for what is nested too deeply to be read at all."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema("The schema is nested too deeply.") from None
    except ValueError as error:
        raise InvalidSchema(f"The schema is no JSON: {error}.") from None
    return value


def write_json(value: Json, *, sort_keys: bool = False) -> str:
    """Raises `InvalidSchema` for what JSON has no text for, such as a number that is too large."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    except RecursionError:
        raise InvalidSchema("The schema is nested too deeply.") from None
    except ValueError:
        raise InvalidSchema("The schema has a number that is too large.") from None


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number of JSON")


def parse(text: str, references: Iterable[str] = (), *, strict: bool = True) -> Schema:
    """The schema that `text` says. `references` are the texts of schemas whose names it may use, in an order in which
    each needs only those before it. Without `strict`, the defaults of fields are taken as they stand."""
    parser = _Parser(strict=strict)
    for reference in references:
        parser.parse(_json_or_name(reference), "", 0)
    return parser.parse(_json_or_name(text), "", 0)


def _json_or_name(text: str) -> Json:
    # `string`, without quotes, is what many people type; Avro's own parser takes it too.
    stripped = text.strip()
    return stripped if stripped in PRIMITIVES else read_json(text)


class _Parser:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._names: dict[str, Named] = {}

    def parse(self, value: Json, namespace: str, depth: int) -> Schema:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"The schema has more than {DEPTH_MAX} levels.")
        match value:
            case str():
                return self._named_or_primitive(value, namespace)
            case list():
                return self._union(value, namespace, depth)
            case dict():
                return self._complex(value, namespace, depth)
            case _:
                raise InvalidSchema(f"{_show(value)} is no type.")

    def _named_or_primitive(self, name: str, namespace: str) -> Schema:
        if name in PRIMITIVES:
            return Primitive(name, {})
        for full in (_full_name(name, namespace), name):
            if (found := self._names.get(full)) is not None:
                return found
        raise InvalidSchema(f"{_show(name)} is not defined: it is neither a type of Avro nor one named before.")

    def _union(self, branches: list[Json], namespace: str, depth: int) -> Union:
        parsed = tuple(self.parse(branch, namespace, depth + 1) for branch in branches)
        seen: set[str] = set()
        for branch in parsed:
            if isinstance(branch, Union):
                raise InvalidSchema("A union has a union as its branch.")
            key = branch.name if isinstance(branch, Record | Enum | Fixed) else branch.kind
            if key in seen:
                raise InvalidSchema(f"A union has two branches of type {_show(key)}.")
            seen.add(key)
        return Union(parsed)

    def _complex(self, value: dict[str, Json], namespace: str, depth: int) -> Schema:
        kind = value.get("type")
        if isinstance(kind, dict | list):
            return self.parse(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema('A type in JSON has no "type".' if kind is None else f"{_show(kind)} is no type.")
        match kind:
            case "record" | "error":
                return self._record(value, namespace, depth)
            case "enum":
                return self._enum(value, namespace)
            case "fixed":
                return self._fixed(value, namespace)
            case "array":
                if "items" not in value:
                    raise InvalidSchema('An array has no "items".')
                return Array(self.parse(value["items"], namespace, depth + 1), _props(value, {"type", "items"}))
            case "map":
                if "values" not in value:
                    raise InvalidSchema('A map has no "values".')
                return Map(self.parse(value["values"], namespace, depth + 1), _props(value, {"type", "values"}))
            case _ if kind in PRIMITIVES:
                return Primitive(kind, _props(value, {"type"}))
            case _:
                return self._named_or_primitive(kind, namespace)

    # Named types.

    def _name(self, value: dict[str, Json], namespace: str) -> str:
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f'A type {_show(value.get("type"))} has no "name".')
        own = value.get("namespace")
        if own is not None and not isinstance(own, str):
            raise InvalidSchema(f"The namespace of {_show(name)} is no text.")
        full = _full_name(name, namespace if own is None else own)
        for part in full.split("."):
            if not _NAME.fullmatch(part):
                raise InvalidSchema(f"{_show(full)} is no name: its parts have letters, digits and _, no digit first.")
        if full in PRIMITIVES:
            raise InvalidSchema(f"{_show(full)} is a type of Avro and cannot be defined.")
        if full in self._names:
            raise InvalidSchema(f"{_show(full)} is defined twice.")
        return full

    def _record(self, value: dict[str, Json], namespace: str, depth: int) -> Record:
        name = self._name(value, namespace)
        space = namespace_of(name)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f'The record {_show(name)} has no "fields".')
        record = Record(
            name=name,
            aliases=_aliases(value, space),
            doc=_doc(value),
            props=_props(value, {"type", "name", "namespace", "doc", "fields", "aliases"}),
            is_error=value["type"] == "error",
        )
        self._names[name] = record
        parsed = tuple(self._field(each, name, space, depth) for each in fields)
        names = [each.name for each in parsed]
        if len(set(names)) < len(names):
            raise InvalidSchema(f"The record {_show(name)} has two fields of one name.")
        record.fields = parsed
        return record

    def _field(self, value: Json, record: str, namespace: str, depth: int) -> Field:
        if not isinstance(value, dict):
            raise InvalidSchema(f"A field of {_show(record)} is no object.")
        name = value.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidSchema(f"{_show(name)} is no name for a field of {_show(record)}.")
        if "type" not in value:
            raise InvalidSchema(f'The field {_show(name)} of {_show(record)} has no "type".')
        kind = self.parse(value["type"], namespace, depth + 1)
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise InvalidSchema(f"The order of the field {_show(name)} is none of {', '.join(_ORDERS)}.")
        has_default = "default" in value
        if has_default and self._strict and not is_default(kind, value["default"]):
            raise InvalidSchema(
                f"The default of the field {_show(name)} of {_show(record)} is not of the field's type."
            )
        return Field(
            name=name,
            type=kind,
            has_default=has_default,
            default=value.get("default"),
            order=order.lower(),
            aliases=_texts(value, "aliases"),
            doc=_doc(value),
            props=_props(value, _FIELD_KEYS),
        )

    def _enum(self, value: dict[str, Json], namespace: str) -> Enum:
        name = self._name(value, namespace)
        if not isinstance(value.get("symbols"), list):
            raise InvalidSchema(f'The enum {_show(name)} has no "symbols".')
        symbols = _texts(value, "symbols")
        if len(set(symbols)) < len(symbols):
            raise InvalidSchema(f"The enum {_show(name)} has a symbol twice.")
        for symbol in symbols:
            if not _NAME.fullmatch(symbol):
                raise InvalidSchema(f"{_show(symbol)} is no symbol for the enum {_show(name)}.")
        default = value.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"The default of the enum {_show(name)} is none of its symbols.")
        enum = Enum(
            name=name,
            symbols=symbols,
            default=default if isinstance(default, str) else None,
            aliases=_aliases(value, namespace_of(name)),
            doc=_doc(value),
            props=_props(value, {"type", "name", "namespace", "doc", "symbols", "default", "aliases"}),
        )
        self._names[name] = enum
        return enum

    def _fixed(self, value: dict[str, Json], namespace: str) -> Fixed:
        name = self._name(value, namespace)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0 or size not in _INT:
            raise InvalidSchema(f"The fixed {_show(name)} has no size.")
        fixed = Fixed(
            name=name,
            size=size,
            aliases=_aliases(value, namespace_of(name)),
            doc=_doc(value),
            props=_props(value, {"type", "name", "namespace", "doc", "size", "aliases"}),
        )
        self._names[name] = fixed
        return fixed


def is_default(schema: Schema, value: Json, depth: int = 0) -> bool:
    """Is `value`, in JSON, a value of `schema`? Of a union, any branch will do (Avro 1.12)."""
    if depth > DEPTH_MAX:
        return False
    match schema:
        case Primitive():
            return _is_primitive(schema.kind, value)
        case Array():
            return isinstance(value, list) and all(is_default(schema.items, each, depth + 1) for each in value)
        case Map():
            return isinstance(value, dict) and all(
                is_default(schema.values, each, depth + 1) for each in value.values()
            )
        case Union():
            return any(is_default(branch, value, depth + 1) for branch in schema.branches)
        case Enum():
            return value in schema.symbols
        case Fixed():
            return _is_primitive("bytes", value) and len(str(value)) == schema.size
        case Record():
            return isinstance(value, dict) and all(
                is_default(each.type, value[each.name], depth + 1) if each.name in value else each.has_default
                for each in schema.fields
            )


def _is_primitive(kind: str, value: Json) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            allowed = _INT if kind == "int" else _LONG
            return isinstance(value, int) and not isinstance(value, bool) and value in allowed
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "bytes":
            return isinstance(value, str) and all(ord(each) < 256 for each in value)
        case _:
            return isinstance(value, str)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _aliases(value: dict[str, Json], namespace: str) -> tuple[str, ...]:
    return tuple(_full_name(alias, namespace) for alias in _texts(value, "aliases"))


def _texts(value: dict[str, Json], key: str) -> tuple[str, ...]:
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise InvalidSchema(f"{_show(key)} is no list.")
    texts = tuple(each for each in found if isinstance(each, str))
    if len(texts) < len(found):
        raise InvalidSchema(f"{_show(key)} holds something that is no text.")
    return texts


def _doc(value: dict[str, Json]) -> str | None:
    doc = value.get("doc")
    return doc if isinstance(doc, str) else None


def _props(value: dict[str, Json], known: Iterable[str]) -> dict[str, Json]:
    names = frozenset(known)
    return {key: each for key, each in value.items() if key not in names}


def _show(value: Json) -> str:
    """A piece of somebody's schema, short enough for a sentence."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# The graph as text.


def canonical_text(schema: Schema, references: Iterable[str] = (), *, normalize: bool = False) -> str:
    """The one text of a schema. Names that `references` define are not written out. With `normalize`, attributes that
    Avro gives no meaning to come in one order too."""
    known = _Parser(strict=False)
    for reference in references:
        known.parse(_json_or_name(reference), "", 0)
    writer = _Writer(set(known._names), normalize=normalize)
    return write_json(writer.write(schema, ""))


class _Writer:
    def __init__(self, defined: set[str], *, normalize: bool) -> None:
        self._defined = defined
        self._normalize = normalize

    def write(self, schema: Schema, namespace: str) -> Json:
        match schema:
            case Primitive():
                return {"type": schema.kind, **self._props(schema.props)} if schema.props else schema.kind
            case Array():
                return {"type": "array", "items": self.write(schema.items, namespace), **self._props(schema.props)}
            case Map():
                return {"type": "map", "values": self.write(schema.values, namespace), **self._props(schema.props)}
            case Union():
                return [self.write(branch, namespace) for branch in schema.branches]
            case _:
                return self._named(schema, namespace)

    def _named(self, schema: Named, namespace: str) -> Json:
        space = namespace_of(schema.name)
        if schema.name in self._defined:
            return simple_name(schema.name) if space == namespace else schema.name
        self._defined.add(schema.name)
        written: dict[str, Json] = {"type": schema.kind, "name": simple_name(schema.name)}
        if space != namespace:
            written["namespace"] = space
        if schema.doc is not None:
            written["doc"] = schema.doc
        match schema:
            case Record():
                if schema.is_error:
                    written["type"] = "error"
                written["fields"] = [self._field(each, space) for each in schema.fields]
            case Enum():
                written["symbols"] = list(schema.symbols)
                if schema.default is not None:
                    written["default"] = schema.default
            case Fixed():
                written["size"] = schema.size
        written |= self._props(schema.props)
        if schema.aliases:
            written["aliases"] = [
                simple_name(alias) if namespace_of(alias) == space else alias for alias in schema.aliases
            ]
        return written

    def _field(self, field: Field, namespace: str) -> Json:
        written: dict[str, Json] = {"name": field.name, "type": self.write(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.has_default:
            written["default"] = field.default
        if field.order != "ascending":
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = list(field.aliases)
        return written | self._props(field.props)

    def _props(self, props: Mapping[str, Json]) -> dict[str, Json]:
        return dict(sorted(props.items())) if self._normalize else dict(props)
