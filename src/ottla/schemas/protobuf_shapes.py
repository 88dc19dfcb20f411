"""The messages of a Protobuf schema with everything that they name found: in the schema, in what it imports, or among
Google's own types."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.schemas import protobuf_well_known as well_known
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf import parse
from ottla.schemas.protobuf_types import SCALARS, Field, Message, inside
from ottla.schemas.protobuf_wire import EIGHT_BYTES, FOUR_BYTES, SIZED, VARINT

LEVELS_MAX = 100
FIXED = {
    "double": struct.Struct("<d"),
    "fixed64": struct.Struct("<Q"),
    "sfixed64": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "fixed32": struct.Struct("<I"),
    "sfixed32": struct.Struct("<i"),
}
SIZED_KINDS = frozenset({"string", "bytes", "message"})


@dataclass(frozen=True, slots=True)
class Type:
    """What a field holds: a scalar's kind, or `message` or `enum` with the full name of the type."""

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A field, with its types found."""

    field: Field
    json_name: str
    type: Type
    key: Type | None = None
    """Of a map, whose values are of `type`."""

    @property
    def is_list(self) -> bool:
        return self.field.label == "repeated"


class Shapes:
    """`references` are the texts of what the schema imports, but for Google's own types. Raises `InvalidSchema`."""

    def __init__(self, text: str, references: Sequence[str]) -> None:
        self.file = parse(text)
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, dict[str, int]] = {}
        """Both by their full names."""
        for file in (*well_known.files(), *(parse(each) for each in references), self.file):
            self.messages |= {inside(file.package, name): message for name, message in file.messages.items()}
            self.enums |= {inside(file.package, name): values for name, values in file.enums.items()}
        self._slots: dict[str, dict[int, Slot]] = {}

    def fields(self, name: str) -> dict[int, Slot]:
        """Of the message of this full name, by their numbers. Raises `BadValue` if one is of a type nobody knows."""
        found = self._slots.get(name)
        if found is None:
            fields = self.messages[name].fields.values()
            found = self._slots[name] = {
                each.number: self._slot(name, each) for each in sorted(fields, key=lambda field: field.number)
            }
        return found

    def _slot(self, scope: str, field: Field) -> Slot:
        json_name = re.sub(r"_+(.?)", lambda letter: letter[1].upper(), field.name)
        if field.type == "map":
            return Slot(field, json_name, self._type(scope, field.value), self._type(scope, field.key))
        return Slot(field, json_name, self._type(scope, field.type))

    def _type(self, scope: str, written: str) -> Type:
        if written in SCALARS:
            return Type(written)
        outer = "" if written.startswith(".") else scope
        name = written.removeprefix(".")
        while True:
            full = inside(outer, name)
            if full in self.messages:
                return Type("message", full)
            if full in self.enums:
                return Type("enum", full)
            if not outer:
                raise BadValue(f"The type {written} is neither in the schema nor in what it refers to.")
            outer = outer.rpartition(".")[0]


def wire_of(type_: Type) -> int:
    kind = type_.kind
    if kind in FIXED:
        return EIGHT_BYTES if FIXED[kind].size == 8 else FOUR_BYTES
    return SIZED if kind in SIZED_KINDS else VARINT
