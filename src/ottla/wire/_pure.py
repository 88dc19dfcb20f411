"""In Python what `_native` has compiled: see `produce_codec`, which says what these are for."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from ottla.errors import Malformed
from ottla.wire.primitives import read_unsigned_varint

if TYPE_CHECKING:
    from ottla.wire.produce_codec import Opening

_HEADER = Struct(">hhih").unpack_from
_HEADER_BYTES = 10
_INT32 = Struct(">i").unpack_from
_NO_TAGS = bytes(3)
"""Of the partition, of its topic and of the request."""

_HEAD = Struct(">iii").pack
_HEAD_FLEXIBLE = Struct(">iiBB").pack
_TAIL_3 = Struct(">ihqq4x").pack
_TAIL_5 = Struct(">ihqqq4x").pack
_TAIL_8 = Struct(">ihqqqih4x").pack
_TAIL_9 = Struct(">ihqqqB8x").pack


def find_opening(
    buffer: bytearray, start: int, end: int, size: int, known: list[dict[bytes, Opening]], /
) -> tuple[int, int, Opening, int, int] | None:
    if end - start < _HEADER_BYTES:
        return None
    api_key, version, correlation_id, client_id_size = _HEADER(buffer, start)
    if api_key != 0 or not 3 <= version <= 13:
        return None
    position = start + _HEADER_BYTES + (client_id_size if client_id_size > 0 else 0)
    if version >= 9:
        if position >= end or buffer[position] != 0:
            return None
        position += 1
    first = position + size
    if first + 4 > end:
        return None
    opening = known[version].get(bytes(buffer[position:first]))
    if opening is None:
        return None
    if version >= 9:
        try:
            length, first = read_unsigned_varint(buffer, first)
        except Malformed:
            return None
        last = first + length - 1
        if last <= first or last + 3 != end or buffer[last:end] != _NO_TAGS:
            return None
    else:
        (length,) = _INT32(buffer, first)
        first += 4
        last = first + length
        if length <= 0 or last != end:
            return None
    return version, correlation_id, opening, first, last


def pack_one(
    version: int,
    correlation_id: int,
    head: bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start_offset: int,
    /,
) -> bytes:
    if version >= 9:
        tail = _TAIL_9(index, 0, base_offset, append_time_ms, log_start_offset, 1)
        return b"".join((_HEAD_FLEXIBLE(6 + len(head) + len(tail), correlation_id, 0, 2), head, tail))
    if version >= 8:
        tail = _TAIL_8(index, 0, base_offset, append_time_ms, log_start_offset, 0, -1)
    elif version >= 5:
        tail = _TAIL_5(index, 0, base_offset, append_time_ms, log_start_offset)
    else:
        tail = _TAIL_3(index, 0, base_offset, append_time_ms)
    return b"".join((_HEAD(8 + len(head) + len(tail), correlation_id, 1), head, tail))
