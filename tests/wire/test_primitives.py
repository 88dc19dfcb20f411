"""Varints and strings: both ways, and their bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.wire import primitives as p


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned_varint(value: int) -> None:
    data = p.unsigned_varint(value)
    assert p.read_unsigned_varint(b"-" + data + b"+", 1) == (value, 1 + len(data))
    assert len(data) == p.unsigned_varint_size(value) <= 5


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_varint(value: int) -> None:
    data = p.varint(value)
    assert p.read_varint(data, 0) == (value, len(data))
    assert len(data) <= 5


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlong(value: int) -> None:
    data = p.varlong(value)
    assert p.read_varlong(data, 0) == (value, len(data))
    assert len(data) <= 10


def test_zigzag_keeps_small_numbers_short() -> None:
    assert [p.varint(value) for value in (0, -1, 1, -64, 63, 64)] == [
        b"\x00",
        b"\x01",
        b"\x02",
        b"\x7f",
        b"\x7e",
        b"\x80\x01",
    ]


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (p.read_unsigned_varint, b""),
        (p.read_unsigned_varint, b"\x80"),
        (p.read_unsigned_varint, b"\x80\x80\x80\x80\x80\x00"),
        (p.read_varint, b"\xff\xff\xff\xff\xff\x01"),
        (p.read_varlong, b"\xff" * 9),
        (p.read_varlong, b"\x80" * 10 + b"\x00"),
    ],
)
def test_a_varint_ends_in_time(read: Callable[[bytes, int], tuple[int, int]], data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data, 0)


@given(st.none() | st.text(max_size=200))
def test_strings(text: str | None) -> None:
    for data, read in ((p.compact_string(text), p.read_compact_string), (p.string(text), p.read_string)):
        assert read(data + b"more", 0) == (text, len(data))
        for end in range(len(data)):
            with pytest.raises(Malformed):
                read(data[:end], 0)


def test_strings_are_bounded_on_both_ways() -> None:
    longest = "x" * p.MAX_STRING_BYTES
    assert p.read_compact_string(p.compact_string(longest), 0)[0] == longest
    for write in (p.compact_string, p.string):
        with pytest.raises(ValueError, match="too long"):
            write(longest + "x")
    with pytest.raises(Malformed):
        p.read_compact_string(p.unsigned_varint(0x8001) + b"x" * 0x8000, 0)
    with pytest.raises(Malformed):
        p.read_compact_string(b"\x02\xff", 0)


def test_counts_are_bounded_by_what_the_bytes_could_hold() -> None:
    assert p.read_compact_array_count(b"\x03" + bytes(8), 0, 4) == (2, 1)
    assert p.read_compact_array_count(b"\x00", 0, 4) == (-1, 1)
    assert p.read_array_count(b"\x00\x00\x00\x02" + bytes(8), 0, 4) == (2, 4)
    assert p.read_array_count(b"\xff\xff\xff\xff", 0, 4) == (-1, 4)
    with pytest.raises(Malformed):
        p.read_compact_array_count(b"\x04" + bytes(8), 0, 4)
    with pytest.raises(Malformed):
        p.read_array_count(b"\x7f\xff\xff\xff" + bytes(8), 0, 1)
    with pytest.raises(Malformed):
        p.read_array_count(b"\x00\x00", 0, 1)


def test_tagged_fields_are_skipped_within_bounds() -> None:
    section = b"\x02\x00\x03abc\x07\x00"
    assert p.skip_tagged_fields(section + b"rest", 0) == len(section)
    for end in range(len(section)):
        with pytest.raises(Malformed):
            p.skip_tagged_fields(section[:end], 0)
