"""What was measured lately: a bounded ring of moments, each with a value by series."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple


class Point(NamedTuple):
    time_s: float
    value: float


class History:
    """Times rise. The oldest moments are forgotten when there are more than `moments_max`; of one moment, no more than
    `series_max` series are kept."""

    def __init__(self, *, moments_max: int = 900, series_max: int = 2_000) -> None:
        self._moments: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=moments_max)
        self._series_max = series_max

    def add(self, time_s: float, values: Mapping[str, float]) -> None:
        if len(values) > self._series_max:
            values = dict(list(values.items())[: self._series_max])
        self._moments.append((time_s, values))

    def series(self, name: str, since_s: float = float("-inf")) -> list[Point]:
        return [Point(time_s, values[name]) for time_s, values in self._moments if time_s >= since_s and name in values]

    def rate(self, name: str, window_s: float = 10.0) -> float | None:
        """How fast a series that counts has risen over the last moments, a second; none if it is too new. One that fell
        was begun anew, as the end of a topic that was deleted and made again."""
        points = self.series(name)
        if len(points) < 2:
            return None
        last = points[-1]
        first = next(point for point in points if point.time_s >= last.time_s - window_s or point is points[-2])
        if last.time_s <= first.time_s:
            return None
        return max(0.0, (last.value - first.value) / (last.time_s - first.time_s))

    def rates(self, name: str) -> list[Point]:
        """The rise of a series that counts from each moment to the next, a second."""
        points = self.series(name)
        return [
            Point(after.time_s, max(0.0, (after.value - before.value) / (after.time_s - before.time_s)))
            for before, after in pairwise(points)
            if after.time_s > before.time_s
        ]
