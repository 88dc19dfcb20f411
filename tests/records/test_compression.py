"""The codecs: both ways, what real clients write, and bombs."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
import tracemalloc
from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import CompressionType, compression
from ottla.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    CorruptCompression,
    DecompressedTooLarge,
    compress,
    decompress,
    decompression_limit,
)

CODECS = [codec for codec in CompressionType if codec]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=500), times=st.integers(1, 1000))
def test_what_is_compressed_comes_back(codec: CompressionType, content: bytes, times: int) -> None:
    data = content * times
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_of_every_size_around_the_borders_come_back(codec: CompressionType) -> None:
    random = Random(2)
    noise = random.randbytes(200_000)
    for border in (0, 32 * 1024, 64 * 1024, 128 * 1024):
        for size in range(max(0, border - 2), border + 3):
            assert decompress(codec, compress(codec, noise[:size])) == noise[:size]
            assert decompress(codec, memoryview(compress(codec, memoryview(bytearray(size))))) == bytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_a_limit_is_kept_to_the_byte(codec: CompressionType) -> None:
    packed = compress(codec, b"0123456789" * 1000)
    assert len(decompress(codec, packed, 10_000)) == 10_000
    with pytest.raises(DecompressedTooLarge, match="9999 bytes"):
        decompress(codec, packed, 9_999)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_in_little_memory(codec: CompressionType) -> None:
    """Ten megabytes of zeros. Python's own allocations are counted; the libraries write into those."""
    bomb = compress(codec, bytes(10_000_000))
    assert len(bomb) < 500_000
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * MIB


def test_the_libraries_too_stay_within_their_means() -> None:
    """A hundred megabytes of zeros in each codec, refused by a process that never grows by a tenth of that."""
    code = """
import resource, sys
from ottla.records.compression import DecompressedTooLarge, compress, decompress
bombs = [bytes.fromhex(line) for line in sys.stdin]
for codec in (1, 2, 3, 4):
    decompress(codec, compress(codec, bytes(1_048_576)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, bomb in enumerate(bombs, 1):
    try:
        decompress(codec, bomb, 1_048_576)
    except DecompressedTooLarge:
        print("refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    bombs = "\n".join(compress(codec, bytes(100_000_000)).hex() for codec in CODECS)
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, input=bombs, capture_output=True, text=True, check=True).stdout.split()
    assert told[:4] == ["refused"] * 4
    assert int(told[4]) < 10_000, "kilobytes more than for a megabyte that is let through"


def test_a_bomb_of_raw_snappy_that_lies_about_its_size_is_refused() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(10_000_000)))
    with pytest.raises(DecompressedTooLarge):
        decompress(CompressionType.SNAPPY, packed, MIB)
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x40"):
        with pytest.raises((CorruptCompression, DecompressedTooLarge)):
            decompress(CompressionType.SNAPPY, claim + b"\x00a", MAX_DECOMPRESSED_BYTES)


def test_a_bomb_of_many_joined_frames_is_refused() -> None:
    for codec in CODECS:
        bomb = compress(codec, bytes(100_000)) * 50
        with pytest.raises((DecompressedTooLarge, CorruptCompression)):
            decompress(codec, bomb, MIB)


def test_small_batches_may_unpack_to_much_and_large_ones_only_in_proportion() -> None:
    assert decompression_limit(10) == 16 * MIB
    assert decompression_limit(50_000) == 16 * MIB
    assert decompression_limit(MIB) == 32 * MIB
    assert decompression_limit(10**9) == MAX_DECOMPRESSED_BYTES
    assert decompression_limit(10, 1000) == 1000


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_anywhere_is_corrupt(codec: CompressionType) -> None:
    packed = compress(codec, Random(3).randbytes(300) + b"x" * 1000)
    for size in range(len(packed)):
        if codec == CompressionType.SNAPPY and size == 16:
            continue  # The header alone is a stream of nothing.
        with pytest.raises(CorruptCompression):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", CODECS)
def test_spoiled_streams_are_refused_or_differ_but_never_hurt(codec: CompressionType) -> None:
    random = Random(4)
    packed = compress(codec, random.randbytes(200) * 20)
    for _ in range(2_000):
        spoiled = bytearray(packed)
        for _ in range(random.randrange(1, 4)):
            spoiled[random.randrange(len(spoiled))] = random.randrange(256)
        with contextlib.suppress(CorruptCompression, DecompressedTooLarge):
            assert len(decompress(codec, spoiled, MIB)) <= MIB


def test_no_codec_is_no_codec() -> None:
    for codec in (0, 5, 7):
        with pytest.raises(CorruptCompression, match="no codec"):
            decompress(codec, b"")
        with pytest.raises(ValueError, match="no codec"):
            compress(codec, b"")


def test_snappy_is_read_raw_and_framed_as_xerial_does_and_written_framed() -> None:
    data = Random(6).randbytes(50_000) + bytes(50_000)
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    written = compress(CompressionType.SNAPPY, data)
    assert written.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(CompressionType.SNAPPY, written + written) == data + data, "joined streams"


def test_gzip_is_any_librarys_gzip() -> None:
    assert gzip.decompress(compress(CompressionType.GZIP, b"plain")) == b"plain"
    assert bytes(decompress(CompressionType.GZIP, gzip.compress(b"plain"))) == b"plain"


def test_lz4_frames_have_independent_blocks_which_is_all_that_java_reads() -> None:
    data = Random(7).randbytes(1000) * 200
    written = compress(CompressionType.LZ4, data)
    assert written[4] == 0x60
    assert bytes(cramjam.lz4.decompress(written)) == data
    dependent = bytes(cramjam.lz4.compress(data))
    assert not dependent[4] & 0x20
    with pytest.raises(CorruptCompression, match="independent"):
        decompress(CompressionType.LZ4, dependent)


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    noise = Random(8).randbytes(70_000)
    packed = compress(CompressionType.LZ4, noise)
    assert len(packed) == len(noise) + 7 + 4 + 4 + 4
    assert decompress(CompressionType.LZ4, packed) == noise


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (CompressionType.GZIP, [-1, 1, 6, 9]),
        (CompressionType.LZ4, [1, 3, 9, 12, 17]),
        (CompressionType.ZSTD, [-131072, -7, 1, 3, 19, 22]),
        (CompressionType.SNAPPY, [None]),
    ],
)
def test_every_level_that_kafka_knows_works(codec: CompressionType, levels: list[int | None]) -> None:
    random = Random(9)
    data = b"".join(random.choice((b"alpha ", b"beta ", b"gamma ")) for _ in range(5_000))
    for level in [None, *levels]:
        assert decompress(codec, compress(codec, data, level)) == data


def test_the_library_is_loaded_only_when_it_is_needed() -> None:
    assert not hasattr(compression, "cramjam")
