"""Varints, compact lengths and zigzag: the small change of the protocol, with its bounds.

Used by the codecs that are written by hand (produce, fetch, records) and by the generated ones for what is rare. Every
reader takes a buffer and a position, returns the value and the position after it, and raises `Malformed` when the bytes
end early or a varint runs past its longest legal form: five bytes, or ten for a long one.
"""

from __future__ import annotations

from struct import Struct

from ottla.errors import Malformed

Buffer = bytes | bytearray | memoryview

MAX_STRING_BYTES = 0x7FFF
"""Kafka bounds strings by the old two-byte length even where a compact length could say more."""

MAX_SKIPPED_TAGS = 32
"""No section of tagged fields has a third as many today; without a limit, one could keep its reader busy for long."""

SMALL_VARINTS = tuple(bytes((value,)) for value in range(128))
"""The unsigned varints of one byte, ready made: most lengths are among them."""

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


def unsigned_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the high bit says that more follow."""
    if value < 128:
        return SMALL_VARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A signed 32-bit number, zigzag coded so that small negative numbers stay short."""
    return unsigned_varint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """A signed 64-bit number, zigzag coded."""
    return unsigned_varint((value << 1) ^ (value >> 63))


def unsigned_varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _read(buffer: Buffer, position: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    try:
        for index in range(bytes_max):
            byte = buffer[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 128:
                return value, position + index + 1
    except IndexError:
        raise Malformed("the bytes end inside a varint") from None
    raise Malformed(f"a varint is longer than {bytes_max} bytes")


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A number below 2**32; lengths and counts are bounded further by the bytes left."""
    value, position = _read(buffer, position, 5)
    return value & 0xFFFFFFFF, position


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    value, position = _read(buffer, position, 5)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    value, position = _read(buffer, position, 10)
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def compact_string(text: str | None) -> bytes:
    """Length plus one as an unsigned varint, then UTF-8; zero is null."""
    if text is None:
        return b"\x00"
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes is too long for the protocol")
    return unsigned_varint(len(raw) + 1) + raw


def string(text: str | None) -> bytes:
    """Two bytes of length, then UTF-8; -1 is null."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes is too long for the protocol")
    return len(raw).to_bytes(2, "big") + raw


def _text(buffer: Buffer, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size > MAX_STRING_BYTES or end > len(buffer):
        raise Malformed(f"a string of {size} bytes where {len(buffer) - position} are left")
    try:
        return str(buffer[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def read_compact_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    size, position = read_unsigned_varint(buffer, position)
    return _text(buffer, position, size - 1) if size else (None, position)


def read_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    if len(buffer) - position < 2:
        raise Malformed("the bytes end inside a string's length")
    (size,) = _INT16(buffer, position)
    return _text(buffer, position + 2, size) if size >= 0 else (None, position + 2)


def read_array_count(buffer: Buffer, position: int, element_size_least: int) -> tuple[int, int]:
    """A four-byte count of elements; -1 for null. No more elements than the bytes left could hold."""
    if len(buffer) - position < 4:
        raise Malformed("the bytes end inside a count")
    (count,) = _INT32(buffer, position)
    return _checked(count, len(buffer) - position - 4, element_size_least), position + 4


def read_compact_array_count(buffer: Buffer, position: int, element_size_least: int) -> tuple[int, int]:
    """A compact count of elements; -1 for null. No more elements than the bytes left could hold."""
    count, position = read_unsigned_varint(buffer, position)
    return _checked(count - 1, len(buffer) - position, element_size_least), position


def _checked(count: int, left: int, element_size_least: int) -> int:
    if count * element_size_least > left:
        raise Malformed(f"a count of {count} where {left} bytes are left")
    return max(count, -1)


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position after a section of tagged fields (KIP-482), none of which the caller wants."""
    count, position = read_unsigned_varint(buffer, position)
    if count * 2 > len(buffer) - position or count > MAX_SKIPPED_TAGS:
        raise Malformed(f"{count} tagged fields where {len(buffer) - position} bytes are left")
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if position > len(buffer):
            raise Malformed("a tagged field reaches past the end")
    return position
