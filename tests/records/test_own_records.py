"""Records that a node writes and reads itself, many at a time: the same bytes as one by one, on both sides."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.records import HEADER_SIZE, BatchBuilder, CompressionType, iterate, read_header
from ottla.records.records import keys_and_values

from .crafting import NOW, SIDES, record

PAIRS = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=20)


@pytest.mark.parametrize("side", SIDES)
@settings(max_examples=60, deadline=None)
@given(pairs=PAIRS, first=st.integers(0, 2**31 - 30), delta=st.integers(-(2**62), 2**62))
def test_packed_records_are_those_of_the_builder(
    side: ModuleType, pairs: list[tuple[bytes, bytes | None]], first: int, delta: int
) -> None:
    expected = b"".join(
        record(first + n, timestamp=delta, key=key, value=value) for n, (key, value) in enumerate(pairs)
    )
    assert side.pack_records(pairs, first, delta) == expected
    assert side.unpack_records(expected, len(pairs)) == [(first + n, *pair) for n, pair in enumerate(pairs)]


@pytest.mark.parametrize("codec", CompressionType)
def test_a_batch_may_grow_in_both_ways(codec: CompressionType) -> None:
    builder = BatchBuilder(base_offset=40, compression=codec)
    builder.append(NOW, b"a", b"1")
    builder.append_all(NOW + 5, [(b"b", b"2"), (b"c", None)])
    builder.append(NOW + 1, b"d", b"4", [("name", None)])
    batch = builder.build()
    header = read_header(batch)
    assert [(each.offset, each.timestamp, each.key, each.value) for each in iterate(batch)] == [
        (40, NOW, b"a", b"1"),
        (41, NOW + 5, b"b", b"2"),
        (42, NOW + 5, b"c", None),
        (43, NOW + 1, b"d", b"4"),
    ]
    assert (header.max_timestamp, header.record_count, header.last_offset_delta) == (NOW + 5, 4, 3)
    assert keys_and_values(batch, header) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", None), (3, b"d", b"4")]


@pytest.mark.parametrize("side", SIDES)
def test_bytes_that_are_no_records_are_refused(side: ModuleType) -> None:
    good = side.pack_records([(b"key", b"value"), (b"other", None)], 0, 0)
    for count, body in (
        (3, good),
        (1, good),
        (2, good[:-1]),
        (2, good + b"\0"),
        (1, b""),
        (1, b"\x01"),
        (1, b"\0"),
        (1, b"\xff" * 12),
    ):
        with pytest.raises(ValueError, match="not that many records"):
            side.unpack_records(body, count)
    assert side.unpack_records(b"", 0) == []


def test_both_sides_agree_on_any_bytes() -> None:
    sides = [side.values[0] for side in SIDES if side.values[0] is not None]
    random = Random(5)

    def verdict(side: object, body: bytes, count: int) -> object:
        assert isinstance(side, ModuleType)
        try:
            return side.unpack_records(body, count)
        except ValueError:
            return None

    for _ in range(3000):
        count = random.randrange(1, 4)
        builder = BatchBuilder()
        for number in range(count):
            headers = [("h", b"x")] * random.choice((0, 0, 1, 3))
            builder.append(NOW + number, random.choice((None, b"", b"key")), random.choice((None, b"v" * 70)), headers)
        body = bytearray(builder.build()[HEADER_SIZE:])
        for _ in range(random.randrange(3)):
            body[random.randrange(len(body))] = random.choice((0, 1, 2, 127, 128, 255, random.randrange(256)))
        assert len({repr(verdict(side, bytes(body), count)) for side in sides}) == 1


def test_a_batch_that_lies_is_malformed() -> None:
    builder = BatchBuilder()
    builder.append_all(NOW, [(b"key", b"value")])
    batch = builder.build()
    with pytest.raises(Malformed):
        keys_and_values(batch, read_header(batch)._replace(record_count=2))


@pytest.mark.parametrize("side", SIDES)
def test_only_bytes_are_packed(side: ModuleType) -> None:
    for wrong in ([("text", b"")], [(b"", "text")], [(None, b"")], [(b"",)]):
        with pytest.raises((TypeError, ValueError)):
            side.pack_records(wrong, 0, 0)
