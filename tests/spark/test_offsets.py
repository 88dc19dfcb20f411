"""Offsets as Spark's users see them, and what a micro-batch takes of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model import TopicPartition, Uuid
from ottla.spark.source.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    SourceError,
    StreamOffset,
    parse_offsets,
    shared_out,
    split,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = Uuid(b"0123456789abcdef"), Uuid(b"fedcba9876543210")


def test_a_streams_offset_is_json_in_the_words_of_sparks_own_source() -> None:
    offset = StreamOffset(positions={B0: 3, A1: 2, A0: 1}, topic_ids={"a": ID})
    said = offset.to_json()
    assert json.dumps(said) == '{"a": {"0": 1, "1": 2}, "b": {"0": 3}, "@ids": {"a": "MDEyMzQ1Njc4OWFiY2RlZg"}}'
    assert StreamOffset.from_json(said) == offset


def test_a_checkpoint_of_sparks_own_source_can_be_continued() -> None:
    offset = StreamOffset.from_json(json.loads('{"a":{"0":17,"1":4}}'))
    assert offset.positions == {A0: 17, A1: 4}
    assert not offset.is_recreated("a", ID)


def test_a_topic_made_again_under_its_name_is_another() -> None:
    offset = StreamOffset(positions={A0: 1}, topic_ids={"a": ID})
    assert offset.is_recreated("a", OTHER_ID)
    assert not offset.is_recreated("a", ID)
    assert not offset.is_recreated("b", OTHER_ID)


def test_what_is_missing_is_kept_if_it_can_be_known_again() -> None:
    before = StreamOffset(
        positions={TopicPartition("a", 0): 1, TopicPartition("b", 1): 2, TopicPartition("c", 0): 3},
        topic_ids={"a": ID, "b": ID},
    )
    now = StreamOffset(positions={TopicPartition("a", 0): 9}, topic_ids={"a": ID})
    kept = now.keeping(before)
    assert kept.positions == {TopicPartition("a", 0): 9, TopicPartition("b", 1): 2}, "c has no id"
    assert kept.topic_ids == {"a": ID, "b": ID}
    # Another topic of the name, with fewer partitions: its own are read from their beginning.
    other = StreamOffset(positions={TopicPartition("b", 0): 0}, topic_ids={"b": OTHER_ID}).keeping(before)
    assert TopicPartition("b", 1) not in other.positions
    assert other.topic_ids["b"] == OTHER_ID


def test_offsets_are_words_or_json() -> None:
    assert parse_offsets("startingOffsets", " Earliest ").everywhere == EARLIEST
    assert parse_offsets("startingOffsets", "latest").everywhere == LATEST
    assert parse_offsets("startingOffsets", '{"a": {"0": 23, "1": -2}}').each == {A0: 23, A1: EARLIEST}


@pytest.mark.parametrize("text", ["soon", "[1]", '{"a": 5}', '{"a": {"x": 5}}', '{"a": {"0": "y"}}', "{"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match=r"startingOffsets is .*; write it as JSON such as"):
        parse_offsets("startingOffsets", text)


sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def ranges_of(lengths: list[int]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("a", place), 100, 100 + size) for place, size in enumerate(lengths)]


@settings(derandomize=True)
@given(lengths=sizes, limit=st.integers(1, 3000))
def test_a_limit_is_shared_out_and_nobody_starves(lengths: list[int], limit: int) -> None:
    ranges = ranges_of(lengths)
    ends = shared_out(ranges, limit)
    taken = [ends[each.partition] - each.start for each in ranges]
    assert all(0 <= part <= size for part, size in zip(taken, lengths, strict=True))
    assert all(part > 0 for part, size in zip(taken, lengths, strict=True) if size)
    # Each partition that has something may take one, even if that is more than the limit.
    assert sum(taken) <= max(limit, sum(size > 0 for size in lengths)) + len(lengths)
    if sum(lengths) <= limit:
        assert taken == lengths


@settings(derandomize=True)
@given(lengths=sizes, parts_min=st.integers(0, 20), size_max=st.integers(0, 300))
def test_ranges_are_cut_without_losing_or_doubling_an_offset(lengths: list[int], parts_min: int, size_max: int) -> None:
    ranges = ranges_of(lengths)
    parts = split(ranges, parts_min=parts_min, size_max=size_max)
    for each in ranges:
        mine = [part for part in parts if part.partition == each.partition]
        covered = [offset for part in mine for offset in range(part.start, part.end)]
        assert covered == list(range(each.start, each.end))
    assert all(part.size > 0 for part in parts)
    if size_max:
        assert all(part.size <= size_max for part in parts)
    if parts_min and sum(lengths) >= parts_min * len(lengths):
        assert len(parts) >= parts_min - len(lengths)


def test_a_skewed_topic_is_cut_where_it_is_long() -> None:
    parts = split(ranges_of([900, 100]), parts_min=10)
    assert [part.partition.partition for part in parts] == [0] * 9 + [1]
    assert {part.size for part in parts} == {100}


def test_a_partition_that_shrank_ends_where_it_ends_now() -> None:
    assert shared_out([OffsetRange(A0, 10, 4)], 5) == {A0: 4}
