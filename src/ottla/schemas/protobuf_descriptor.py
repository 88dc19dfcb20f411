"""A Protobuf schema read from its descriptor, the FileDescriptorProto that compilers make of the text."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.schemas import protobuf_wire
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf_types import FIELD_NUMBER_MAX, LEVELS_MAX, SCALARS, Field, File, Message, inside

_NAMED = frozenset({"group", "message", "enum"})
_LABELS = {1: "optional", 2: "required", 3: "repeated"}


def read(data: bytes) -> File:
    """Raises `InvalidSchema`."""
    file = File()
    parts = list(_fields(data))
    for number, value in parts:
        if number == 2:
            file.package = _text(value)
        elif number == 12:
            file.syntax = _text(value)
    for number, value in parts:
        if number == 4:
            _message(file, "", _bytes(value), 0)
        elif number == 5:
            _enum(file, "", _bytes(value))
    return file


def _message(file: File, scope: str, data: bytes, level: int) -> None:
    if level > LEVELS_MAX:
        raise InvalidSchema(f"The schema has more than {LEVELS_MAX} levels.")
    parts = list(_fields(data))
    name = inside(scope, _name(data))
    oneofs = [_name(_bytes(value)) for number, value in parts if number == 8]
    nested = [_bytes(value) for number, value in parts if number == 3]
    maps = {f"{name}.{_name(each)}": each for each in nested if _is_map_entry(each)}
    message = file.messages[name] = Message(name)
    message.inner = [inside(name, _name(each)) for each in nested]
    for number, value in parts:
        if number == 2:
            found = _field(file, _bytes(value), oneofs, maps)
            message.fields[found.number] = found
        elif number == 4:
            _enum(file, name, _bytes(value))
    for each in nested:
        if not _is_map_entry(each):
            _message(file, name, each, level + 1)


def _field(file: File, data: bytes, oneofs: list[str], maps: dict[str, bytes]) -> Field:
    found = dict(_fields(data))
    number, kind = _int(found.get(3, 0)), _int(found.get(5, 0))
    if not 1 <= number <= FIELD_NUMBER_MAX or not 1 <= kind <= len(SCALARS):
        raise InvalidSchema("The descriptor holds a field without a number or a type.")
    type_, key, value = _type(found), "", ""
    entry = maps.get(type_.removeprefix(".").removeprefix(f"{file.package}." if file.package else ""))
    if entry is not None:
        inner = {each.number: each for each in _entry_fields(file, entry)}
        if set(inner) != {1, 2}:
            raise InvalidSchema("The descriptor holds a map without a key or a value.")
        type_, key, value = "map", inner[1].type, inner[2].type
    oneof = None
    if 9 in found and not found.get(17) and _int(found[9]) < len(oneofs):
        oneof = oneofs[_int(found[9])]
    options = dict(_fields(_bytes(found[8]))) if 8 in found else {}
    return Field(
        name=_text(found.get(1, b"")),
        number=number,
        label=_LABELS.get(_int(found.get(4, 1)), ""),
        type=type_,
        oneof=oneof,
        key=key,
        value=value,
        is_explicit=file.syntax != "proto3" or bool(found.get(17)) or oneof is not None,
        is_packed=bool(_int(options.get(2, file.syntax != "proto2"))),
        is_group=SCALARS[kind - 1] == "group",
    )


def _entry_fields(file: File, entry: bytes) -> Iterator[Field]:
    for number, value in _fields(entry):
        if number == 2:
            yield _field(file, _bytes(value), [], {})


def _type(found: dict[int, int | bytes]) -> str:
    name = SCALARS[_int(found.get(5, 0)) - 1]
    return _text(found.get(6, b"")) if name in _NAMED else name


def _enum(file: File, scope: str, data: bytes) -> None:
    values: dict[str, int] = {}
    for number, value in _fields(data):
        if number == 2:
            found = dict(_fields(_bytes(value)))
            values[_text(found.get(1, b""))] = protobuf_wire.signed(_int(found.get(2, 0)), 32)
    file.enums[inside(scope, _name(data))] = values


def _name(data: bytes) -> str:
    return _text(dict(_fields(data)).get(1, b""))


def _is_map_entry(data: bytes) -> bool:
    options = dict(_fields(data)).get(7, b"")
    return isinstance(options, bytes) and bool(dict(_fields(options)).get(7))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    try:
        for number, _, value in protobuf_wire.parts(data):
            yield number, value
    except BadValue:
        raise InvalidSchema("The text is neither a Protobuf schema nor a descriptor of one.") from None


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidSchema("The descriptor holds a name that is no text.") from None


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidSchema("The descriptor holds a number where something else should be.")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise InvalidSchema("The descriptor holds something where a number should be.")
    return value
