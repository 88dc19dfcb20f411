"""May a reader with one Protobuf schema read what was written with another? By Confluent's rules, and its names.

On the wire a field is its number and its kind, so names may change, and fields may come and go; what may not change is
how the bytes of a number are read, and which fields keep each other out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.schemas.protobuf_types import SCALARS, Field, File, Message

_ALIKE = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool", "enum"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"string", "bytes"}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
)
"""Kinds whose bytes are read by each other."""
_UNPACKED = frozenset({"string", "bytes", "message", "map"})
"""Kinds of which the last of several counts where one is expected."""


@dataclass(frozen=True, slots=True)
class Trouble:
    kind: str
    path: str


def troubles(reader: File, writer: File) -> list[Trouble]:
    return list(_compare(reader, writer))


def _compare(reader: File, writer: File) -> Iterator[Trouble]:
    if reader.package != writer.package:
        yield Trouble("PACKAGE_CHANGED", "#/")
        return
    for name, written in writer.messages.items():
        path = f"#/{name.replace('.', '/')}"
        read = reader.messages.get(name)
        if read is None:
            yield Trouble("MESSAGE_REMOVED", path)
        else:
            yield from _compare_messages(reader, read, writer, written, path)


def _compare_messages(reader: File, read: Message, writer: File, written: Message, path: str) -> Iterator[Trouble]:
    oneofs = {field.oneof for field in read.fields.values()} - {None}
    for number, old in written.fields.items():
        place = f"{path}/{number}"
        new = read.fields.get(number)
        if new is not None:
            yield from _compare_fields(reader, read, new, writer, written, old, place)
        elif old.label == "required":
            yield Trouble("REQUIRED_FIELD_REMOVED", place)
        elif old.oneof in oneofs:
            yield Trouble("ONEOF_FIELD_REMOVED", place)
    for number, new in read.fields.items():
        if number not in written.fields and new.label == "required":
            yield Trouble("REQUIRED_FIELD_ADDED", f"{path}/{number}")
    yield from _compare_oneofs(read, written, path)


def _compare_oneofs(read: Message, written: Message, path: str) -> Iterator[Trouble]:
    """Fields that could both be set must not come to keep each other out."""
    before = {field.oneof for field in written.fields.values()} - {None}
    moved: dict[str, int] = {}
    for number, new in read.fields.items():
        old = written.fields.get(number)
        if new.oneof is None or old is None or old.oneof is not None:
            continue
        if new.oneof in before:
            yield Trouble("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{number}")
        moved[new.oneof] = moved.get(new.oneof, 0) + 1
    for oneof, count in moved.items():
        if count > 1 and oneof not in before:
            yield Trouble("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{oneof}")


def _compare_fields(
    reader: File, read: Message, new: Field, writer: File, written: Message, old: Field, place: str
) -> Iterator[Trouble]:
    new_kind, new_type = _kind(reader, read, new)
    old_kind, old_type = _kind(writer, written, old)
    if new_kind != old_kind and not any({new_kind, old_kind} <= alike for alike in _ALIKE):
        named = {"message", "map", "enum"} & {new_kind, old_kind}
        yield Trouble("FIELD_KIND_CHANGED" if named else "FIELD_SCALAR_KIND_CHANGED", place)
    elif new_kind == old_kind == "message" and new_type != old_type:
        yield Trouble("FIELD_NAMED_TYPE_CHANGED", place)
    elif (new.label == "repeated") != (old.label == "repeated") and new_kind not in _UNPACKED:
        yield Trouble("FIELD_NUMERIC_LABEL_CHANGED", place)


def _kind(file: File, message: Message, field: Field) -> tuple[str, str]:
    """What it is on the wire, and the name of its type if it has one. A type from elsewhere is taken for a message."""
    if field.type in SCALARS or field.type == "map":
        return field.type, ""
    name = file.type_of(message.name, field.type)
    return ("enum" if name in file.enums else "message"), name
