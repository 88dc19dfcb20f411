"""Protobuf's bytes without their meaning: fields by number, each a number, eight or four bytes, or bytes of a length.

The bytes come from anybody: what does not add up is `BadValue`, and no length is believed before the bytes are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.schemas.avro_values import BadValue

VARINT, EIGHT_BYTES, SIZED, GROUP, GROUP_END, FOUR_BYTES = range(6)
GROUPS_MAX = 100


def parts(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message: number, wire type, and what is there; of a group, the fields in it."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == GROUP:
            end, after = _group_end(data, at, number)
            yield number, wire, data[at:end]
            at = after
        else:
            raw, at = read_raw(data, at, wire)
            yield number, wire, raw


def read_raw(data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
    """What is there, and where it ends."""
    if wire == VARINT:
        return read_varint(data, at)
    if wire == SIZED:
        size, at = read_varint(data, at)
    elif wire in (EIGHT_BYTES, FOUR_BYTES):
        size = 8 if wire == EIGHT_BYTES else 4
    else:
        raise BadValue("The bytes are no Protobuf message.")
    if size > len(data) - at:
        raise BadValue("The bytes end before the value does.")
    return data[at : at + size], at + size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise BadValue("The bytes end before the value does.")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise BadValue("A number has too many bytes.")


def read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def write_varint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_sized(data: bytes | bytearray, out: bytearray) -> None:
    write_varint(len(data), out)
    out += data


def signed(value: int, bits: int) -> int:
    """The number whose last bits, in two's complement, these are."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _group_end(data: bytes, at: int, number: int) -> tuple[int, int]:
    """Where the group that begins at `at` ends, and where what follows it begins."""
    open_groups = [number]
    while open_groups:
        began = at
        key, at = read_varint(data, at)
        inner, wire = key >> 3, key & 7
        if wire == GROUP:
            open_groups.append(inner)
            if len(open_groups) > GROUPS_MAX:
                raise BadValue(f"The value has more than {GROUPS_MAX} levels.")
        elif wire == GROUP_END:
            if open_groups.pop() != inner:
                raise BadValue("A group ends that did not begin.")
        else:
            _, at = read_raw(data, at, wire)
    return began, at
