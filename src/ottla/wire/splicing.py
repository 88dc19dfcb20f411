"""A message put together from elements that were encoded one by one, each when it was made.

An answer may tell of so much that to encode it at once would keep the loop, and that as objects it would take many
times its size. Invariant: the bytes are those of the message with all elements in its last array.
"""

from __future__ import annotations

from struct import pack

from ottla.wire.message import Message
from ottla.wire.primitives import unsigned_varint
from ottla.wire.schema import fields_of, is_flexible

_NO_ELEMENTS_COMPACT = b"\x01"
_NO_ELEMENTS = bytes(4)
_NO_TAGS = b"\x00"


class Spliced(Message):
    """Stands for `around`, which has no elements of its own in the array that is its last field."""

    __slots__ = ("_around", "_elements", "_version")

    def __init__(self, around: Message, version: int) -> None:
        last = [field for field in fields_of(type(around)) if version in field.versions and not field.tagged][-1]
        assert last.is_array, "only the elements of the last field can follow"
        assert last.struct is not None
        self._around = around
        self._version = version
        self._elements: list[bytes] = []
        self.unknown_tagged_fields = ()

    def add(self, element: Message) -> None:
        self._elements.append(element.encode(self._version))

    def pieces(self, version: int) -> list[bytes | memoryview]:
        assert version == self._version, "the elements are of another version"
        before = self._around.encode(version)
        count = len(self._elements)
        if is_flexible(type(self._around), version):
            empty, after, counted = _NO_ELEMENTS_COMPACT + _NO_TAGS, _NO_TAGS, unsigned_varint(count + 1)
        else:
            empty, after, counted = _NO_ELEMENTS, b"", pack(">i", count)
        assert before.endswith(empty)
        return [before.removesuffix(empty), counted, *self._elements, after]
