"""The registry: every instrument of a node, found by its row and labels, and the page that Prometheus scrapes.

A node has one, handed to whoever measures something. Looking an instrument up is for start-up and for new topics;
hot paths keep the instrument and add to it. Gauges cost nothing until a scrape asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from ottla.metrics.exposition import header, line, pairs
from ottla.metrics.instruments import Counter, Histogram, Meter
from ottla.metrics.rows import ROWS, Kind, MetricRow

OTHER = "__other__"
"""The label value of the one series that all share for which there is no room."""

_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_ROTATE_S = 60.0

Instrument = TypeVar("Instrument", Counter, Meter, Histogram)
Series = Iterable[tuple[tuple[str, ...], float]]


class Registry:
    """Get-or-create by row name and label values: `registry.meter("kafka_…_bytesin", topic)`."""

    __slots__ = ("_gauges", "_instruments", "_rotated_at_s", "_rows", "_suppliers")

    def __init__(self, rows: Iterable[MetricRow] = ROWS) -> None:
        self._rows: Mapping[str, MetricRow] = {row.name: row for row in rows}
        self._instruments: dict[str, dict[tuple[str, ...], Counter | Meter | Histogram]] = {}
        self._gauges: dict[str, dict[tuple[str, ...], Callable[[], float]]] = {}
        self._suppliers: dict[str, list[Callable[[], Series]]] = {}
        self._rotated_at_s: float | None = None

    def counter(self, name: str, *labels: str) -> Counter:
        return self._instrument(name, Kind.COUNTER, Counter, labels)

    def meter(self, name: str, *labels: str) -> Meter:
        return self._instrument(name, Kind.METER, Meter, labels)

    def histogram(self, name: str, *labels: str) -> Histogram:
        """A histogram of durations: `histogram.observe(microseconds)`."""
        return self._instrument(name, Kind.DURATION, Histogram, labels)

    def gauge(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """`read` is called at every scrape."""
        self._check(name, Kind.GAUGE, labels)
        self._gauges.setdefault(name, {})[labels] = read

    def gauges(self, name: str, read: Callable[[], Series]) -> None:
        """Like `gauge`, for values that come and go: `read` gives label values and numbers at every scrape."""
        row = self._rows[name]
        assert row.kind is Kind.GAUGE, name
        self._suppliers.setdefault(name, []).append(read)

    def remove(self, name: str, *labels: str) -> None:
        """Forget one series, such as that of a deleted topic; adding to its instrument has no effect from now on."""
        self._check(name, self._rows[name].kind, labels)
        self._instruments.get(name, {}).pop(labels, None)
        self._gauges.get(name, {}).pop(labels, None)

    def _check(self, name: str, kind: Kind, labels: tuple[str, ...]) -> MetricRow:
        row = self._rows[name]
        assert row.kind is kind, f"{name} is a {row.kind.name}"
        assert len(labels) == len(row.labels), f"{name} has the labels {row.labels}"
        return row

    def _instrument(self, name: str, kind: Kind, make: type[Instrument], labels: tuple[str, ...]) -> Instrument:
        row = self._check(name, kind, labels)
        series = self._instruments.setdefault(name, {})
        if labels not in series and len(series) >= row.series_max:
            labels = (OTHER,) * len(labels)
        found = series.get(labels)
        if found is None:
            found = series[labels] = make()
        assert isinstance(found, make)
        return found

    def render(self, now_s: float, *, with_resources: bool = True) -> str:
        """The page; `now_s` is monotonic time, which rates need. Without resources it names no topic and no group."""
        if self._rotated_at_s is None:
            self._rotated_at_s = now_s
        elif now_s - self._rotated_at_s >= _ROTATE_S:
            self._rotated_at_s = now_s
            for series in self._instruments.values():
                for instrument in series.values():
                    if isinstance(instrument, Histogram):
                        instrument.rotate()
        shown = (row for row in self._rows.values() if with_resources or not row.names_resources)
        return "".join(part for row in shown for part in self._family(row, now_s))

    def _family(self, row: MetricRow, now_s: float) -> Iterator[str]:
        series = self._instruments.get(row.name, {})
        match row.kind:
            case Kind.GAUGE:
                yield from self._gauge_family(row)
            case Kind.DURATION:
                if series:
                    yield header(row.name, "summary", row.help)
                for labels, instrument in series.items():
                    assert isinstance(instrument, Histogram)
                    yield from _summary(row, pairs(row.labels, labels), instrument)
            case _:
                if series:
                    yield header(f"{row.name}_total", "counter", row.help)
                for labels, instrument in series.items():
                    assert isinstance(instrument, Counter | Meter)
                    yield line(f"{row.name}_total", pairs(row.labels, labels), instrument.value)
                if series and row.kind is Kind.METER:
                    yield header(f"{row.name}_rate", "gauge", f"A second, lately: {row.help}")
                    for labels, instrument in series.items():
                        assert isinstance(instrument, Meter)
                        yield line(f"{row.name}_rate", pairs(row.labels, labels), instrument.rate(now_s))

    def _gauge_family(self, row: MetricRow) -> Iterator[str]:
        values: dict[tuple[str, ...], float] = {
            labels: read() for labels, read in self._gauges.get(row.name, {}).items()
        }
        for supply in self._suppliers.get(row.name, ()):
            for labels, value in supply():
                if len(values) >= row.series_max:
                    break
                values[labels] = value
        if values:
            yield header(row.name, "gauge", row.help)
        for labels, value in values.items():
            yield line(row.name, pairs(row.labels, labels), value)


def _summary(row: MetricRow, labels: list[tuple[str, str]], histogram: Histogram) -> Iterator[str]:
    """Quantiles in milliseconds; the quantile 1 is the largest."""
    values = [*histogram.quantiles(*_QUANTILES), histogram.max]
    for quantile, value in zip((*_QUANTILES, 1), values, strict=True):
        yield line(row.name, [*labels, ("quantile", str(quantile))], value / 1000)
    yield line(f"{row.name}_sum", labels, histogram.total / 1000)
    yield line(f"{row.name}_count", labels, histogram.count)
