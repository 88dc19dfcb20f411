"""The header of a record batch in Kafka's message format v2: what every room may know without looking at a record.

A batch is an opaque span of bytes: 61 bytes of header, then records that may be compressed. The CRC-32C covers
everything from the attributes on, so the base offset and the leader epoch, which lie before it, can be patched in
place when a leader appends. Everything here is a view: nothing is decoded that was not asked for. Driven by `log`,
`broker` and whoever reads batches.

    0 base offset      8 batch length   12 leader epoch  16 magic          17 crc          21 attributes
   23 last offset delta 27 base timestamp 35 max timestamp 43 producer id   51 producer epoch
   53 base sequence    57 record count  61 records
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ottla.errors import Malformed
from ottla.records._hot import crc32c, crc_matches, parse_header

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Base offset and batch length: what the batch length does not count."""

MAGIC_V2 = 2

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_SEQUENCE_SPACE = 1 << 31

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")
_MAX_TIMESTAMP = struct.Struct(">q")


class CompressionType(IntEnum):
    """The codec ids of the attributes' lowest three bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Whose clock stamped the records (KIP-32): the producer's, or the leader's when it appended them."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as integers."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header and all."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """A `CompressionType`, or a number that no codec has."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Then the base timestamp is when tombstones and markers in the batch may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    @property
    def last_sequence(self) -> int:
        """Sequences count from 0 to 2³¹ − 1 and begin again."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_SPACE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch that starts at `position`.

    Raises `Malformed` where there are fewer than 61 bytes, or the length is one that no v2 batch can have. Whether the
    buffer holds the whole batch is for the caller to ask (`size`), and whether it is intact for `crc_is_valid`.
    """
    try:
        header = parse_header(BatchHeader, buffer, position)
    except ValueError:
        left = len(buffer) - position
        raise Malformed(f"a batch header needs {HEADER_SIZE} bytes, and there are {left}") from None
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise Malformed(f"batch length {header.batch_length} is smaller than a batch header")
    return header


def crc_is_valid(buffer: Buffer, position: int, size: int) -> bool:
    """Do the `size` bytes at `position` carry the CRC-32C that they claim? False also if they are not all there."""
    return crc_matches(buffer, position, size)


def batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch in `buffer`, one after the other. A partial one at the end is left out, as consumers do (KIP-74).

    The CRC is not checked. Raises `Malformed` at a header that makes no sense.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = read_header(view, position)
        size = header.batch_length + LOG_OVERHEAD
        if position + size > end:
            return
        yield header, view[position : position + size]
        position += size


def set_offset_and_epoch(batch: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Patch what a leader assigns. Both fields lie before the CRC, which stays right."""
    assert not isinstance(batch, bytes)
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)


def set_max_timestamp(batch: memoryview, attributes: int, max_timestamp: int) -> int:
    """Patch the attributes and the max timestamp, both under the CRC, and renew it. Returns the new CRC."""
    _MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC_AND_ATTRIBUTES.pack_into(batch, CRC_POSITION, 0, attributes)
    crc = crc32c(batch, ATTRIBUTES_POSITION, len(batch))
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return crc
