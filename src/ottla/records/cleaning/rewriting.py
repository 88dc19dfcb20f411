"""Batches that compaction writes anew, header by header as Apache Kafka writes them.

The base offset, the last offset and the sequence of a batch stay, whatever records go: offsets are never given out
twice, and a producer's next sequence follows from its last batch. A delete horizon takes the base timestamp's place
(KIP-534).
"""

from __future__ import annotations

import struct

from ottla.records._hot import crc32c
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
)

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_NO_TIMESTAMP = -1


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records: it stands for its offsets and for its producer's sequence."""
    kept = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    return _sealed(header, kept, _NO_TIMESTAMP, header.max_timestamp, 0, b"")


def rebuilt(
    header: BatchHeader, record_count: int, base_timestamp: int, max_timestamp: int, body: Buffer, *, stamped: bool
) -> bytes:
    """The batch with these records, whose timestamps count from `base_timestamp`: a delete horizon if it is `stamped`.

    `body` is compressed as the batch's attributes say.
    """
    attributes = header.attributes | (DELETE_HORIZON_FLAG if stamped else 0)
    return _sealed(header, attributes, base_timestamp, max_timestamp, record_count, body)


def _sealed(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, record_count: int, body: Buffer
) -> bytes:
    batch = bytearray(HEADER_SIZE)
    batch += body
    _HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LOG_OVERHEAD,
        header.leader_epoch,
        header.magic,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, CRC_POSITION, crc32c(batch, ATTRIBUTES_POSITION, len(batch)))
    return bytes(batch)
