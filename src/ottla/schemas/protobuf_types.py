"""What a Protobuf schema says, as far as it matters to who reads and writes messages: fields, enums, names."""

from __future__ import annotations

from dataclasses import dataclass, field

LEVELS_MAX = 60
FIELD_NUMBER_MAX = (1 << 29) - 1

SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""By their number in a FieldDescriptorProto, from 1 on; three of them are not scalars, and stand for named types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    number: int
    label: str
    """optional, required, repeated, or nothing."""
    type: str
    """A scalar's name, or that of a message or an enum as it was written; `map` for a map."""
    oneof: str | None = None
    key: str = ""
    """Of a map: the type of its keys."""
    value: str = ""
    """Of a map: the type of its values, as it was written."""
    is_explicit: bool = False
    """A field that is not repeated: is one with its default told from one that was not written?"""
    is_packed: bool = True
    """A repeated number: are all of them written together?"""
    is_group: bool = False


@dataclass(slots=True)
class Message:
    name: str
    """With the messages that it is in, without the package."""
    fields: dict[int, Field] = field(default_factory=dict)
    inner: list[str] = field(default_factory=list)
    """The names of the messages that are defined in it, in their order, which records go by."""


@dataclass(slots=True)
class File:
    package: str = ""
    syntax: str = "proto2"
    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    """The numbers of an enum by their names, the first of several for one number first."""

    def type_of(self, scope: str, written: str) -> str:
        """The name of the type that `written` means within the message `scope`, as the file knows it."""
        name = written.removeprefix(".")
        if self.package and name.startswith(f"{self.package}."):
            name = name.removeprefix(f"{self.package}.")
        outer = "" if written.startswith(".") else scope
        while outer:
            if (found := f"{outer}.{name}") in self.messages or found in self.enums:
                return found
            outer = outer.rpartition(".")[0]
        return name


def inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
