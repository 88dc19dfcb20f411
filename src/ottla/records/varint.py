"""Zig-zag varints, as records use them: little-endian groups of seven bits, small magnitudes in one byte.

Readers return the value and the position after it, and raise `Malformed` at the end of the buffer or past five bytes
(ten for a varlong). The paths that see every produced byte do this inline; these serve builders, tools and replay.
"""

from __future__ import annotations

from ottla.errors import Malformed

_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def encode_varint(value: int) -> bytes:
    """`value`, which must fit 64 bits with a sign, as varint or varlong: the two differ only in what readers accept."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 0x80:
        return _ONE_BYTE[raw]
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    groups = bytearray()
    while raw >= 0x80:
        groups.append(raw & 0x7F | 0x80)
        raw >>= 7
    groups.append(raw)
    return bytes(groups)


def varint_size(value: int) -> int:
    raw = value << 1 if value >= 0 else ~(value << 1)
    return (raw.bit_length() + 6) // 7 or 1


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """A 32-bit value. As in Kafka, bits of a fifth byte that do not fit are dropped."""
    if position + 1 < len(buffer):
        raw = buffer[position]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        second = buffer[position + 1]
        if second < 0x80:
            raw = raw & 0x7F | second << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
    raw, position = _read_groups(buffer, position, 5)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    raw, position = _read_groups(buffer, position, 10)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def _read_groups(buffer: bytes | memoryview, position: int, most: int) -> tuple[int, int]:
    raw = shift = 0
    try:
        for at in range(position, position + most):
            byte = buffer[at]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return raw, at + 1
            shift += 7
    except IndexError:
        raise Malformed("a varint runs past the end") from None
    raise Malformed(f"a varint is longer than {most} bytes")
