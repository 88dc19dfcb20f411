"""The reference page of all metrics, made from the table.

`python -m ottla.metrics.reference > docs/metrics-reference.md` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metrics.rows import ROWS, Kind, MetricRow

_INTRODUCTION = """\
# Metrics, one by one

<!-- Made by `python -m ottla.metrics.reference > docs/metrics-reference.md`; change the rows in src/ottla/metrics. -->

What `/metrics` shows, under the names that Kafka's JMX beans get in Prometheus. A series appears when there is
something to tell: a topic that nobody reads has no bytes out. A *meter* is a counter (`_total`) and its rate a second
(`_rate`). A *summary* has the quantiles 0.5 to 0.999 of the last minute or two and, as quantile 1, the largest; `_sum`
and `_count` are since the start. Times are in milliseconds. See [metrics.md](metrics.md).

| metric | kind | labels | what it is |
|---|---|---|---|"""

_KINDS = {Kind.COUNTER: "counter", Kind.METER: "meter", Kind.GAUGE: "gauge", Kind.DURATION: "summary"}


def render() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *map(_line, ROWS), ""])


def shown_names(row: MetricRow) -> Iterator[str]:
    """The names under which a row stands on the page of metrics."""
    match row.kind:
        case Kind.GAUGE:
            yield row.name
        case Kind.DURATION:
            yield from (row.name, f"{row.name}_sum", f"{row.name}_count")
        case Kind.COUNTER:
            yield f"{row.name}_total"
        case Kind.METER:
            yield from (f"{row.name}_total", f"{row.name}_rate")


def _line(row: MetricRow) -> str:
    name = f"`{row.name}`" if row.kind in (Kind.GAUGE, Kind.DURATION) else f"`{row.name}_total`"
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"| {name} | {_KINDS[row.kind]} | {labels} | {row.help} |"


if __name__ == "__main__":
    print(render(), end="")
