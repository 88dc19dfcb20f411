"""Protobuf's binary encoding, one message at a time: for people who look at a record or write one by hand.

Values are those of Protobuf's JSON encoding: names in lowerCamelCase (the schema's own are understood too), numbers of
64 bits as texts, bytes in base64, fields without a value left out. Google's own types that JSON has a word for are
written so (`protobuf_well_known`).

In a record the message stands behind the indexes that say which of the schema's messages it is, as Confluent's
serializers write them. The bytes come from anybody: nesting is bounded, and no length is believed before the bytes are
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.avro import Json
from ottla.schemas.avro_values import BadValue
from ottla.schemas.protobuf_reading import Reader
from ottla.schemas.protobuf_shapes import LEVELS_MAX, Shapes
from ottla.schemas.protobuf_types import inside
from ottla.schemas.protobuf_wire import read_zigzag, write_varint
from ottla.schemas.protobuf_writing import Writer


class Schema:
    """A Protobuf schema with all that it refers to. `references` are the texts of what it imports, but for Google's own
    types. Raises `InvalidSchema`."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        shapes = Shapes(text, references)
        self._file = shapes.file
        self._reader, self._writer = Reader(shapes), Writer(shapes)
        self._roots = [name for name in self._file.messages if "." not in name]

    def decode(self, data: bytes) -> Json:
        """What a record holds behind the id of its schema. Raises `BadValue`."""
        indexes, at = _read_indexes(data)
        names = self._roots
        name = ""
        for index in indexes:
            if not 0 <= index < len(names):
                raise BadValue(f"The record names message {index} of {len(names)}.")
            name = names[index]
            names = self._file.messages[name].inner if name in self._file.messages else []
        if name not in self._file.messages:
            raise BadValue("The record names no message of its schema.")
        return self._reader.read(inside(self._file.package, name), data[at:], 0)

    def encode(self, value: Json, message: str | None = None) -> bytes:
        """The message as a record holds it. `message` is its name, with or without the package; the first if not
        given. Raises `BadValue`."""
        name = self._root(message)
        indexes: list[int] = []
        path = name.split(".")
        names = self._roots
        for end in range(1, len(path) + 1):
            outer = ".".join(path[:end])
            indexes.append(names.index(outer))
            names = self._file.messages[outer].inner
        out = bytearray(b"\0")
        if indexes != [0]:
            out = bytearray()
            for number in (len(indexes), *indexes):
                write_varint(number << 1, out)
        self._writer.write(inside(self._file.package, name), value, out, "value", 0)
        return bytes(out)

    def _root(self, wanted: str | None) -> str:
        if wanted is None:
            if not self._roots:
                raise BadValue("The schema defines no message.")
            return self._roots[0]
        name = wanted.removeprefix(f"{self._file.package}." if self._file.package else "")
        if name not in self._file.messages:
            raise BadValue(f"The schema has no message {wanted}: it has {', '.join(self._file.messages)}.")
        return name


def _read_indexes(data: bytes) -> tuple[list[int], int]:
    """Which of a file's messages it is: the number of one, and of one inside of that, and so on; then what follows."""
    count, at = read_zigzag(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= LEVELS_MAX:
        raise BadValue(f"The record names a message by {count} indexes.")
    indexes = []
    for _ in range(count):
        index, at = read_zigzag(data, at)
        indexes.append(index)
    return indexes, at
