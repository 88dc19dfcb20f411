"""What is built can be read back, record by record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import Malformed
from ottla.records import BatchBuilder, CompressionType, Record, crc_is_valid, iterate, read_header
from ottla.records.varint import encode_varint, read_varint, read_varlong, varint_size

from .crafting import NOW, batch_of, golden, plain_batch, record

LONG = st.integers(-(2**63), 2**63 - 1)
CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=4)
RECORDS = st.lists(st.tuples(st.integers(0, 2**41), CONTENT, CONTENT, HEADERS), min_size=1, max_size=20)


@pytest.mark.parametrize("codec", CompressionType)
@settings(max_examples=40, deadline=None)
@given(records=RECORDS, base_offset=st.integers(0, 2**60), gaps=st.lists(st.integers(0, 1000), max_size=20))
def test_what_is_built_reads_back(
    codec: CompressionType,
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    base_offset: int,
    gaps: list[int],
) -> None:
    builder = BatchBuilder(compression=codec, base_offset=base_offset)
    expected = []
    for index, (timestamp, key, value, headers) in enumerate(records):
        offset = builder.next_offset + (gaps[index] if index < len(gaps) else 0)
        builder.append(timestamp, key, value, headers, offset=offset)
        expected.append(Record(offset, timestamp, key, value, tuple(headers)))
    batch = builder.build()
    assert list(iterate(batch)) == expected
    header = read_header(batch)
    assert crc_is_valid(batch, 0, len(batch))
    assert header.compression == codec
    assert header.max_timestamp == max(timestamp for timestamp, *_ in records)
    assert header.base_timestamp == records[0][0]
    assert (header.record_count, header.last_offset) == (len(records), expected[-1].offset)


def test_a_batch_is_the_same_byte_by_byte_as_a_real_client_sends_it() -> None:
    for client in ("java", "confluent", "aiokafka"):
        theirs = golden()[client, "none"]
        told = read_header(theirs)
        builder = BatchBuilder(
            leader_epoch=told.leader_epoch,
            producer_id=told.producer_id,
            producer_epoch=told.producer_epoch,
            base_sequence=told.base_sequence,
        )
        builder.append(NOW, b"key", b"value" * 20, [("trace", b"abc"), ("none", None)])
        builder.append(NOW + 7, None, b"second")
        builder.append(NOW + 3, b"gone", None)
        assert builder.build() == theirs


def test_log_append_time_is_every_records_time() -> None:
    builder = BatchBuilder(log_append_time_ms=NOW + 100)
    builder.append(NOW, None, b"a")
    builder.append(NOW + 7, None, b"b")
    assert [read.timestamp for read in iterate(builder.build())] == [NOW + 100] * 2


def test_a_delete_horizon_takes_the_base_timestamps_place_and_moves_no_record_in_time() -> None:
    builder = BatchBuilder(delete_horizon_ms=NOW + 10**9)
    builder.append(NOW, b"k", None)
    header = read_header(builder.build())
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 10**9
    assert header.max_timestamp == NOW
    assert next(iterate(builder.build())).timestamp == NOW


def test_compaction_can_keep_the_end_of_a_range_even_in_an_empty_batch() -> None:
    builder = BatchBuilder(base_offset=100)
    with pytest.raises(ValueError, match="without records"):
        builder.build()
    empty = builder.build(last_offset=120)
    assert read_header(empty).last_offset == 120
    assert list(iterate(empty)) == []
    builder.append(NOW, b"k", b"v", offset=110)
    assert len(builder) == 1
    with pytest.raises(ValueError, match="follows"):
        builder.append(NOW, b"k", b"v", offset=110)
    with pytest.raises(ValueError, match="before that of a record"):
        builder.build(last_offset=109)
    assert read_header(builder.build(last_offset=120)).last_offset == 120


def test_the_size_is_known_before_the_batch_is_built() -> None:
    builder = BatchBuilder()
    for index in range(200):
        builder.append(NOW + index * 1000, b"key", b"x" * index, [("h", b"v")])
        assert builder.size == len(builder.build())


def test_a_batch_cut_at_any_byte_is_malformed_and_never_read_past() -> None:
    for codec in CompressionType:
        batch = plain_batch(5, codec=codec)
        for size in range(len(batch)):
            with pytest.raises(Malformed):
                list(iterate(batch[:size]))
        assert len(list(iterate(batch + b"more"))) == 5, "what follows the batch is not its business"


@pytest.mark.parametrize(
    "records",
    [
        [record(length=9)],
        [record(length=7)],
        [record(length=-1)],
        [record(length=2**31 - 1)],
        [record(key_length=100)],
        [record(value_length=2**31 - 1)],
        [record(headers=encode_varint(-1))],
        [record(headers=encode_varint(2**31 - 1))],
        [record(headers=encode_varint(1))],
        [record(headers=encode_varint(1) + encode_varint(-1) + encode_varint(-1))],
        [record(tail=b"x")],
        [record(), b"x"],
        [b"\xff" * 6],
    ],
)
def test_records_whose_lengths_lie_are_malformed(records: list[bytes]) -> None:
    with pytest.raises(Malformed):
        list(iterate(batch_of(*records, count=1)))


@given(LONG)
def test_varints_round_trip_in_the_fewest_bytes(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) == varint_size(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_varint(b"x" + encoded, 1) == (value, len(encoded) + 1)
    for size in range(len(encoded)):
        with pytest.raises(Malformed, match="past the end"):
            read_varlong(encoded[:size], 0)


def test_varints_known_from_the_protocol() -> None:
    known = {
        0: "00",
        -1: "01",
        1: "02",
        63: "7e",
        -64: "7f",
        64: "8001",
        2**31 - 1: "feffffff0f",
        -(2**31): "ffffffff0f",
    }
    for value, encoded in known.items():
        assert encode_varint(value).hex() == encoded
    with pytest.raises(Malformed, match="longer than 5"):
        read_varint(b"\x80" * 6, 0)
    with pytest.raises(Malformed, match="longer than 10"):
        read_varlong(b"\x80" * 11, 0)
