"""Batches by hand: for what no builder would write."""

from __future__ import annotations

import struct
from pathlib import Path
from types import ModuleType

import pytest

from ottla.records import HEADER_SIZE, BatchBuilder, CompressionType, _pure
from ottla.records.compression import compress
from ottla.records.varint import encode_varint

NOW = 1_700_000_000_000

try:
    from ottla.records import _native
except ImportError:
    NATIVE: ModuleType | None = None
else:
    NATIVE = _native

SIDES = [
    pytest.param(_pure, id="pure"),
    pytest.param(NATIVE, id="native", marks=pytest.mark.skipif(NATIVE is None, reason="the module is not compiled")),
]
"""Both implementations of what `_hot` gives out."""

GOLDEN = Path(__file__).parent / "golden" / "batches.txt"


def golden() -> dict[tuple[str, str], bytearray]:
    """Batches that Apache Kafka 4.3.1 stored, by the client that sent them (or the log they are from) and a name."""
    lines = (line.split() for line in GOLDEN.read_text().splitlines())
    return {(source, name): bytearray.fromhex(content) for source, name, content in lines}


def record(
    offset: int = 0,
    *,
    timestamp: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\x00",
    attributes: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """One record; each length can lie."""
    body = bytes((attributes,)) + encode_varint(timestamp) + encode_varint(offset)
    for content, claim in ((key, key_length), (value, value_length)):
        honest = -1 if content is None else len(content)
        body += encode_varint(honest if claim is None else claim) + (content or b"")
    body += headers + tail
    return encode_varint(len(body) if length is None else length) + body


def seal(batch: bytearray) -> bytearray:
    """Set the length and the CRC to what they ought to be."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, _pure.crc32c(batch, 21, len(batch)))
    return batch


def batch_of(
    *records: bytes, codec: CompressionType = CompressionType.NONE, count: int | None = None, base_timestamp: int = NOW
) -> bytearray:
    """A batch around records made by hand, with header fields that fit their number."""
    builder = BatchBuilder(compression=codec)
    builder.append(base_timestamp, b"", b"")
    body = b"".join(records)
    batch = builder.build()[:HEADER_SIZE] + (compress(codec, body) if codec else body)
    number = len(records) if count is None else count
    struct.pack_into(">i", batch, 23, number - 1)
    struct.pack_into(">i", batch, 57, number)
    return seal(batch)


def patched(batch: bytearray, position: int, form: str, value: int, *, sealed: bool = True) -> bytearray:
    """A copy with one header field changed, and the CRC renewed unless told otherwise."""
    copy = bytearray(batch)
    struct.pack_into(">" + form, copy, position, value)
    if sealed:
        struct.pack_into(">I", copy, 17, _pure.crc32c(copy, 21, len(copy)))
    return copy


def plain_batch(
    count: int = 3,
    *,
    key: bytes | None = b"key",
    value: bytes = b"value",
    timestamp: int = NOW,
    step: int = 1,
    codec: CompressionType = CompressionType.NONE,
) -> bytearray:
    builder = BatchBuilder(compression=codec)
    for index in range(count):
        builder.append(timestamp + index * step, key, value)
    return builder.build()
