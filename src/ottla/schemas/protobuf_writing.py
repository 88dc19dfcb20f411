"""Protobuf's JSON into Protobuf's bytes: see `protobuf_values`."""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct

from ottla.schemas import protobuf_well_known as well_known
from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf_shapes import FIXED, LEVELS_MAX, SIZED_KINDS, Shapes, Slot, Type, wire_of
from ottla.schemas.protobuf_wire import SIZED, write_sized, write_varint

_RANGES = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "enum"), (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(1 << 63), (1 << 63) - 1)),
    "uint32": (0, (1 << 32) - 1),
    "fixed32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
    "fixed64": (0, (1 << 64) - 1),
}
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Writer:
    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def write(self, name: str, value: Json, out: bytearray, where: str, level: int) -> None:
        """The message of the full name `name`, `level` messages deep, at `where` of the value. Raises `BadValue`."""
        if level > LEVELS_MAX:
            raise BadValue(f"The value has more than {LEVELS_MAX} levels.")
        slots = self._shapes.fields(name)
        special = well_known.SPECIAL.get(name)
        if special is not None:
            given = special.fields(value, where)
        elif isinstance(value, dict):
            given = value
        else:
            raise _unfit(where, "an object")
        by_name = {each: slot for slot in slots.values() for each in (slot.json_name, slot.field.name)}
        oneofs: dict[str, str] = {}
        for each, inner in given.items():
            slot = by_name.get(each)
            if slot is None:
                raise BadValue(f"{where} has no field {each}: it has {', '.join(s.json_name for s in slots.values())}.")
            if inner is None and (slot.is_list or slot.type.name not in (well_known.VALUE, well_known.NULL)):
                continue
            oneof = slot.field.oneof
            if oneof is not None and oneofs.setdefault(oneof, each) != each:
                raise BadValue(f"{where} has both {oneofs[oneof]} and {each}, of which one may be set.")
            self._write_field(slot, inner, out, f"{where}.{each}", level)
        for slot in slots.values():
            if slot.field.label == "required" and not {slot.json_name, slot.field.name} & set(given):
                raise BadValue(f"{where}.{slot.json_name} is missing.")

    def _write_field(self, slot: Slot, value: Json, out: bytearray, where: str, level: int) -> None:
        if slot.field.is_group:
            raise BadValue(f"{where} is a group, which cannot be written here.")
        number = slot.field.number
        if slot.key is not None:
            if not isinstance(value, dict):
                raise _unfit(where, "an object")
            for key, inner in value.items():
                entry = bytearray()
                self._write_one(1, slot.key, _key(slot.key, key), entry, f"{where}.{key}", level)
                self._write_one(2, slot.type, inner, entry, f"{where}.{key}", level)
                write_varint(number << 3 | SIZED, out)
                write_sized(entry, out)
        elif slot.is_list:
            if not isinstance(value, list):
                raise _unfit(where, "a list")
            if not slot.field.is_packed or slot.type.kind in SIZED_KINDS:
                for at, item in enumerate(value):
                    self._write_one(number, slot.type, item, out, f"{where}[{at}]", level)
            elif value:
                packed = bytearray()
                for at, item in enumerate(value):
                    self._write_value(slot.type, item, packed, f"{where}[{at}]", level)
                write_varint(number << 3 | SIZED, out)
                write_sized(packed, out)
        else:
            written = bytearray()
            self._write_value(slot.type, value, written, where, level)
            if slot.field.is_explicit or slot.type.kind == "message" or any(written):  # Defaults are not written.
                write_varint(number << 3 | wire_of(slot.type), out)
                out += written

    def _write_one(self, number: int, type_: Type, value: Json, out: bytearray, where: str, level: int) -> None:
        write_varint(number << 3 | wire_of(type_), out)
        self._write_value(type_, value, out, where, level)

    def _write_value(self, type_: Type, value: Json, out: bytearray, where: str, level: int) -> None:
        kind = type_.kind
        if kind == "message":
            inner = bytearray()
            self.write(type_.name, value, inner, where, level + 1)
            write_sized(inner, out)
        elif kind == "string":
            if not isinstance(value, str):
                raise _unfit(where, "a text")
            write_sized(value.encode(errors="replace"), out)
        elif kind == "bytes":
            write_sized(_bytes(value, where), out)
        elif kind == "bool":
            if not isinstance(value, bool):
                raise _unfit(where, "true or false")
            out.append(value)
        elif kind in ("float", "double"):
            out += _packed_float(kind, value, where)
        else:
            number = self._enum_number(type_, value, where) if kind == "enum" else _integer(kind, value, where)
            if kind in FIXED:
                out += FIXED[kind].pack(number)
            elif kind in ("sint32", "sint64"):
                write_varint(number << 1 if number >= 0 else (-number << 1) - 1, out)
            else:
                write_varint(number & (1 << 64) - 1, out)

    def _enum_number(self, type_: Type, value: Json, where: str) -> int:
        names = self._shapes.enums[type_.name]
        if isinstance(value, str) and value in names:
            return names[value]
        if type_.name == well_known.NULL and value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool):
            return _integer("enum", value, where)
        raise _unfit(where, f"one of {', '.join(names)}")


def _packed_float(kind: str, value: Json, where: str) -> bytes:
    if isinstance(value, str) and value in _WORDS:
        value = _WORDS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unfit(where, "a number")
    try:
        return FIXED[kind].pack(value)
    except (OverflowError, struct.error):
        raise _unfit(where, f"of type {kind}") from None


def _integer(kind: str, value: Json, where: str) -> int:
    """A number, or a text that is one."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    low, high = _RANGES[kind]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _unfit(where, f"a whole number from {low} to {high}")
    return value


def _bytes(value: Json, where: str) -> bytes:
    try:
        if isinstance(value, str):
            text = value.replace("-", "+").replace("_", "/").rstrip("=")
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise _unfit(where, "bytes, as a text in base64")


def _key(type_: Type, key: str) -> Json:
    return key == "true" if type_.kind == "bool" and key in ("true", "false") else key


def _unfit(where: str, wanted: str) -> BadValue:
    return BadValue(f"{where} must be {wanted}.")
