"""`/charts`: throughput, latency, lag and replicas in sync over time."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ottla.console.chart import EARLY, chart
from ottla.console.console import Console
from ottla.console.history import Point
from ottla.console.markup import Markup, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, frame, live, unanswered
from ottla.console.units import count, duration, rate, size


def register(console: Console) -> None:
    @ui.page("/charts", response_timeout=RESPONSE_TIMEOUT_S)
    async def charts() -> None:
        await console.poller.first()
        with frame(console, "Charts", "/charts"):
            live(lambda: _page(console))


def _page(console: Console) -> Markup:
    look, history = console.poller.newest, console.poller.history
    if look is None:
        return unanswered()
    nodes = [broker.node for broker in look.cluster.brokers]
    told = any(look.metrics.values())

    def by_node(series: str, *, counts: bool) -> dict[str, Sequence[Point]]:
        measure = history.rates if counts else history.series
        return {f"node {node}": measure(f"{series}:{node}") for node in nodes}

    def records(value: float) -> str:
        return count(round(value), "record")

    def replicas(value: float) -> str:
        return count(round(value), "replica")

    def bytes_a_second(value: float) -> str:
        return f"{size(value)}/s"

    drawn = [
        chart(
            "Records appended, by topic",
            {name: history.rates(f"end:{name}") for name in look.topics},
            rate,
            empty=EARLY if look.topics else "There is no topic yet.",
        ),
        chart(
            "Behind the end, by group",
            {name: history.series(f"lag:{name}") for name in look.groups},
            records,
            empty=EARLY if look.groups else "There is no consumer group yet.",
        ),
        chart(
            "Replicas",
            {"in sync": history.series("replicas_in_sync"), "in all": history.series("replicas")},
            replicas,
        ),
        chart("Time of one question to the cluster", {"from here": history.series("latency_ms")}, duration),
    ]
    if told:
        drawn += [
            chart("Bytes from producers, by node", by_node("bytes_in", counts=True), bytes_a_second),
            chart("Bytes to consumers, by node", by_node("bytes_out", counts=True), bytes_a_second),
            chart(
                "Time of produce requests, 99th percentile",
                by_node("produce_ms", counts=False),
                duration,
                empty="Nobody has produced lately.",
            ),
            chart(
                "Time of fetch requests, waiting for records included, 99th percentile",
                by_node("fetch_ms", counts=False),
                duration,
                empty="Nobody has fetched lately.",
            ),
        ]
    return tag("div", drawn, class_="charts")
