"""Every length and count of a request, found by walking its bytes with its schema, so that each can be made to lie.

A second reader of the protocol, written from the schema alone and for tests alone: slow, and independent of the
compiled decoders that it is used against.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.wire.message import Message
from ottla.wire.primitives import read_unsigned_varint, unsigned_varint
from ottla.wire.schema import FORMATS, SIZES, Field, fields_of, is_flexible


class Length(NamedTuple):
    """A length or a count within a message."""

    what: str
    position: int
    size: int
    """Bytes that it takes."""
    value: int
    form: str
    """"h" and "i" are signed numbers of two and four bytes; "v" is an unsigned varint of the value plus one, and "u"
    one of the value itself."""


class Walk:
    """One walk over a message: `lengths` are what it met."""

    def __init__(self, owner: type[Message], version: int, data: bytes) -> None:
        self.data = data
        self.version = version
        self.position = 0
        self.lengths: list[Length] = []
        self._struct(owner)

    def _struct(self, owner: type[Message]) -> None:
        flexible = is_flexible(owner, self.version)
        tagged = {}
        for field in fields_of(owner):
            if self.version not in field.versions:
                continue
            if self.version in field.tagged:
                tagged[field.tag] = field
            else:
                self._field(field, flexible and not field.inflexible, in_tag=False)
        if flexible:
            count = self._length("tagged fields", "u")
            for _ in range(count):
                tag, self.position = read_unsigned_varint(self.data, self.position)
                size = self._length(f"tag {tag}", "u")
                end = self.position + size
                if tag in tagged:
                    self._field(tagged[tag], True, in_tag=True)
                self.position = end

    def _field(self, field: Field, flexible: bool, *, in_tag: bool) -> None:
        if field.is_array:
            count = self._length(field.name, "v" if flexible else "i")
            for _ in range(max(count, 0)):
                self._element(field, flexible)
        elif field.struct is not None:
            if self.version in field.nullable:
                present = self.data[self.position]
                self.position += 1
                if (present == 0) if in_tag else (present > 127):
                    return
            self._struct(field.struct)
        else:
            self._element(field, flexible)

    def _element(self, field: Field, flexible: bool) -> None:
        if field.struct is not None:
            self._struct(field.struct)
        elif field.kind in FORMATS:
            self.position += SIZES[FORMATS[field.kind]]
        else:
            form = "v" if flexible else "h" if field.kind == "string" else "i"
            size = self._length(field.name, form)
            self.position += max(size, 0)

    def _length(self, what: str, form: str) -> int:
        start = self.position
        if form in "uv":
            value, self.position = read_unsigned_varint(self.data, start)
            value -= form == "v"
        else:
            (value,) = struct.unpack_from(">" + form, self.data, start)
            self.position += struct.calcsize(form)
        self.lengths.append(Length(what, start, self.position - start, value, form))
        return value


LIES = {
    "h": (-1, -2, -0x8000, 0x7FFF),
    "i": (-1, -2, -0x80000000, 0x7FFFFFFF, 0x10000000),
    "u": (1, 0x7FFFFFFF, 0xFFFFFFFF),
    "v": (-1, 0x7FFFFFFF, 0xFFFFFFFE, 0x10000000),
}


def lies(data: bytes, length: Length) -> Iterator[tuple[int, bytes]]:
    """The message with that length one more, one less, null, negative, and beyond all measure."""
    for value in dict.fromkeys((length.value + 1, length.value - 1, *LIES[length.form])):
        if value == length.value or (length.form in "uv" and value < -(length.form == "v")):
            continue
        if length.form in "uv":
            told = unsigned_varint(value + (length.form == "v"))
        else:
            told = struct.pack(">" + length.form, max(value, -0x8000 if length.form == "h" else value))
        yield value, data[: length.position] + told + data[length.position + length.size :]
    if length.form in "uv":
        yield -1, data[: length.position] + b"\xff" * 10 + data[length.position + length.size :]
