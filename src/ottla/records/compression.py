"""The four codecs of Kafka's record batches, both ways, each with a cap on what may come out.

cramjam does the work and is loaded at the first batch that needs it. A decompression writes into a buffer of fixed
size that grows up to the caller's limit and never past it: a bomb is refused the moment that its output would overrun
the limit, whatever sizes it declares.

What is written is what Apache Kafka's Java reads: lz4 frames of independent blocks without a content size, snappy in
the framing of xerial's library; and what its clients send is read: librdkafka's raw snappy too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import Buffer, CompressionType

if TYPE_CHECKING:
    from types import ModuleType

MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
"""The most that a batch may unpack to: the largest request, so that nothing which fits uncompressed is refused."""

_FREE_BYTES = 16 * 1024 * 1024
_MAX_RATIO = 32
_LEAST_BUFFER = 32 * 1024
_GROWTH = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LZ4_BLOCK = 64 * 1024
# Magic; version 1 with independent blocks; blocks of 64 KiB; the byte that xxHash32 gives for those two.
_LZ4_FRAME = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_INDEPENDENT = 0x20
_LZ4_END = bytes(4)
_LZ4_STORED = 0x80000000
_LZ4_DEFAULT_LEVEL = 9
_LZ4_MAX_LEVEL = 12
_ZSTD_DEFAULT_LEVEL = 3
_GZIP_DEFAULT_LEVEL = 6


class Compression(NamedTuple):
    """A codec and the level to compress with; None is the codec's default."""

    type: CompressionType
    level: int | None = None


class CorruptCompression(Exception):
    """The bytes are not what their codec writes."""


class DecompressedTooLarge(KafkaError):
    """The bytes would unpack to more than the limit. MESSAGE_TOO_LARGE, because producers answer it by splitting."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE, f"The records of the batch decompress to more than {limit} bytes."
        )


def decompression_limit(compressed_size: int, most: int = MAX_DECOMPRESSED_BYTES) -> int:
    """What `compressed_size` bytes may unpack to: anything up to 16 MiB, and beyond that at most 32 times."""
    return min(most, max(_FREE_BYTES, compressed_size * _MAX_RATIO))


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """The bytes that `data` holds. Raises `DecompressedTooLarge` or `CorruptCompression`."""
    if codec == CompressionType.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == CompressionType.ZSTD or codec == CompressionType.LZ4 or codec == CompressionType.GZIP:
        return _decompress_stream(codec, data, limit)
    raise CorruptCompression(f"there is no codec {codec}")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    import cramjam

    if codec == CompressionType.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_DEFAULT_LEVEL if level is None or level < 0 else level))
    if codec == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))
    if codec == CompressionType.LZ4:
        return _compress_lz4(cramjam, data, _LZ4_DEFAULT_LEVEL if level is None else level)
    if codec == CompressionType.SNAPPY:
        return _compress_snappy(cramjam, data)
    raise ValueError(f"there is no codec {codec}")


def _decompress_stream(codec: int, data: Buffer, limit: int) -> memoryview:
    import cramjam

    if codec == CompressionType.ZSTD:
        unpack = cramjam.zstd.decompress_into
    elif codec == CompressionType.LZ4:
        unpack = cramjam.lz4.decompress_into
        if len(data) > 4 and not data[4] & _LZ4_INDEPENDENT:
            raise CorruptCompression("the blocks of an lz4 frame must be independent")
    else:
        unpack = cramjam.gzip.decompress_into
    capacity = max(_LEAST_BUFFER, _GROWTH * len(data))
    while True:
        capacity = min(capacity, limit)
        output = bytearray(capacity)
        try:
            size = unpack(data, output)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise CorruptCompression(str(error)) from None
            if capacity == limit:
                raise DecompressedTooLarge(limit) from None
            del output
            capacity *= _GROWTH
        else:
            return memoryview(output)[:size]


def _decompress_snappy(data: Buffer, limit: int) -> memoryview:
    """Xerial's framing declares each block's size, and so does a raw block: the cap is applied before unpacking."""
    import cramjam

    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(cramjam, view, limit, limit)
    position, end = len(_XERIAL_HEADER), len(view)
    if position > end:
        raise CorruptCompression("a snappy stream ends within its header")
    output = bytearray()
    while position < end:
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Streams that were joined: each brings its own header.
            position += len(_XERIAL_HEADER)
            continue
        if end - position < 4:
            raise CorruptCompression("a snappy block ends within its length")
        size: int = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > end - position:
            raise CorruptCompression("a snappy block is longer than the batch")
        output += _decompress_snappy_block(cramjam, view[position : position + size], limit - len(output), limit)
        position += size
    return memoryview(output)


def _decompress_snappy_block(cramjam: ModuleType, block: memoryview, room: int, limit: int) -> memoryview:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise DecompressedTooLarge(limit)
        # A block may claim any size and hold nothing: reserve no more than it can unpack to (two bytes copy 64).
        if size > 64 * len(block):
            raise CorruptCompression("a snappy block claims more bytes than it can hold")
        output = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, output) != size:
            raise CorruptCompression("a snappy block holds fewer bytes than it claims")
    except cramjam.DecompressionError as error:
        raise CorruptCompression(str(error)) from None
    return memoryview(output)


def _compress_snappy(cramjam: ModuleType, data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _compress_lz4(cramjam: ModuleType, data: Buffer, level: int) -> bytes:
    """Built block by block, because Kafka's reader refuses dependent blocks, which the library's frames have.

    As in Kafka (KIP-390) the default level is the fast compressor and any other the high one.
    """
    view = memoryview(data)
    parts = [_LZ4_FRAME]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        if level == _LZ4_DEFAULT_LEVEL:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = bytes(
                cramjam.lz4.compress_block(
                    plain, mode="high_compression", compression=min(level, _LZ4_MAX_LEVEL), store_size=False
                )
            )
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)
