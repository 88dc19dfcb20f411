"""Batches made of columns hold what those made record by record hold, on the compiled side and on Python's."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import BatchBuilder, CompressionType, Record, _pure, crc_is_valid, iterate, packing
from ottla.records._hot import NATIVE
from ottla.records.batch import HEADER_SIZE
from ottla.records.packing import RecordColumns, batches_of, rows_by_partition

CONTENT = st.none() | st.binary(max_size=60)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=8), CONTENT), max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 2**41), CONTENT, CONTENT, HEADERS), min_size=1, max_size=30)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def sides() -> list[ModuleType]:
    if not NATIVE:
        return [_pure]
    from ottla.records import _native

    return [_native, _pure]


@pytest.fixture(params=sides(), ids=lambda side: side.__name__.rpartition(".")[2])
def pack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    chosen: Callable[..., object] = request.param.pack_columns
    monkeypatch.setattr(packing, "pack_columns", chosen)
    return chosen


def columns_of(rows: list[Row], skipped: int = 0) -> RecordColumns:
    """`skipped` rows stand before the others in the arrays that these are slices of."""
    filling: list[Row] = [(0, b"skipped", b"skipped", [("skipped", b"")])] * skipped
    every = [*filling, *rows]
    headers = [
        None if each[3] is None else [{"key": name, "value": value} for name, value in each[3]] for each in every
    ]
    return RecordColumns.of(
        timestamps_ms=np.array([each[0] for each in rows], np.int64),
        key=pa.array([each[1] for each in every], pa.binary()).slice(skipped),
        value=pa.array([each[2] for each in every], pa.binary()).slice(skipped),
        headers=pa.array(headers, HEADER_TYPE).slice(skipped),
    )


@settings(derandomize=True, max_examples=150, deadline=None)
@given(rows=ROWS, skipped=st.integers(0, 3), bytes_max=st.integers(1, 2000), data=st.data())
def test_columns_become_the_records_that_they_hold(
    rows: list[Row], skipped: int, bytes_max: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    expected = [rows[index] for index in order]
    for side in sides():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(packing, "pack_columns", side.pack_columns)
            packed = list(batches_of(columns_of(rows, skipped), np.array(order, np.int64), bytes_max))
        found: list[Record] = []
        for each in packed:
            assert each.number == 1 or len(each.records) - HEADER_SIZE <= bytes_max
            batch = each.seal(BatchBuilder())
            assert crc_is_valid(batch, 0, len(batch))
            found += iterate(batch)
        assert [record[1:] for record in found] == [
            (timestamp, key, value, tuple(headers or ())) for timestamp, key, value, headers in expected
        ]


def test_a_batch_is_the_same_as_one_built_record_by_record(pack: Callable[..., object]) -> None:
    rows: list[Row] = [
        (1000 + number, b"k%d" % number, None if number % 3 else b"v" * number, []) for number in range(200)
    ]
    builder = BatchBuilder(producer_id=5, producer_epoch=2, base_sequence=7, transactional=True)
    for timestamp, key, value, _ in rows:
        builder.append(timestamp, key, value)
    (packed,) = batches_of(columns_of(rows), np.arange(200, dtype=np.int64), 1 << 20)
    sealed = packed.seal(BatchBuilder(producer_id=5, producer_epoch=2, base_sequence=7, transactional=True))
    assert sealed == builder.build()


def test_strings_and_large_types_are_taken_too(pack: Callable[..., object]) -> None:
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        value = pa.array(["one", None, "three"]).cast(kind)
        columns = RecordColumns.of(timestamps_ms=np.zeros(3, np.int64), key=None, value=value, headers=None)
        (packed,) = batches_of(columns, np.arange(3, dtype=np.int64), 1000)
        found = [record.value for record in iterate(packed.seal(BatchBuilder()))]
        assert found == [b"one", None, b"three"]


@pytest.mark.parametrize("header", [{"key": None, "value": b""}, None])
def test_a_header_without_a_key_is_refused(header: dict[str, bytes | None] | None) -> None:
    with pytest.raises(ValueError, match="A header has no key"):
        RecordColumns.of(
            timestamps_ms=np.zeros(1, np.int64), key=None, value=None, headers=pa.array([[header]], HEADER_TYPE)
        )


def test_what_a_null_list_of_headers_spans_is_none(pack: Callable[..., object]) -> None:
    spanned = pa.array([{"key": name, "value": b""} for name in "abcd"], HEADER_TYPE.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), spanned, mask=pa.array([False, True, False]))
    columns = RecordColumns.of(timestamps_ms=np.zeros(2, np.int64), key=None, value=None, headers=lists.slice(1))
    (packed,) = batches_of(columns, np.arange(2, dtype=np.int64), 1000)
    found = [record.headers for record in iterate(packed.seal(BatchBuilder()))]
    assert found == [(), (("d", b""),)]


@pytest.mark.parametrize(
    ("rows", "first", "timestamps"),
    [([3], 0, 3), ([-1], 0, 3), ([0], 1, 3), ([0], -1, 3), ([2], 0, 4)],
    ids=["beyond", "before", "nothing-left", "negative", "shorter-column"],
)
def test_rows_that_the_columns_do_not_hold_are_refused(
    pack: Callable[..., object], rows: list[int], first: int, timestamps: int
) -> None:
    column = (array("i", [0, 1, 2]).tobytes(), b"ab", None)
    with pytest.raises(ValueError, match="do not hold that row"):
        pack(array("q", rows).tobytes(), first, 100, bytes(8 * timestamps), column, None, None)


def test_offsets_that_lie_outside_the_data_are_refused(pack: Callable[..., object]) -> None:
    for offsets in ([0, 5], [-1, 1], [2, 1]):
        column = (array("i", offsets).tobytes(), b"ab", None)
        with pytest.raises(ValueError, match="do not hold that row"):
            pack(bytes(8), 0, 100, bytes(8), column, None, None)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(data=st.data(), count=st.integers(1, 40))
def test_rows_are_parted_in_their_order(data: st.DataObject, count: int) -> None:
    placed = data.draw(st.lists(st.integers(0, count - 1), max_size=60))
    expected: dict[int, list[int]] = {}
    for row, partition in enumerate(placed):
        expected.setdefault(partition, []).append(row)
    for side in sides():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(packing, "part_rows", side.part_rows)
            parted = list(rows_by_partition(np.array(placed, np.int64), count))
        assert [(partition, rows.tolist()) for partition, rows in parted] == sorted(expected.items())


@pytest.mark.parametrize("side", sides(), ids=lambda side: side.__name__.rpartition(".")[2])
@pytest.mark.parametrize(
    ("placed", "count", "said"),
    [([3], 3, "no such partition"), ([-1], 3, "no such partition"), ([0], 0, "at least one"), ([0], 2**31, "at most")],
)
def test_partitions_that_a_topic_does_not_have_are_refused(
    side: ModuleType, placed: list[int], count: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        side.part_rows(array("q", placed).tobytes(), count)


def test_compressed_batches_hold_the_same_records(pack: Callable[..., object]) -> None:
    rows: list[Row] = [(1000, b"key", b"value" * number, []) for number in range(50)]
    for codec in CompressionType:
        (packed,) = batches_of(columns_of(rows), np.arange(50, dtype=np.int64), 1 << 20)
        batch = packed.seal(BatchBuilder(compression=codec))
        assert crc_is_valid(batch, 0, len(batch))
        assert [record.value for record in iterate(batch)] == [row[2] for row in rows]
