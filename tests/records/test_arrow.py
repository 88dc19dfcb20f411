"""Arrow batches hold what the plain reader reads, record by record, on the compiled side and on numpy's."""

from __future__ import annotations

from array import array
from itertools import pairwise
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records import BatchBuilder, CompressionType, batches, end_txn_batch, iterate
from ottla.records import columns as columns_room
from ottla.records.arrow import Aborted, FetchedBatches, schema
from ottla.records.columns import _pure

from .crafting import batch_of, golden, record

try:
    from ottla.records.columns import _native
except ImportError:
    NATIVE: ModuleType | None = None
else:
    NATIVE = _native

SIDES = [
    pytest.param(_pure, id="numpy"),
    pytest.param(NATIVE, id="native", marks=pytest.mark.skipif(NATIVE is None, reason="the module is not compiled")),
]
Row = dict[str, Any]


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    chosen: ModuleType = request.param
    monkeypatch.setattr(columns_room, "_columns", chosen.columns)
    return chosen


def rows(data: bytes | bytearray, **how: Any) -> list[Row]:
    how.setdefault("with_headers", True)
    found = list(FetchedBatches(data).record_batches("orders", 3, **how))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == schema(with_headers=how["with_headers"])
    return [row for batch in found for row in batch.to_pylist()]


def expected(data: bytes | bytearray) -> list[Row]:
    """What the plain reader says, in the words of Spark's columns."""
    return [
        {
            "key": each.key,
            "value": each.value,
            "topic": "orders",
            "partition": 3,
            "offset": each.offset,
            "timestamp": each.timestamp,
            "timestampType": int(header.timestamp_type),
            "headers": [{"key": key, "value": value} for key, value in each.headers] or None,
        }
        for header, batch in batches(data)
        if not header.is_control
        for each in iterate(batch)
    ]


def milliseconds(found: list[Row]) -> list[Row]:
    return [row | {"timestamp": round(row["timestamp"].timestamp() * 1000)} for row in found]


byte_strings = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=140)
records = st.tuples(
    st.integers(0, 2**40),
    byte_strings,
    byte_strings,
    st.lists(st.tuples(st.text(max_size=8), byte_strings), max_size=3),
)
some_batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=12),
        st.sampled_from(CompressionType),
        st.none() | st.integers(0, 2**40),
        st.integers(0, 3),
    ),
    max_size=6,
)


def built(described: list[Any], *, first_offset: int = 0) -> bytes:
    data, offset = b"", first_offset
    for contents, compression, appended_ms, gap in described:
        builder = BatchBuilder(base_offset=offset, compression=compression, log_append_time_ms=appended_ms)
        for timestamp, key, value, headers in contents:
            builder.append(timestamp, key, value, headers, offset=offset)
            offset += 1 + gap
        data += builder.build()
    return data


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None)
@given(described=some_batches, window_bytes=st.sampled_from([1, 200, 1 << 23]), base=st.sampled_from([0, 2**40]))
@pytest.mark.parametrize("chosen", SIDES)
def test_the_rows_are_the_records(chosen: ModuleType, described: list[Any], window_bytes: int, base: int) -> None:
    data = built(described, first_offset=base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_room, "_columns", chosen.columns)
        wanted = expected(data)
        assert milliseconds(rows(data, window_bytes=window_bytes)) == wanted
        bare = [{key: value for key, value in row.items() if key != "headers"} for row in wanted]
        assert milliseconds(rows(data, with_headers=False)) == bare
        if wanted:
            first, end = wanted[len(wanted) // 3]["offset"], wanted[-1]["offset"]
            some = [row for row in wanted if first <= row["offset"] < end]
            assert milliseconds(rows(data, first_offset=first, end_offset=end)) == some


@pytest.mark.parametrize("name", golden())
def test_batches_that_apache_kafka_stored(side: ModuleType, name: tuple[str, str]) -> None:
    data = golden()[name]
    assert milliseconds(rows(data)) == expected(data)


def one(offset: int, value: bytes, **how: Any) -> bytes:
    builder = BatchBuilder(base_offset=offset, **how)
    builder.append(1, None, value)
    return bytes(builder.build())


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    how = {"coordinator_epoch": 0, "producer_id": producer_id, "producer_epoch": 0, "timestamp": 1}
    return bytes(end_txn_batch(commit=commit, base_offset=offset, **how))


def test_what_aborted_transactions_wrote_is_left_out_from_their_first_offset_to_their_marker(side: ModuleType) -> None:
    def by(producer_id: int) -> dict[str, Any]:
        return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}

    data = b"".join(
        (
            one(0, b"plain"),
            one(1, b"earlier, committed", **by(7)),
            marker(2, 7, commit=True),
            one(3, b"aborted", **by(7)),
            one(4, b"of another", **by(8)),
            one(5, b"plain, of the same producer", producer_id=7, producer_epoch=0, base_sequence=9),
            marker(6, 7, commit=False),
            one(7, b"later, committed", **by(7)),
            marker(8, 7, commit=True),
            one(9, b"aborted too", **by(8)),
            marker(10, 8, commit=False),
        )
    )
    seen = [row["value"] for row in rows(data, aborted=[Aborted(8, 9), Aborted(7, 3)])]
    assert seen == [
        b"plain",
        b"earlier, committed",
        b"of another",
        b"plain, of the same producer",
        b"later, committed",
    ]
    assert len(rows(data)) == 7
    assert FetchedBatches(data).next_offset == 11


def test_a_partial_batch_at_the_end_is_left_for_the_next_fetch(side: ModuleType) -> None:
    whole, more = one(0, b"a"), one(1, b"b" * 100)
    for size in range(len(more)):
        fetched = FetchedBatches(whole + more[:size])
        assert fetched.next_offset == 1
        assert [batch.num_rows for batch in fetched.record_batches("orders", 3)] == [1]
    assert FetchedBatches(more[:-1]).next_offset is None
    assert FetchedBatches(b"").next_offset is None


def test_a_batch_that_changed_on_its_way_is_refused(side: ModuleType) -> None:
    data = bytearray(one(5, b"a") + one(6, b"b"))
    data[-3] ^= 1
    with pytest.raises(KafkaError, match=r"orders-3 cannot be read from offset 6 on: its CRC does not match") as raised:
        rows(data)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


def test_an_older_format_is_refused() -> None:
    data = bytearray(one(0, b"a"))
    data[16] = 1
    with pytest.raises(KafkaError, match="message format v1"):
        FetchedBatches(data)


def test_header_keys_that_are_not_text_are_replaced(side: ModuleType) -> None:
    builder = BatchBuilder()
    builder.append(1, None, None, [(b"\xff", b"1"), (b"good", None)])
    (row,) = rows(builder.build())
    assert row["headers"] == [{"key": "\ufffd", "value": b"1"}, {"key": "good", "value": None}]


@pytest.mark.parametrize(
    "body",
    [
        record(length=60),
        record(length=1),
        record(length=0) + record(),
        record(key_length=40),
        record(value_length=2**30),
        record(headers=b"\x01"),
        record(headers=b"\x02"),
        record(headers=b"\x02\x01\x00"),
        record(headers=b"\xff\xff\xff\xff\x0f"),
        record(tail=b"\x00"),
        record() + b"\x00",
        b"\xff" * 30,
        b"\x80" * 6 + b"\x00" * 20,
        b"",
    ],
)
def test_bytes_that_are_no_records_are_refused_though_their_crc_is_right(side: ModuleType, body: bytes) -> None:
    with pytest.raises(KafkaError, match="cannot be read from offset 0 on") as raised:
        rows(batch_of(body, count=1))
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.slow
@pytest.mark.skipif(NATIVE is None, reason="the module is not compiled")
def test_both_sides_give_the_same_verdict_on_any_bytes() -> None:
    assert NATIVE is not None
    random = Random(6)
    verdicts = {True: 0, False: 0}
    for _ in range(3000):
        headers = random.choice((b"\x00", b"\x02\x02k\x02v", b"\x04\x02a\x01\x02b\x00"))
        contents = [
            record(place, key=random.choice((None, b"", b"key")), value=random.randbytes(9), headers=headers)
            for place in range(4)
        ]
        body = bytearray(b"".join(contents))
        for _ in range(random.choice((0, 1, 2))):
            body[random.randrange(len(body))] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
        spans = memoryview(array("q", (0, len(body), 4, 100, 1000, random.randrange(2), 5000))).cast("B")
        found = []
        for side in (_pure, NATIVE):
            try:
                found.append(_plain(side.columns(body, spans, 101, 103, True)))
            except ValueError as error:
                found.append(str(error))
        assert found[0] == found[1], bytes(body).hex()
        verdicts[isinstance(found[0], str)] += 1
    assert min(verdicts.values()) > 500


def _plain(found: Any) -> Any:
    """The buffers as bytes, whoever holds them; bits and bytes beyond the last row do not count."""
    rows, offsets, timestamps, types, keys, values, headers = found
    plain = [rows, bytes(offsets), bytes(timestamps), bytes(types), _column(keys, rows), _column(values, rows)]
    if headers is not None:
        total, validity, list_offsets, names, contents = headers
        plain += [total, _bits(validity, rows), bytes(list_offsets), _column(names, total), _column(contents, total)]
    return plain


def _column(column: Any, rows: int) -> Any:
    validity, offsets, data = column
    bounds = memoryview(bytes(offsets)).cast("i")[: rows + 1].tolist()
    content = b"" if data is None else bytes(data)
    return [_bits(validity, rows), [content[a:b] for a, b in pairwise(bounds)]]


def _bits(validity: Any, rows: int) -> list[bool]:
    return [validity is None or bool(bytes(validity)[row >> 3] >> (row & 7) & 1) for row in range(rows)]
