"""Filters that Spark hands to the source: what they say of topic, partition, offset and time, so that less is read.

Topics, partitions and offsets are chosen exactly, so that Spark need not look again. Of timestamps only a lower bound
helps: before the first record that is as young, none is; behind it, any may be older, so that Spark looks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.records.arrow import OFFSET_END

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Pruning:
    """What is left to read. `None` is anything."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first_offset: int = 0
    end_offset: int = OFFSET_END
    since_ms: int | None = None

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Takes note of the filters; those that Spark has to apply itself are returned."""
        return [each for each in filters if not self._take(each)]

    def _take(self, condition: Filter) -> bool:
        from pyspark.sql.datasource import EqualTo, In, IsNotNull

        column = ".".join(getattr(condition, "attribute", ()))
        if isinstance(condition, IsNotNull):
            return column in _NEVER_NULL
        value = getattr(condition, "value", None)
        if value is None:
            return False
        if column in ("topic", "partition"):
            if isinstance(condition, EqualTo):
                return self._choose(column, {value})
            if isinstance(condition, In):
                return self._choose(column, set(value))
        if column == "offset":
            return self._bound_offsets(condition, value)
        if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            self._bound_time(condition, value)
        return False

    def _choose(self, column: str, values: set[str] | set[int]) -> bool:
        if None in values:
            return False
        chosen = getattr(self, f"{column}s")
        setattr(self, f"{column}s", values if chosen is None else chosen & values)
        return True

    def _bound_offsets(self, condition: Filter, value: int) -> bool:
        from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

        if isinstance(condition, EqualTo):
            first, end = value, value + 1
        elif isinstance(condition, GreaterThan):
            first, end = value + 1, OFFSET_END
        elif isinstance(condition, GreaterThanOrEqual):
            first, end = value, OFFSET_END
        elif isinstance(condition, LessThan):
            first, end = 0, value
        elif isinstance(condition, LessThanOrEqual):
            first, end = 0, value + 1
        else:
            return False
        self.first_offset, self.end_offset = max(self.first_offset, first), min(self.end_offset, end)
        return True

    def _bound_time(self, condition: Filter, value: datetime) -> None:
        from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual

        if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
            since_ms = int((value - _EPOCH).total_seconds() * 1000) - 1  # Records know milliseconds only.
            if since_ms > 0:  # Before that lie records without a timestamp (-1), which brokers do not look up.
                self.since_ms = since_ms if self.since_ms is None else max(self.since_ms, since_ms)
