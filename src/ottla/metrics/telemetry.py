"""The last metrics that each client pushed (KIP-714), kept within bounds and shown with the node's own.

Clients are strangers: names and labels are cut to size and renamed to what Prometheus allows, a prefix keeps them from
passing for the node's own metrics, and when there is no room the client that has been silent longest is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from ottla.metrics.exposition import header, line, metric_name
from ottla.metrics.otlp import Point, PointKind

_OWN_LABELS = ("client_instance_id", "client_id")
_CHARS_MAX = 128

Labels = tuple[tuple[str, str], ...]


class _Client:
    """One client instance: who it says it is, and the last value of each of its series."""

    __slots__ = ("labels", "pushed_at_s", "series")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.pushed_at_s = 0.0
        self.series: dict[tuple[str, Labels], float] = {}


class ClientTelemetry:
    """What clients pushed. Driven by the PushTelemetry handler and by the scrape."""

    __slots__ = (
        "_clients",
        "_clients_max",
        "_idle_s_max",
        "_kinds",
        "_series",
        "_series_max",
        "_series_per_client_max",
    )

    def __init__(
        self,
        *,
        clients_max: int = 500,
        series_per_client_max: int = 500,
        series_max: int = 20_000,
        idle_s_max: float = 900.0,
    ) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()  # The one that pushed last comes last.
        self._clients_max = clients_max
        self._series_per_client_max = series_per_client_max
        self._series_max = series_max
        self._idle_s_max = idle_s_max
        self._series = 0

    @property
    def client_count(self) -> int:
        return len(self._clients)

    @property
    def series_count(self) -> int:
        return self._series

    def push(self, client_instance_id: str, client_id: str, points: Iterable[Point], now_s: float) -> None:
        """Keep what a client pushed; a sum of what was added since the last push grows the value that is kept."""
        client = self._clients.get(client_instance_id)
        if client is None:
            labels = tuple(zip(_OWN_LABELS, (client_instance_id[:_CHARS_MAX], client_id[:_CHARS_MAX]), strict=True))
            client = self._clients[client_instance_id] = _Client(labels)
        self._clients.move_to_end(client_instance_id)
        client.pushed_at_s = now_s
        for point in points:
            key = (f"client_{metric_name(point.name)}", _labels(point))
            before = client.series.get(key)
            if before is None:
                if len(client.series) == self._series_per_client_max:
                    continue
                self._series += 1
            client.series[key] = point.value + (before or 0.0) if point.kind is PointKind.DELTA else point.value
        self._make_room(now_s)

    def forget(self, client_instance_id: str) -> None:
        """The client ended in an orderly way."""
        client = self._clients.pop(client_instance_id, None)
        if client is not None:
            self._series -= len(client.series)

    def render(self, now_s: float) -> str:
        """The lines for Prometheus, to follow those of the node."""
        self._make_room(now_s)
        families: dict[str, list[str]] = {}
        for client in self._clients.values():
            for (name, labels), value in client.series.items():
                families.setdefault(name, []).append(line(name, (*client.labels, *labels), value))
        return "".join(part for name, lines in families.items() for part in _family(name, lines))

    def _make_room(self, now_s: float) -> None:
        while self._clients:
            oldest, client = next(iter(self._clients.items()))
            crowded = len(self._clients) > self._clients_max or self._series > self._series_max
            idle = now_s - client.pushed_at_s > self._idle_s_max
            if not idle and (not crowded or len(self._clients) == 1):
                return
            self.forget(oldest)


def _family(name: str, lines: list[str]) -> Iterator[str]:
    yield header(name, "untyped", "Pushed by clients.")
    yield from lines


def _labels(point: Point) -> Labels:
    """The labels as Prometheus allows them, each name once, none that would pass for our own."""
    labels: dict[str, str] = {}
    for name, value in point.labels:
        labels.setdefault(metric_name(name), value)
    return tuple(sorted((name, value) for name, value in labels.items() if name not in _OWN_LABELS))
