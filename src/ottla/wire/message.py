"""The base of every generated message: equality, a readable form, and the doors to the codecs.

A message class stands for all versions of one Kafka message. Its codecs are straight-line functions for one version,
compiled from the class's `SCHEMA` when that version is first used (`wire.encoding`, `wire.decoding`) and kept on the
class. Invariant: `decode` and `read` raise `Malformed` and nothing else for bytes, however broken; they reserve nothing
from a count that the bytes left could not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

NO_LIMIT = 1 << 62

UNKNOWN_TAGS = "unknown_tagged_fields"
"""The slot that keeps the tagged fields (KIP-482) of a newer peer, so that they are written back as they came."""


class Message:
    """A Kafka message or one of the structs inside it. Subclasses are generated: see `tools/codegen`."""

    __slots__: tuple[str, ...] = (UNKNOWN_TAGS,)

    SCHEMA: ClassVar[str] = ""
    """One field a line: name, type, versions, then what else holds of it. Read by `wire.schema`."""
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    """The first version with compact lengths and tagged fields (KIP-482), if there is one."""
    API_KEY: ClassVar[int | None] = None

    unknown_tagged_fields: tuple[tuple[int, bytes], ...]

    _encoders: ClassVar[dict[int, Callable[[Message], list[bytes | memoryview]]]] = {}
    _decoders: ClassVar[dict[int, Callable[[bytes | memoryview, int, int, int], tuple[Message, int]]]] = {}

    def __init_subclass__(cls) -> None:
        cls._encoders = {}
        cls._decoders = {}

    def encode(self, version: int) -> bytes:
        """The bytes of this message in `version`.

        As in Kafka, a field that the version lacks is dropped if it is ignorable or at its default, and is otherwise
        refused: `KafkaError` with UNSUPPORTED_VERSION, as for a version that the message does not have. A number
        out of its type's range or a string that is too long is a `ValueError`.
        """
        return b"".join(self.pieces(version))

    def pieces(self, version: int) -> list[bytes | memoryview]:
        """What `encode` joins, in order: records are the very buffers that the message holds, for those who can send
        them from there."""
        try:
            encoder = self._encoders[version]
        except KeyError:
            from ottla.wire.encoding import compile_encoder

            encoder = compile_encoder(type(self), version)
        return encoder(self)

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int) -> Self:
        """The message that fills `data`; bytes left over are malformed, as in Kafka's stored records."""
        message, position = cls.read(data, 0, version)
        if position != len(data):
            from ottla.wire.decoding import malformed

            raise malformed(f"{cls.__name__} v{version} leaves {len(data) - position} bytes over")
        return message

    @classmethod
    def read(
        cls, data: bytes | memoryview, position: int, version: int, elements_max: int = NO_LIMIT
    ) -> tuple[Self, int]:
        """The message at `position`, and where it ends. What follows is not looked at, as Kafka does in requests.

        `elements_max` bounds the elements of all its arrays and its tagged fields together: each may become an object
        a hundred times its size on the wire.
        """
        try:
            decoder = cls._decoders[version]
        except KeyError:
            from ottla.wire.decoding import compile_decoder

            decoder = compile_decoder(cls, version)
        return decoder(data, position, len(data), elements_max)  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = (*self.__slots__, UNKNOWN_TAGS)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        names = (*self.__slots__, UNKNOWN_TAGS) if self.unknown_tagged_fields else self.__slots__
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
