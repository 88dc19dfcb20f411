"""The header of a batch, its CRC, and batches one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from types import ModuleType

import crc32c
import pytest

from ottla.errors import Malformed
from ottla.records import (
    HEADER_SIZE,
    BatchBuilder,
    BatchHeader,
    CompressionType,
    TimestampType,
    batches,
    crc_is_valid,
    read_header,
    set_offset_and_epoch,
)

from .crafting import NATIVE, NOW, SIDES, patched, plain_batch


def test_every_field_of_a_header_is_read_and_every_flag_understood() -> None:
    builder = BatchBuilder(
        base_offset=2**40,
        leader_epoch=7,
        compression=CompressionType.NONE,
        producer_id=2**50,
        producer_epoch=300,
        base_sequence=2**31 - 2,
        transactional=True,
        control=True,
        log_append_time_ms=NOW + 9,
        delete_horizon_ms=NOW - 5,
    )
    for _ in range(4):
        builder.append(NOW, b"", b"")
    batch = builder.build()
    header = read_header(b"xx" + batch, 2)
    assert header == (
        2**40, len(batch) - 12, 7, 2, header.crc, 0x78, 3, NOW - 5, NOW + 9, 2**50, 300, 2**31 - 2, 4,
    )  # fmt: skip
    assert header.size == len(batch)
    assert (header.last_offset, header.next_offset) == (2**40 + 3, 2**40 + 4)
    assert header.last_sequence == 1, "sequences begin again after 2³¹ − 1"
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon
    assert header.has_producer_id
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    plain = read_header(plain_batch())
    assert plain.timestamp_type is TimestampType.CREATE_TIME
    assert plain.last_sequence == -1
    assert plain.attributes == 0
    assert not plain.has_producer_id


@pytest.mark.parametrize("side", SIDES)
def test_a_header_cut_at_any_byte_is_refused(side: ModuleType) -> None:
    batch = plain_batch()
    for size in range(HEADER_SIZE):
        with pytest.raises(ValueError, match="too few bytes"):
            side.parse_header(BatchHeader, batch[:size], 0)
        with pytest.raises(Malformed, match="61 bytes"):
            read_header(batch[:size])
    assert side.parse_header(BatchHeader, batch[:HEADER_SIZE], 0) == read_header(batch)
    for position in (-1, len(batch) - 60, len(batch), len(batch) + 1, 2**62, -(2**62)):
        with pytest.raises(ValueError, match="too few bytes"):
            side.parse_header(BatchHeader, batch, position)


def test_a_length_that_no_batch_can_have_is_malformed() -> None:
    for length in (-(2**31), -1, 0, 48):
        with pytest.raises(Malformed, match="batch length"):
            read_header(patched(plain_batch(), 8, "i", length, sealed=False))


@pytest.mark.parametrize("side", SIDES)
def test_the_crc_covers_all_from_the_attributes_on_and_nothing_before(side: ModuleType) -> None:
    batch = plain_batch()
    assert side.crc_matches(batch, 0, len(batch))
    assert side.crc_matches(b"abc" + batch + b"abc", 3, len(batch))
    for position in range(len(batch)):
        spoiled = bytearray(batch)
        spoiled[position] ^= 0x10
        assert side.crc_matches(spoiled, 0, len(batch)) == (position < 17), position


@pytest.mark.parametrize("side", SIDES)
def test_a_crc_is_never_looked_for_outside_the_buffer(side: ModuleType) -> None:
    batch = plain_batch()
    size = len(batch)
    for position, length in ((0, size + 1), (1, size), (-1, size), (0, 60), (0, -5), (size, 61), (2**62, 2**62)):
        assert not side.crc_matches(batch, position, length)
    assert not crc_is_valid(batch, 0, size + 1)
    for start, end in ((-1, 5), (5, 4), (0, size + 1)):
        with pytest.raises(ValueError, match="outside"):
            side.crc32c(batch, start, end)


@pytest.mark.parametrize("side", SIDES)
def test_crc_32c_agrees_with_another_library_at_every_length_and_alignment(side: ModuleType) -> None:
    data = Random(1).randbytes(40_000)
    assert side.crc32c(b"123456789", 0, 9) == 0xE3069283, "the check value of the polynomial's definition"
    lengths = [*range(300), *range(380, 420), *range(1000, 1300, 7), *range(6100, 6200), 12_288, 12_289, 18_433, 39_999]
    for length in lengths:
        start = length % 13
        if start + length <= len(data):
            expected = crc32c.crc32c(data[start : start + length])
            assert side.crc32c(data, start, start + length) == expected, length
            if side is NATIVE:
                assert side.crc32c_by_table(data[start : start + length]) == expected, length


def test_patching_offset_and_epoch_leaves_the_crc_right() -> None:
    batch = plain_batch()
    set_offset_and_epoch(memoryview(batch), 2**40 + 1, 77)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (2**40 + 1, 77)
    assert crc_is_valid(batch, 0, len(batch))


def test_batches_are_found_one_after_another_and_a_partial_last_one_is_left_out() -> None:
    parts = [plain_batch(count) for count in (1, 2, 3)]
    joined = b"".join(parts)
    assert [bytes(view) for _, view in batches(joined)] == [bytes(part) for part in parts]
    assert [header.record_count for header, _ in batches(joined)] == [1, 2, 3]
    whole = [len(parts[0]), len(parts[0]) + len(parts[1]), len(joined)]
    for size in range(len(joined)):
        assert len(list(batches(joined[:size]))) == sum(size >= end for end in whole)


def run(code: str, pure: str) -> list[str]:
    """What a fresh interpreter prints."""
    environment = {**os.environ, "OTTLA_PURE": pure}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_the_room_is_light_to_import() -> None:
    code = "import sys, ottla.records; print(*sorted(sys.modules))"
    for pure in ("0", "1"):
        loaded = run(code, pure)
        heavy = {"numpy", "pyarrow", "cramjam", "dataclasses", "inspect", "asyncio", "importlib.metadata"}
        assert not heavy & set(loaded)


def test_the_environment_can_ask_for_python() -> None:
    code = "from ottla.records import _hot; print(_hot.NATIVE, _hot.check.__module__)"
    assert run(code, "1") == ["False", "ottla.records._pure"]
