"""Filters that Spark pushes: taken where they choose exactly, and left to Spark where they do not."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.spark.source.filters import Pruning


def pushed(*filters: Filter) -> tuple[Pruning, list[Filter]]:
    pruning = Pruning()
    return pruning, pruning.push(filters)


def test_partitions_and_topics_are_chosen() -> None:
    pruning, left = pushed(
        IsNotNull(("partition",)),
        In(("partition",), (1, 2, 3)),
        EqualTo(("partition",), 2),
        EqualTo(("topic",), "orders"),
    )
    assert (pruning.partitions, pruning.topics, left) == ({2}, {"orders"}, [])


def test_offsets_are_bounded_exactly() -> None:
    pruning, left = pushed(GreaterThan(("offset",), 10), LessThanOrEqual(("offset",), 20))
    assert (pruning.first_offset, pruning.end_offset, left) == (11, 21, [])
    pruning, left = pushed(GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 20), EqualTo(("offset",), 12))
    assert (pruning.first_offset, pruning.end_offset, left) == (12, 13, [])


def test_a_lower_bound_of_time_helps_and_is_left_to_spark_too() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    condition = GreaterThanOrEqual(("timestamp",), noon)
    pruning, left = pushed(condition)
    assert left == [condition]
    assert pruning.since_ms == int(noon.timestamp() * 1000) - 1


def test_records_without_a_timestamp_are_not_passed_over() -> None:
    """Theirs is -1, a millisecond before 1970."""
    condition = GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))
    assert pushed(condition) == (Pruning(), [condition])


def test_what_does_not_choose_offsets_is_left_to_spark() -> None:
    conditions: list[Filter] = [
        LessThan(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        GreaterThan(("partition",), 1),
        IsNotNull(("key",)),
        In(("offset",), (1, 2)),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # Of no time zone: nobody knows when that is.
    ]
    pruning, left = pushed(*conditions)
    assert left == conditions
    assert pruning == Pruning()
