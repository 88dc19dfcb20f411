"""`/`: is the cluster well, at a glance."""

from __future__ import annotations

from nicegui import ui

from ottla.console.chart import chart
from ottla.console.console import Console
from ottla.console.health import findings
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, frame, live, unanswered
from ottla.console.poller import Look
from ottla.console.units import count, duration, rate, size


def register(console: Console) -> None:
    @ui.page("/", response_timeout=RESPONSE_TIMEOUT_S)
    async def health() -> None:
        await console.poller.first()
        with frame(console, "Health", "/"):
            live(lambda: _page(console))


def _page(console: Console) -> Markup:
    look = console.poller.newest
    if look is None:
        return unanswered()
    history = console.poller.history
    return join(
        _verdict(look),
        tag("ul", [tag("li", tile) for tile in _tiles(look, history.rate("end"))], class_="tiles"),
        tag(
            "div",
            chart("Records appended", {"all topics": history.rates("end")}, rate),
            chart("Time of one question to the cluster", {"from here": history.series("latency_ms")}, duration),
            class_="charts",
        ),
    )


def _verdict(look: Look) -> Child:
    found = findings(look)
    if not found:
        return tag("p", tag("span", "●", class_="sign", aria_hidden="true"), "All is well.", class_="verdict")
    bad = any(each.is_bad for each in found)
    text = f"{count(len(found), 'thing')} to look at"
    return [
        tag(
            "p",
            tag("span", "▲", class_="sign", aria_hidden="true"),
            text,
            class_=f"verdict{' bad' if bad else ''}",
        ),
        tag(
            "ul",
            [
                tag(
                    "li",
                    each.text,
                    " ",
                    tag("a", "Look", href=each.link),
                    class_=f"notice{' bad' if each.is_bad else ''}",
                )
                for each in found
            ],
            class_="findings",
        ),
    ]


def _tiles(look: Look, records_a_second: float | None) -> list[Markup]:
    cluster = look.cluster
    serving = [broker for broker in cluster.brokers if not broker.is_fenced]
    partitions = [each for topic in look.topics.values() for each in topic.partitions]
    in_sync = sum(len(each.isr) for each in partitions)
    replicas = sum(len(each.replicas) for each in partitions)
    lag = sum(group.total_lag for group in look.groups.values())
    stored = sum(sum(by_node.values()) for by_node in look.sizes.values())
    leader = f"node {look.quorum.leader} leads, epoch {count(look.quorum.leader_epoch)}" if look.quorum else "unknown"
    return [
        _tile(
            "/brokers",
            "Nodes serving",
            f"{count(len(serving))} of {count(len(cluster.brokers), 'node')}",
            f"cluster {cluster.cluster_id}",
        ),
        _tile("/brokers", "Controllers", count(len(look.quorum.voters) if look.quorum else None, "voter"), leader),
        _tile("/topics", "Topics", count(len(look.topics), "topic"), count(len(partitions), "partition")),
        _tile(
            "/topics?sort=in+sync",
            "Replicas in sync",
            f"{count(in_sync)} of {count(replicas, 'replica')}",
            f"{count(sum(each.is_under_replicated for each in partitions), 'partition')} under-replicated",
        ),
        _tile("/charts", "Appended", rate(records_a_second), f"{size(stored)} on disk, all replicas"),
        _tile("/groups", "Consumer groups", count(len(look.groups), "group"), f"{count(lag, 'record')} behind in all"),
    ]


def _tile(link: str, name: str, figure: str, more: str) -> Markup:
    return tag(
        "a",
        tag("span", name, class_="name"),
        tag("span", figure, class_="figure"),
        tag("span", more, class_="more"),
        href=link,
        class_="tile",
    )
