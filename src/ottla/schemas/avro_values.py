"""Avro's binary encoding, one value at a time: for people who look at a record or write one by hand.

Values are those of JSON, in Avro's JSON encoding but for unions, which show the value without the name of its branch.
Bytes and fixed are texts whose characters are the bytes (ISO 8859-1). Many records at once are Spark's business
(`ottla.spark.avro`), which makes columns of them.

Bytes and schemas come from anybody: nesting is bounded, so is the number of values, and no length is believed before
the bytes are there.
"""

from __future__ import annotations

import math
import struct

from ottla.schemas.avro import DEPTH_MAX, Array, Enum, Fixed, Json, Map, Primitive, Record, Schema, Union

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_VARINT_BYTES_MAX = 10
VALUES_MAX = 1_000_000
"""Values within one another. Those without bytes of their own, as nulls are, could be claimed without end; and a schema
of a few lines, each of whose records has two of the next, could make any number of them of nothing."""


class BadValue(ValueError):
    """The bytes are not of the schema, or the value is not; the message is one sentence that says where."""


class _TooMuch(BadValue):
    """No branch of any union makes it less."""


def decode(schema: Schema, data: bytes) -> Json:
    """The value in `data`, all of it. Raises `BadValue`."""
    reader = _Reader(data)
    value = reader.read(schema, 0)
    if reader.at != len(data):
        raise BadValue(f"{len(data) - reader.at} bytes are left behind the value.")
    return value


def encode(schema: Schema, value: Json) -> bytes:
    """The value in Avro's binary encoding; fields that are missing get their default. Raises `BadValue`."""
    writer = _Writer()
    writer.write(schema, value, "value", 0)
    return bytes(writer.out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._values = 0
        self.at = 0

    def read(self, schema: Schema, depth: int) -> Json:
        self._values += 1
        _check_bounds(self._values, depth)
        match schema:
            case Primitive():
                return self._primitive(schema.kind)
            case Record():
                return {field.name: self.read(field.type, depth + 1) for field in schema.fields}
            case Enum():
                return schema.symbols[self._index(len(schema.symbols))]
            case Fixed():
                return self._take(schema.size).decode("latin-1")
            case Union():
                return self.read(schema.branches[self._index(len(schema.branches))], depth + 1)
            case Array():
                items: list[Json] = []
                while count := self._block():
                    items += [self.read(schema.items, depth + 1) for _ in range(count)]
                return items
            case Map():
                entries: dict[str, Json] = {}
                while count := self._block():
                    for _ in range(count):
                        key = self._text()
                        entries[key] = self.read(schema.values, depth + 1)
                return entries

    def _primitive(self, kind: str) -> Json:
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return self._long()
            case "float":
                return _number(_FLOAT.unpack(self._take(4))[0])
            case "double":
                return _number(_DOUBLE.unpack(self._take(8))[0])
            case "bytes":
                return self._take(self._long()).decode("latin-1")
            case _:
                return self._text()

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError:
            raise BadValue("A string is not text in UTF-8.") from None

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise BadValue("The bytes end before the value does.")
        self.at += size
        return self._data[self.at - size : self.at]

    def _long(self) -> int:
        value = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
        raise BadValue("A number has too many bytes.")

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise BadValue(f"Number {index} of {count} choices is named.")
        return index

    def _block(self) -> int:
        count = self._long()
        if count < 0:
            self._long()  # The block's size in bytes, for those who skip it.
            count = -count
        _check_bounds(self._values + count, 0)
        return count


def _check_bounds(values: int, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _TooMuch(f"The value has more than {DEPTH_MAX} levels.")
    if values > VALUES_MAX:
        raise _TooMuch(f"The value has more than {VALUES_MAX} values in it.")


def _number(value: float) -> Json:
    """JSON has no word for these."""
    return value if math.isfinite(value) else str(value)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self._values = 0

    def write(self, schema: Schema, value: Json, where: str, depth: int) -> None:
        self._values += 1
        _check_bounds(self._values, depth)
        match schema:
            case Primitive():
                _write_primitive(schema.kind, value, self.out, where)
            case Record():
                self._record(schema, value, where, depth)
            case Enum():
                if value not in schema.symbols:
                    raise _unfit(where, f"one of {', '.join(schema.symbols)}")
                _write_long(schema.symbols.index(str(value)), self.out)
            case Fixed():
                data = _bytes(value, where)
                if len(data) != schema.size:
                    raise _unfit(where, f"{schema.size} bytes")
                self.out += data
            case Union():
                self._union(schema, value, where, depth)
            case Array():
                if not isinstance(value, list):
                    raise _unfit(where, "a list")
                if value:
                    _write_long(len(value), self.out)
                for at, item in enumerate(value):
                    self.write(schema.items, item, f"{where}[{at}]", depth + 1)
                self.out.append(0)
            case Map():
                if not isinstance(value, dict):
                    raise _unfit(where, "an object")
                if value:
                    _write_long(len(value), self.out)
                for key, item in value.items():
                    _write_bytes(key.encode(errors="replace"), self.out)
                    self.write(schema.values, item, f"{where}.{key}", depth + 1)
                self.out.append(0)

    def _record(self, schema: Record, value: Json, where: str, depth: int) -> None:
        if not isinstance(value, dict):
            raise _unfit(where, "an object")
        unknown = value.keys() - {field.name for field in schema.fields}
        if unknown:
            raise BadValue(f"{where} has no field {min(unknown)!r} in the schema.")
        for field in schema.fields:
            if field.name not in value and not field.has_default:
                raise BadValue(f"{where}.{field.name} is missing.")
            self.write(field.type, value.get(field.name, field.default), f"{where}.{field.name}", depth + 1)

    def _union(self, schema: Union, value: Json, where: str, depth: int) -> None:
        """The first branch that takes the value."""
        start = len(self.out)
        for index, branch in enumerate(schema.branches):
            _write_long(index, self.out)
            try:
                self.write(branch, value, where, depth + 1)
            except _TooMuch:
                raise
            except BadValue:
                del self.out[start:]
            else:
                return
        raise BadValue(f"{where} fits no branch of its union.")


def _write_primitive(kind: str, value: Json, out: bytearray, where: str) -> None:
    match kind:
        case "null" if value is None:
            pass
        case "boolean" if isinstance(value, bool):
            out.append(value)
        case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            bits = 31 if kind == "int" else 63
            if not -(1 << bits) <= value < 1 << bits:
                raise _unfit(where, f"of type {kind}")
            _write_long(value, out)
        case "float" | "double" if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                out += (_FLOAT if kind == "float" else _DOUBLE).pack(value)
            except (OverflowError, struct.error):
                raise _unfit(where, f"of type {kind}") from None
        case "bytes":
            _write_bytes(_bytes(value, where), out)
        case "string" if isinstance(value, str):
            _write_bytes(value.encode(errors="replace"), out)
        case _:
            raise _unfit(where, f"of type {kind}")


def _bytes(value: Json, where: str) -> bytes:
    if not isinstance(value, str):
        raise _unfit(where, "bytes, as a text of characters up to U+00FF")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _unfit(where, "bytes, as a text of characters up to U+00FF") from None


def _write_bytes(data: bytes, out: bytearray) -> None:
    _write_long(len(data), out)
    out += data


def _write_long(value: int, out: bytearray) -> None:
    value = value << 1 ^ value >> 63
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _unfit(where: str, wanted: str) -> BadValue:
    return BadValue(f"{where} must be {wanted}.")
