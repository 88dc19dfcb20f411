"""Building record batches: for the metadata log, the coordinators' records, markers, compaction, clients and tests.

A batch is built in one buffer, record after record, and sealed once: compressed, measured, and stamped with its CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.records._hot import crc32c, pack_records
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    CRC_POSITION,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    Buffer,
    CompressionType,
)
from ottla.records.varint import encode_varint

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_NULL = encode_varint(-1)
_ATTRIBUTES = b"\x00"

Headers = Iterable[tuple[str | bytes, Buffer | None]]


class BatchBuilder:
    """One v2 batch in the making.

    `delete_horizon_ms` is for compaction (KIP-534): it takes the base timestamp's place. `log_append_time_ms` makes a
    batch of that timestamp type, whose records all read that time.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_body",
        "_compression",
        "_count",
        "_last_offset",
        "_leader_epoch",
        "_level",
        "_log_append_time_ms",
        "_max_timestamp",
        "_packed",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._last_offset = base_offset - 1
        self._leader_epoch = leader_epoch
        self._compression = compression
        self._level = level
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._log_append_time_ms = log_append_time_ms
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._attributes = (
            int(compression)
            | (TRANSACTIONAL_FLAG if transactional else 0)
            | (CONTROL_FLAG if control else 0)
            | (LOG_APPEND_TIME_FLAG if log_append_time_ms is not None else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        self._count = 0
        self._body = bytearray()
        self._packed: bytearray | None = None

    def __len__(self) -> int:
        """How many records there are so far."""
        return self._count

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets unless it brings its own."""
        return self._last_offset + 1

    @property
    def size(self) -> int:
        """The batch's size in bytes so far, before compression."""
        return HEADER_SIZE + len(self._body) if self._packed is None else len(self._packed)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Add a record. `offset` may leave a gap after the last one, as compaction does, and never goes back."""
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise ValueError(f"offset {offset} follows {self._last_offset}")
        base_timestamp = self._base_timestamp
        if base_timestamp is None:
            base_timestamp = self._base_timestamp = timestamp
        parts: list[Buffer] = [
            _ATTRIBUTES,
            encode_varint(timestamp - base_timestamp),
            encode_varint(offset - self._base_offset),
        ]
        if key is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
        if headers:
            headers = tuple(headers)
            parts.append(encode_varint(len(headers)))
            for name, content in headers:
                raw = name.encode() if isinstance(name, str) else name
                parts += (encode_varint(len(raw)), raw)
                if content is None:
                    parts.append(_NULL)
                else:
                    parts += (encode_varint(len(content)), content)
        else:
            parts.append(b"\x00")
        record = b"".join(parts)
        body = self._body
        body += encode_varint(len(record))
        body += record
        self._last_offset = offset
        self._count += 1
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def append_all(self, timestamp: int, records: list[tuple[bytes, bytes | None]]) -> None:
        """Add records of one time, each a key and a value, at the offsets that follow."""
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        first = self._last_offset + 1 - self._base_offset
        self._body += pack_records(records, first, timestamp - self._base_timestamp)
        self._last_offset += len(records)
        self._count += len(records)
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def append_packed(self, records: bytearray, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Take what `pack_columns` made, into a batch that has nothing else: unless it is compressed, `records` become
        the batch where they are."""
        assert not self._count
        assert self._base_timestamp is None
        self._packed = records
        self._count = count
        self._last_offset = self._base_offset + count - 1
        self._base_timestamp, self._max_timestamp = base_timestamp, max_timestamp

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """The batch, writable so that a log can patch offset and epoch without a copy.

        `last_offset` keeps the end of a range whose last records compaction removed, in an empty batch if need be.
        """
        if last_offset is None:
            last_offset = self._last_offset
            if self._count == 0:
                raise ValueError("a batch without records needs its last offset said")
        elif last_offset < self._last_offset:
            raise ValueError(f"last offset {last_offset} is before that of a record, {self._last_offset}")
        batch = self._with_room()
        base_timestamp = self._base_timestamp
        _HEADER.pack_into(
            batch,
            0,
            self._base_offset,
            len(batch) - LOG_OVERHEAD,
            self._leader_epoch,
            MAGIC_V2,
            0,
            self._attributes,
            last_offset - self._base_offset,
            NO_TIMESTAMP if base_timestamp is None else base_timestamp,
            self._max_timestamp if self._log_append_time_ms is None else self._log_append_time_ms,
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            self._count,
        )
        _CRC.pack_into(batch, CRC_POSITION, crc32c(batch, ATTRIBUTES_POSITION, len(batch)))
        return batch

    def _with_room(self) -> bytearray:
        """The records as the batch has them, behind room for its header."""
        if self._packed is not None and not self._compression:
            return self._packed
        body: Buffer = self._body if self._packed is None else memoryview(self._packed)[HEADER_SIZE:]
        if self._compression:
            from ottla.records.compression import compress

            body = compress(self._compression, body, self._level)
        batch = bytearray(HEADER_SIZE)
        batch += body
        return batch
