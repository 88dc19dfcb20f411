"""Messages out of Protobuf's bytes, as Protobuf's JSON: see `protobuf_values`."""

from __future__ import annotations

import base64
import math
import struct

from ottla.schemas import protobuf_well_known as well_known
from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf_shapes import FIXED, LEVELS_MAX, SIZED_KINDS, Shapes, Slot, Type, wire_of
from ottla.schemas.protobuf_wire import SIZED, parts, read_raw, signed


class Reader:
    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes

    def read(self, name: str, data: bytes, level: int) -> Json:
        """The message of the full name `name` in `data`, `level` messages deep. Raises `BadValue`."""
        if level > LEVELS_MAX:
            raise BadValue(f"The value has more than {LEVELS_MAX} levels.")
        slots = self._shapes.fields(name)
        values: dict[int, Json] = {}
        merged: dict[int, bytes] = {}
        for number, wire, raw in parts(data):
            slot = slots.get(number)
            if slot is None:
                continue  # Of a newer schema.
            if slot.field.oneof is not None:
                for other in slots.values():
                    if other.field.oneof == slot.field.oneof and other is not slot:
                        values.pop(other.field.number, None)
                        merged.pop(other.field.number, None)
            if slot.key is not None:
                entries = values.setdefault(number, {})
                assert isinstance(entries, dict)
                key, value = self._read_entry(slot, raw, level)
                entries[key] = value
            elif slot.is_list:
                items = values.setdefault(number, [])
                assert isinstance(items, list)
                items += self._read_items(slot, wire, raw, level)
            elif slot.type.kind == "message":
                merged[number] = merged.get(number, b"") + _sized(raw)
                values[number] = None
            else:
                values[number] = self._read_one(slot.type, wire, raw, level)
        for number, whole in merged.items():
            values[number] = self.read(slots[number].type.name, whole, level + 1)
        special = well_known.SPECIAL.get(name)
        if special is not None:
            return special.shown({slots[number].field.name: value for number, value in values.items()})
        return {
            slot.json_name: values[number]
            for number, slot in slots.items()
            if number in values and (slot.field.is_explicit or not self._is_default(slot, values[number]))
        }

    def _is_default(self, slot: Slot, value: Json) -> bool:
        match slot.type.kind:
            case _ if slot.is_list or slot.type.kind == "message":
                return False
            case "string" | "bytes":
                return value == ""
            case "enum":
                return self._shapes.enums[slot.type.name].get(str(value), value) == 0
            case _:
                return value in (0, "0") and not (isinstance(value, float) and math.copysign(1, value) < 0)

    def _read_items(self, slot: Slot, wire: int, raw: int | bytes, level: int) -> list[Json]:
        if wire != SIZED or slot.type.kind in SIZED_KINDS:
            return [self._read_one(slot.type, wire, raw, level)]
        data, at, items = _sized(raw), 0, list[Json]()
        packed = wire_of(slot.type)
        while at < len(data):
            one, at = read_raw(data, at, packed)
            items.append(self._read_one(slot.type, packed, one, level))
        return items

    def _read_entry(self, slot: Slot, raw: int | bytes, level: int) -> tuple[str, Json]:
        assert slot.key is not None
        key: Json = self._default(slot.key)
        value: Json = self._default(slot.type)
        for number, wire, part in parts(_sized(raw)):
            if number == 1:
                key = self._read_one(slot.key, wire, part, level)
            elif number == 2:
                value = self._read_one(slot.type, wire, part, level + 1)
        return ("true" if key else "false") if isinstance(key, bool) else str(key), value

    def _default(self, type_: Type) -> Json:
        match type_.kind:
            case "message":
                return self.read(type_.name, b"", 0)
            case "enum":
                return next((name for name, number in self._shapes.enums[type_.name].items() if number == 0), 0)
            case "string" | "bytes":
                return ""
            case _:
                return self._read_one(type_, wire_of(type_), 0 if type_.kind not in FIXED else bytes(8), 0)

    def _read_one(self, type_: Type, wire: int, raw: int | bytes, level: int) -> Json:
        kind = type_.kind
        if kind == "message":
            return self.read(type_.name, _sized(raw), level + 1)
        if wire != wire_of(type_):
            raise BadValue(f"A field of type {kind} is written as another.")
        if isinstance(raw, int):
            return self._number(type_, raw)
        if kind in FIXED:
            (number,) = FIXED[kind].unpack_from(raw)
            if isinstance(number, float):
                return _shown_float(number, single=kind == "float")
            return str(number) if kind.endswith("64") else number
        if kind == "bytes":
            return base64.b64encode(raw).decode()
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise BadValue("A string is not text in UTF-8.") from None

    def _number(self, type_: Type, raw: int) -> Json:
        match type_.kind:
            case "bool":
                return raw != 0
            case "enum":
                number = signed(raw, 32)
                if type_.name == well_known.NULL:
                    return None
                return next((name for name, each in self._shapes.enums[type_.name].items() if each == number), number)
            case "int32":
                return signed(raw, 32)
            case "uint32":
                return raw & 0xFFFFFFFF
            case "sint32":
                return (raw & 0xFFFFFFFF) >> 1 ^ -(raw & 1)
            case "int64":
                return str(signed(raw, 64))
            case "sint64":
                return str(raw >> 1 ^ -(raw & 1))
            case _:
                return str(raw)


def _sized(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise BadValue("A number is written where a message should be.")
    return raw


def _shown_float(value: float, *, single: bool) -> Json:
    """JSON has no word for some; of four bytes no more digits are shown than they hold."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not single:
        return value
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value
