"""Reading the records of a batch, one by one: for tools, replay of metadata and coordinators, and timestamp look-ups.

Serving never comes here: the data plane passes batches on as they are. Offsets may have gaps, since compaction removes
records and keeps the offsets of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.records._hot import unpack_records
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader, Buffer, read_header
from ottla.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    CorruptCompression,
    DecompressedTooLarge,
    decompress,
    decompression_limit,
)
from ottla.records.varint import read_varint, read_varlong


class Record(NamedTuple):
    """One record, its offset and timestamp made absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def iterate(batch: Buffer, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of the one batch in `batch`, in order.

    `limit` caps what a compressed batch may unpack to. The CRC is not checked (`crc_is_valid`). Raises `Malformed` at
    the first thing that is not as it must be.
    """
    header = read_header(batch)
    if header.size > len(batch):
        raise Malformed(f"the batch says {header.size} bytes, and there are {len(batch)}")
    yield from decode(body_of(batch, header, limit), header)


def body_of(batch: Buffer, header: BatchHeader, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """The batch's records as bytes, decompressed where they are compressed. Raises `Malformed`."""
    body = memoryview(batch)[HEADER_SIZE : header.size]
    codec = header.compression
    if not codec:
        return body
    try:
        return decompress(codec, body, decompression_limit(len(body), limit))
    except (CorruptCompression, DecompressedTooLarge) as error:
        raise Malformed(f"the records cannot be decompressed: {error}") from None


def decode(body: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records in `body`, whose offsets and timestamps count from those of `header`."""
    fixed_timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    data = bytes(body)
    size = len(data)
    position = 0
    try:
        for _ in range(header.record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise Malformed(f"a record of {length} bytes runs past the end of its batch")
            # One byte of attributes, which no version has used. Varints of one byte, which most are, are read inline.
            at = position + 2
            timestamp_delta = data[at - 1]
            if timestamp_delta > 127:
                timestamp_delta, at = read_varlong(data, at - 1)
            else:
                timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at, end)
            value, at = _read_bytes(data, at, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[at]:
                headers, at = _read_headers(data, at, end)
            else:
                at += 1
            if at != end:
                raise Malformed(f"a record of {length} bytes holds {at - position}")
            timestamp = base_timestamp + timestamp_delta if fixed_timestamp is None else fixed_timestamp
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
            position = end
    except IndexError:
        raise Malformed("a record runs past the end of its batch") from None
    if position != size:
        raise Malformed(f"{size - position} bytes follow the last record")


def keys_and_values(batch: Buffer, header: BatchHeader) -> list[tuple[int, bytes | None, bytes | None]]:
    """Of each record of the one batch in `batch`: its offset's distance from the base offset, its key and its value.
    Raises `Malformed`."""
    try:
        return unpack_records(body_of(batch, header), header.record_count)
    except ValueError as error:
        raise Malformed(str(error)) from None


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length > 127:
        length, position = read_varint(data, position)
    else:
        length = length >> 1 ^ -(length & 1)
        position += 1
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise Malformed(f"a field of {length} bytes runs past the end of its record")
    return data[position:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    # A header takes at least two bytes, so a count that lies cannot make this loop long.
    if count < 0 or count > end - position:
        raise Malformed(f"{count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise Malformed("a record header without a key")
        content, position = _read_bytes(data, position, end)
        headers.append((name.decode(errors="replace"), content))
    return tuple(headers), position
