"""The map of keys and what it leaves of batches: the compiled side and Python's, held against each other."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import BatchBuilder, CompressionType, Record, batches, crc_is_valid, iterate, read_header
from ottla.records.cleaning import _pure, clean_batch, emptied, map_within, stamp_marker

try:
    from ottla.records.cleaning import _native
except ImportError:  # Without a compiler there is one side only.
    _native = None  # type: ignore[assignment]

SECRET = bytes(range(16))
NOW = 1_700_000_000_000
SIDES: list[ModuleType] = [side for side in (_native, _pure) if side is not None]

each_side = pytest.mark.parametrize("side", SIDES, ids=lambda side: side.__name__.rpartition(".")[2])

Pair = tuple[bytes | None, bytes | None]

pairs = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=20, max_size=40)),
        st.one_of(st.none(), st.binary(max_size=90)),
    ),
    min_size=1,
    max_size=8,
)
stamps = st.integers(-(1 << 40), 1 << 40)


@st.composite
def plain_batches(draw: st.DrawFn) -> bytes:
    """Some plain batches, one after the other, with gaps in their offsets as compaction leaves them."""
    output = bytearray()
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 5))):
        horizon = draw(st.one_of(st.none(), st.just(NOW - 5), st.just(NOW + 5)))
        builder = BatchBuilder(
            base_offset=offset,
            leader_epoch=draw(st.integers(0, 3)),
            producer_id=draw(st.sampled_from((-1, 7))),
            log_append_time_ms=draw(st.one_of(st.none(), st.just(NOW + 1))),
            delete_horizon_ms=horizon,
        )
        for key, value in draw(pairs):
            offset += draw(st.integers(0, 2))
            headers = draw(st.sampled_from(((), ((b"name", b"content"),), ((b"", None),))))
            builder.append(NOW + draw(stamps), key, value, headers, offset=offset)
            offset += 1
        offset += draw(st.integers(0, 2))
        output += builder.build(last_offset=offset - 1)
    return bytes(output)


def cleaned(side: ModuleType, mapped: bytes, data: bytes, entries_max: int, start: int) -> tuple[object, ...]:
    """Everything that can be asked of a map that was built over `mapped`, about `data`."""
    offsets = side.OffsetMap(2 * entries_max + 1, entries_max, SECRET)
    added = offsets.add_batches(mapped, 0, start)
    facts = (added, offsets.entries, offsets.latest_offset)
    pinned = frozenset(header.last_offset for header, _ in batches(data) if header.base_offset % 2)
    return (*facts, offsets.clean_batches(data, 0, NOW, NOW + 1000, pinned))


@pytest.mark.slow
@pytest.mark.skipif(_native is None, reason="there is no compiled side")
@settings(max_examples=60, deadline=None)
@given(plain_batches(), plain_batches(), st.integers(1, 12), st.integers(0, 12))
def test_both_sides_agree(mapped: bytes, data: bytes, entries_max: int, start: int) -> None:
    assert cleaned(_native, mapped, data, entries_max, start) == cleaned(_pure, mapped, data, entries_max, start)


@pytest.mark.skipif(_native is None, reason="there is no compiled side")
@settings(max_examples=60, deadline=None)
@given(plain_batches(), st.integers(0, 400), st.integers(0, 255))
def test_both_sides_refuse_the_same(data: bytes, at: int, byte: int) -> None:
    spoilt = bytearray(data)
    spoilt[at % len(data)] = byte
    answers = []
    for side in (_native, _pure):
        try:
            answers.append(cleaned(side, bytes(spoilt), bytes(spoilt), 50, 0))
        except ValueError as error:
            answers.append((str(error),))
    assert answers[0] == answers[1]


@settings(max_examples=60, deadline=None)
@given(plain_batches())
def test_what_stays_is_what_a_dictionary_says(data: bytes) -> None:
    records = [record for _, batch in batches(data) for record in iterate(batch)]
    horizons = {
        record.offset: header.base_timestamp if header.has_delete_horizon else None
        for header, batch in batches(data)
        for record in iterate(batch)
    }
    last = {record.key: record.offset for record in records if record.key is not None}
    expected = [
        record
        for record in records
        if record.key is not None
        and last[record.key] == record.offset
        and (record.value is not None or (horizons[record.offset] or NOW + 1) > NOW)
    ]
    for side in SIDES:
        offsets = side.OffsetMap(101, 100, SECRET)
        assert offsets.add_batches(data, 0, 0) == (len(data), False)
        position, output = offsets.clean_batches(data, 0, NOW, NOW + 1000, frozenset())
        assert position == len(data)
        kept: list[Record] = []
        for header, batch in batches(output):
            assert crc_is_valid(batch, 0, len(batch))
            found = list(iterate(batch))
            kept += found
            stamped = max(record.timestamp for record in found)
            assert header.max_timestamp == stamped or stamped < 0
            if any(record.value is None for record in found):
                assert header.base_timestamp == (horizons[found[0].offset] or NOW + 1000)
        assert kept == expected


@each_side
def test_plain_batches_end_where_something_else_begins(side: ModuleType) -> None:
    plain = BatchBuilder()
    plain.append(NOW, b"a", b"1")
    packed = BatchBuilder(base_offset=1, compression=CompressionType.GZIP)
    packed.append(NOW, b"b", b"1")
    first, second = bytes(plain.build()), bytes(packed.build())
    offsets = side.OffsetMap(11, 10, SECRET)
    assert offsets.add_batches(first + second, 0, 0) == (len(first), False)
    assert offsets.add_batches(first + second, len(first), 0) == (len(first), False)
    assert offsets.add_batches(first[:-1], 0, 0) == (0, False)
    assert offsets.clean_batches(first + second, 0, NOW, NOW, frozenset()) == (len(first), first)


@each_side
def test_a_map_takes_no_more_than_it_was_made_for(side: ModuleType) -> None:
    with pytest.raises(ValueError):
        side.OffsetMap(10, 10, SECRET)
    with pytest.raises(ValueError):
        side.OffsetMap(10, 5, b"short")
    builder = BatchBuilder()
    for index in range(9):
        builder.append(NOW, b"k%d" % index, b"")
    offsets = side.OffsetMap(8, 7, SECRET)
    assert offsets.add_batches(bytes(builder.build()), 0, 0) == (0, True)
    assert (offsets.entries, offsets.latest_offset) == (7, 6)


def test_a_map_is_as_large_as_its_memory_and_no_larger_than_it_need_be() -> None:
    small = map_within(1 << 30, 0.9, 3, SECRET)
    builder = BatchBuilder()
    for index in range(4):
        builder.append(NOW, b"k%d" % index, b"")
    assert small.add_batches(bytes(builder.build()), 0, 0)[1]
    assert map_within(0, 0.9, 1000, SECRET).entries == 0


@pytest.mark.parametrize("compression", list(CompressionType))
def test_a_compressed_batch_stays_compressed(compression: CompressionType) -> None:
    builder = BatchBuilder(base_offset=10, compression=compression, producer_id=3, producer_epoch=1, base_sequence=5)
    for index in range(6):
        builder.append(NOW + index, b"k%d" % (index % 2), b"value %d" % index)
    batch = memoryview(builder.build())
    header = read_header(batch)
    offsets = map_within(1 << 16, 0.9, 100, SECRET)
    offsets.add(b"".join(_body(builder)), 6, 10, 0)
    offsets.latest_offset = 15
    kept = clean_batch(offsets, batch, header, NOW, NOW + 10)
    assert kept is not None
    after = read_header(kept)
    assert (after.base_offset, after.last_offset, after.base_sequence, after.record_count) == (10, 15, 5, 2)
    assert after.compression == compression
    assert [(record.offset, record.value) for record in iterate(kept)] == [(14, b"value 4"), (15, b"value 5")]


def _body(builder: BatchBuilder) -> list[bytes]:
    return [bytes(builder._body)]


def test_an_emptied_batch_keeps_offsets_sequence_and_kind() -> None:
    builder = BatchBuilder(
        base_offset=7,
        leader_epoch=4,
        producer_id=3,
        producer_epoch=1,
        base_sequence=5,
        transactional=True,
        compression=CompressionType.ZSTD,
    )
    builder.append(NOW, b"a", b"1")
    builder.append(NOW + 9, b"a", b"2")
    batch = emptied(read_header(builder.build()))
    header = read_header(batch)
    assert len(batch) == 61
    assert crc_is_valid(batch, 0, 61)
    assert list(iterate(batch)) == []
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 8, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (3, 1, 5, 6)
    assert (header.is_transactional, header.compression, header.max_timestamp) == (True, 0, NOW + 9)


def test_a_marker_gets_its_horizon_and_keeps_the_rest() -> None:
    builder = BatchBuilder(base_offset=3, producer_id=9, producer_epoch=2, transactional=True, control=True)
    builder.append(NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x05")
    batch = memoryview(builder.build())
    stamped = stamp_marker(batch, read_header(batch), NOW + 77)
    header = read_header(stamped)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 77
    assert header.is_control
    assert list(iterate(stamped)) == list(iterate(batch))
