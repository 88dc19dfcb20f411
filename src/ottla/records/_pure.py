"""The work on every byte of a batch, in Python: what `_native` does where there is no compiler.

Each function has a twin of the same name and behaviour in `_native.c`; the tests hold one against the other. The walk
over the records, where Python must be clever to be quick, has a module of its own, and so has what numpy does.
"""

from __future__ import annotations

import struct
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

from ottla.errors import Malformed
from ottla.records._walk import walk
from ottla.records.varint import encode_varint, read_varint, read_varlong

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.records.batch import BatchHeader, Buffer


_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_TRANSACTIONAL_FLAG = 0x10


def _load_crc() -> Callable[[Buffer, int], int]:
    """The `crc32c` package's function, without its package: that one reads its own metadata, some 60 ms at start."""
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            function: Callable[[Buffer, int], int] = module.crc32c
            return function
    from crc32c import crc32c as plain

    return plain


_crc32c = _load_crc()


def crc32c(buffer: Buffer, start: int, end: int) -> int:
    """CRC-32C of `buffer[start:end]`."""
    view = memoryview(buffer)
    if start < 0 or end < start or end > len(view):
        raise ValueError("the range lies outside the buffer")
    return _crc32c(view[start:end], 0)


def crc_matches(buffer: Buffer, position: int, size: int) -> bool:
    """Does the batch of `size` bytes at `position` lie in `buffer` and match its CRC?"""
    view = memoryview(buffer)
    end = position + size
    if position < 0 or size < _HEADER_SIZE or end > len(view):
        return False
    stored: int = _CRC.unpack_from(view, position + _CRC_POSITION)[0]
    return _crc32c(view[position + _ATTRIBUTES_POSITION : end], 0) == stored


def parse_header(kind: type[BatchHeader], buffer: Buffer, position: int) -> BatchHeader:
    """The thirteen fields at `position`; `ValueError` when fewer than 61 bytes are there."""
    if position < 0:
        raise ValueError("too few bytes for a batch header")
    try:
        return kind._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise ValueError("too few bytes for a batch header") from None


def check(kind: type[BatchHeader], batch: Buffer, oldest: int, newest: int, need_keys: bool) -> BatchHeader | None:
    """The header of a produced batch that can be appended as it is, or None where something needs a closer look."""
    view = memoryview(batch)
    if len(view) < _HEADER_SIZE:
        return None
    header = kind._make(_HEADER.unpack_from(view, 0))
    count = header.record_count
    if (
        header.magic != 2
        or header.batch_length + _LOG_OVERHEAD != len(view)
        or header.base_offset != 0
        or header.attributes & ~_TRANSACTIONAL_FLAG
        or count <= 0
        or header.last_offset_delta != count - 1
        or (header.producer_id >= 0 and header.base_sequence < 0)
        or _crc32c(view[_ATTRIBUTES_POSITION:], 0) != header.crc
    ):
        return None
    flaw, _, max_timestamp, _, offences = walk(
        view[_HEADER_SIZE:], count, header.base_timestamp, None, oldest, newest, need_keys
    )
    if flaw or offences or max_timestamp != header.max_timestamp:
        return None
    return header


def pack_records(records: list[tuple[bytes, bytes | None]], first_delta: int, timestamp_delta: int) -> bytes:
    """The bytes of records of one time, each a key and a value, at successive offsets."""
    packed = bytearray()
    begin = b"\0" + encode_varint(timestamp_delta)
    for offset_delta, (key, value) in enumerate(records, first_delta):
        record = b"".join(
            (
                begin,
                encode_varint(offset_delta),
                encode_varint(len(key)),
                key,
                encode_varint(-1 if value is None else len(value)),
                value or b"",
                b"\0",
            )
        )
        packed += encode_varint(len(record))
        packed += record
    return bytes(packed)


BytesColumn = tuple["Buffer", "Buffer", "Buffer | None"]
"""Byte strings as Arrow lays them out: offsets (one more than there are rows, 32 bits each), their bytes, and, unless
all rows have one, a byte a row that is 0 where there is none."""

HeaderColumns = tuple["Buffer", BytesColumn, BytesColumn]
"""Where each row's headers begin among all (as the offsets of a column), their names and their contents."""


def pack_columns(
    rows: Buffer,
    first: int,
    bytes_max: int,
    timestamps: Buffer,
    key: BytesColumn | None,
    value: BytesColumn | None,
    headers: HeaderColumns | None,
) -> tuple[bytearray, int, int, int]:
    """Records of the rows from the `first` on, at most `bytes_max` of them but at least one: their bytes behind room
    for a batch's header, their number, the first and the latest timestamp. `rows` and `timestamps` are 64 bits each."""
    chosen = memoryview(rows).cast("B").cast("q")
    times = memoryview(timestamps).cast("B").cast("q")
    packed = bytearray(_HEADER_SIZE)
    if not 0 <= first < len(chosen):
        raise ValueError("the columns do not hold that row")
    latest = base = None
    number = 0
    for row in chosen[first:]:
        if not 0 <= row < len(times):
            raise ValueError("the columns do not hold that row")
        timestamp = times[row]
        if base is None or latest is None:
            base = latest = timestamp
        parts = [b"\0", encode_varint(timestamp - base), encode_varint(number)]
        parts += (_packed(_column_at(key, row)), _packed(_column_at(value, row)), _packed_headers(headers, row))
        record = b"".join(parts)
        size = encode_varint(len(record))
        if number and len(packed) - _HEADER_SIZE + len(size) + len(record) > bytes_max:
            break
        packed += size
        packed += record
        latest = max(latest, timestamp)
        number += 1
    assert base is not None
    assert latest is not None
    return packed, number, base, latest


def _packed(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


def _packed_headers(headers: HeaderColumns | None, row: int) -> bytes:
    if headers is None:
        return b"\0"
    lists = memoryview(headers[0]).cast("B").cast("i")
    if row >= len(lists) - 1 or not 0 <= lists[row] <= lists[row + 1]:
        raise ValueError("the columns do not hold that row")
    parts = [encode_varint(lists[row + 1] - lists[row])]
    for index in range(lists[row], lists[row + 1]):
        name = _column_at(headers[1], index)
        if name is None:
            raise ValueError("the columns do not hold that row")
        parts += (_packed(name), _packed(_column_at(headers[2], index)))
    return b"".join(parts)


def _column_at(column: BytesColumn | None, row: int) -> bytes | None:
    if column is None:
        return None
    offsets, data, valid = memoryview(column[0]).cast("B").cast("i"), memoryview(column[1]), column[2]
    if row >= len(offsets) - 1 or (valid is not None and row >= len(valid)):
        raise ValueError("the columns do not hold that row")
    if valid is not None and not memoryview(valid).cast("B")[row]:
        return None
    if not 0 <= offsets[row] <= offsets[row + 1] <= len(data):
        raise ValueError("the columns do not hold that row")
    return bytes(data[offsets[row] : offsets[row + 1]])


def place_keys(key: BytesColumn, count: int) -> bytes:
    """The partition of each row's key among `count`, as Java's producer chooses it, 64 bits each; -1 where a row has
    none."""
    from ottla.records._placing import place_keys as by_numpy

    return by_numpy(key, count)


def part_rows(partitions: Buffer, count: int) -> list[tuple[int, bytes]]:
    """Each partition that some rows go to, and the numbers of those rows, in order; 64 bits each, as the partitions of
    the rows are."""
    from ottla.records._placing import part_rows as by_numpy

    return by_numpy(partitions, count)


def unpack_records(body: Buffer, record_count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """The offset delta, the key and the value of each record; `ValueError` if the bytes are not that many records."""
    data = bytes(body)
    records: list[tuple[int, bytes | None, bytes | None]] = []
    position = 0
    try:
        for _ in range(record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 1 or end > len(data):
                raise ValueError
            _, at = read_varlong(data, position + 1)
            offset_delta, at = read_varint(data, at)
            key, at = _field(data, at, end)
            value, at = _field(data, at, end)
            count, at = read_varint(data, at)
            if not 0 <= count <= end - at:
                raise ValueError
            for _ in range(count):
                name, at = _field(data, at, end)
                if name is None:
                    raise ValueError
                _, at = _field(data, at, end)
            if at != end:
                raise ValueError
            records.append((offset_delta, key, value))
            position = end
        if position != len(data):
            raise ValueError
    except (Malformed, ValueError):
        raise ValueError("the bytes are not that many records") from None
    return records


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise ValueError
    return data[position : position + length], position + length


__all__ = [
    "check",
    "crc32c",
    "crc_matches",
    "pack_columns",
    "pack_records",
    "parse_header",
    "part_rows",
    "place_keys",
    "unpack_records",
    "walk",
]
