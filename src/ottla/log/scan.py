"""Walking the batches of a segment's file, a chunk of bytes at a time.

Two walks: over headers, where the bytes are known to be sound and only positions are wanted, and over whole batches
whose CRC is checked, where they are not. Both end at the first thing that cannot be a batch, so what they yield is a
prefix.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.errors import Malformed
from ottla.records import HEADER_SIZE, BatchHeader, crc_is_valid, read_header
from ottla.runtime.seams import File

_MAGIC = 2
_CHUNK = 1 << 20
_OVERHEAD = 12


def headers(file: File, position: int, end: int, chunk: int = 64 << 10) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in [position, end); reads more than once only past `chunk` bytes."""
    data = b""
    data_start = position
    while end - position >= HEADER_SIZE:
        at = position - data_start
        if len(data) - at < HEADER_SIZE:
            data = file.read(position, min(chunk, end - position))
            data_start, at = position, 0
            if len(data) < HEADER_SIZE:
                return
        header = _plausible(data, at)
        if header is None or position + header.batch_length + _OVERHEAD > end:
            return
        yield position, header
        position += header.batch_length + _OVERHEAD


def header_at(file: File, position: int, end: int) -> BatchHeader | None:
    """What `headers` gives first, by one read of no more than it takes."""
    data = file.read(position, HEADER_SIZE)
    header = _plausible(data, 0) if len(data) == HEADER_SIZE else None
    return header if header is not None and position + header.size <= end else None


def intact_batches(file: File, end: int, next_offset: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch from the file's start, as long as each is whole, has the CRC that it
    claims, and begins at `next_offset` or later (offsets never go back; compaction leaves gaps)."""
    data = memoryview(b"")
    data_start = position = 0
    while end - position >= HEADER_SIZE:
        at = position - data_start
        if len(data) - at < HEADER_SIZE:
            data = memoryview(file.read(position, min(_CHUNK, end - position)))
            data_start, at = position, 0
        header = _plausible(data, at)
        if header is None or header.base_offset < next_offset:
            return
        size = header.batch_length + _OVERHEAD
        if size > end - position:
            return
        if len(data) - at < size:
            data = memoryview(file.read(position, min(max(_CHUNK, size), end - position)))
            data_start, at = position, 0
        if not crc_is_valid(data, at, size):
            return
        yield position, header, data[at : at + size]
        next_offset = header.next_offset
        position += size


def _plausible(data: bytes | memoryview, at: int) -> BatchHeader | None:
    try:
        header = read_header(data, at)
    except Malformed:
        return None
    if header.magic != _MAGIC or header.last_offset_delta < 0 or header.base_offset < 0:
        return None
    return header
