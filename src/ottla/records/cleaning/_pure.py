"""The work on every record of a log that is compacted, in Python: what `_native` does where there is no compiler.

`OffsetMap` has a twin of the same name and behaviour in `_native.c`; the tests hold one against the other, byte for
byte. Keys are kept as digests of 16 bytes, as there, so that long keys cost no more than short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import Malformed
from ottla.records._hot import crc_matches
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from ottla.records.cleaning.rewriting import emptied, rebuilt
from ottla.records.varint import encode_varint, read_varint, read_varlong

if TYPE_CHECKING:
    from ottla.records.batch import Buffer

SLOT_BYTES = 192
"""What a key costs in a dictionary, about."""

_NO_TIMESTAMP = -1
_OFFSET_END = 1 << 62


class _Record(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool
    rest: bytes
    """From the offset delta on: what stays as it is when the timestamps move."""


class OffsetMap:
    """The offset at which each key was last written.

    Made to hold `entries_max` keys in more than as many `slots`; `secret`, 16 bytes, makes digests that nobody else can
    foresee.
    """

    __slots__ = ("_entries_max", "_offsets", "_secret", "latest_offset")

    def __init__(self, slots: int, entries_max: int, secret: bytes) -> None:
        if len(secret) != 16 or entries_max < 1 or slots <= entries_max:
            raise ValueError("a map needs a secret of 16 bytes and more slots than entries")
        self._entries_max = entries_max
        self._secret = bytes(secret)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """Up to here, this one included, every key's last offset is known; -1 if nothing was added."""

    @property
    def entries(self) -> int:
        return len(self._offsets)

    def add(self, body: Buffer, record_count: int, base_offset: int, from_offset: int) -> bool:
        """Note the offset of every key in these records; False when the map is full before the last."""
        for record in _records(body, record_count, base_offset):
            offset = base_offset + record.offset_delta
            if record.key is None or offset < from_offset:
                continue
            if len(self._offsets) >= self._entries_max:
                return False
            self._offsets[self._digest(record.key)] = offset
            self.latest_offset = offset
        return True

    def add_batches(self, chunk: Buffer, position: int, from_offset: int) -> tuple[int, bool]:
        """Add plain batches, up to the first that is not; where that is, and whether the map is full."""
        view = memoryview(chunk)
        while (header := _plain_batch(view, position)) is not None:
            end = position + header.size
            if header.last_offset >= from_offset:
                body = view[position + HEADER_SIZE : end]
                if not self.add(body, header.record_count, header.base_offset, from_offset):
                    return position, True
                self.latest_offset = header.last_offset
            position = end
        return position, False

    def survivors(
        self,
        body: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        fixed_timestamp: int | None,
        has_horizon: bool,
        now_ms: int,
        new_horizon: int,
    ) -> tuple[int, int, int, bytes | None, bool]:
        """How many records stay; the base and max timestamp of a batch of them; its records, None where the old batch
        will do; and whether they got the new horizon."""
        drop_tombstones = has_horizon and base_timestamp <= now_ms
        kept: list[tuple[int, _Record]] = []
        for record in _records(body, record_count, base_offset):
            if self._stays(record, base_offset + record.offset_delta, drop_tombstones):
                timestamp = base_timestamp + record.timestamp_delta if fixed_timestamp is None else fixed_timestamp
                kept.append((timestamp, record))
        max_timestamp = max((timestamp for timestamp, _ in kept), default=_NO_TIMESTAMP)
        max_timestamp = max(max_timestamp, _NO_TIMESTAMP)
        stamped = not has_horizon and any(record.is_tombstone for _, record in kept)
        if not kept or (len(kept) == record_count and not stamped):
            return len(kept), _NO_TIMESTAMP, max_timestamp, None, stamped
        if stamped:
            base_timestamp = new_horizon
        elif not has_horizon:
            base_timestamp = kept[0][0]
        written = bytearray()
        for timestamp, record in kept:
            content = b"\x00" + encode_varint(timestamp - base_timestamp) + record.rest
            written += encode_varint(len(content))
            written += content
        return len(kept), base_timestamp, max_timestamp, bytes(written), stamped

    def clean_batches(
        self, chunk: Buffer, position: int, now_ms: int, new_horizon: int, pinned: AbstractSet[int]
    ) -> tuple[int, bytes]:
        """What stays of plain batches, up to the first that is not; where that is, and the batches. One whose last
        offset is pinned stays even without records."""
        view = memoryview(chunk)
        output = bytearray()
        while (header := _plain_batch(view, position)) is not None:
            end = position + header.size
            kept, base_timestamp, max_timestamp, body, stamped = self.survivors(
                view[position + HEADER_SIZE : end],
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None,
                header.has_delete_horizon,
                now_ms,
                new_horizon,
            )
            if not kept:
                if header.last_offset in pinned:
                    output += emptied(header)
            elif body is None:
                output += view[position:end]
            else:
                output += rebuilt(header, kept, base_timestamp, max_timestamp, body, stamped=stamped)
            position = end
        return position, bytes(output)

    def _stays(self, record: _Record, offset: int, drop_tombstones: bool) -> bool:
        if offset > self.latest_offset:
            return True
        if record.key is None or (drop_tombstones and record.is_tombstone):
            return False
        return offset >= self._offsets.get(self._digest(record.key), -1)

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()


def _plain_batch(view: memoryview, position: int) -> BatchHeader | None:
    """The header of the whole batch at `position` that needs no decompression and belongs to no transaction."""
    if len(view) - position < HEADER_SIZE:
        return None
    base_offset = int.from_bytes(view[position : position + 8], "big", signed=True)
    try:
        header = read_header(view, position)
    except Malformed:
        raise _corrupt(base_offset) from None
    if header.magic != MAGIC_V2 or header.record_count < 0 or header.last_offset_delta < 0:
        raise _corrupt(base_offset)
    if not 0 <= base_offset < _OFFSET_END:
        raise _corrupt(base_offset)
    if header.batch_length + LOG_OVERHEAD > len(view) - position:
        return None
    if header.attributes & (COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG):
        return None
    if not crc_matches(view, position, header.size):
        raise _corrupt(base_offset)
    return header


def _corrupt(base_offset: int) -> ValueError:
    return ValueError(f"the batch at offset {base_offset} is corrupt")


def _records(body: Buffer, record_count: int, base_offset: int) -> Iterator[_Record]:
    data = bytes(body)
    position = 0
    try:
        for _ in range(record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length <= 0 or end > len(data):
                raise Malformed("a record runs past the end of its batch")
            timestamp_delta, rest = read_varlong(data, position + 1)
            offset_delta, at = read_varint(data, rest)
            key_length, at = read_varint(data, at)
            key = data[at : at + key_length] if key_length >= 0 else None
            at += max(0, key_length)
            if at >= end:
                raise Malformed("a key runs past the end of its record")
            value_length, at = read_varint(data, at)
            if at + max(0, value_length) > end:
                raise Malformed("a value runs past the end of its record")
            yield _Record(timestamp_delta, offset_delta, key, value_length < 0, data[rest:end])
            position = end
    except Malformed:
        raise ValueError(f"the records of the batch at offset {base_offset} cannot be read") from None


__all__ = ["SLOT_BYTES", "OffsetMap"]
