"""How a table is partitioned by time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.spark.pipelines.definition import PipelineError


class Unit(Enum):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


_SHAPES = {Unit.HOUR: "%Y-%m-%d-%H", Unit.DAY: "%Y-%m-%d", Unit.MONTH: "%Y-%m"}


@dataclass(frozen=True, slots=True)
class TimePartitioning:
    """By hour, day or month (UTC) of a column of timestamps."""

    column: str
    unit: Unit

    @property
    def field(self) -> str:
        """The name of the partitions, as Iceberg names them."""
        return f"{self.column}_{self.unit.value}"

    @property
    def shape(self) -> str:
        """How a partition is written, for strftime."""
        return _SHAPES[self.unit]


def time_partitioning(column: str | None, unit: str) -> TimePartitioning | None:
    if column is None:
        return None
    try:
        return TimePartitioning(column, Unit(unit))
    except ValueError:
        raise PipelineError(f"A table cannot be partitioned by {unit}: choose hour, day or month.") from None
