"""`/topics/NAME/partitions/N`: the live replication picture."""

from __future__ import annotations

from nicegui import ui

from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import Markup, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, frame, live, missing, show
from ottla.console.picture import panel

PERIOD_S = 0.4


def register(console: Console) -> None:
    @ui.page("/topics/{name}/partitions/{number}", response_timeout=RESPONSE_TIMEOUT_S)
    async def partition(name: str, number: str) -> None:
        look = await console.poller.knowing(lambda found: name in found.topics)
        crumbs = (("Topics", "/topics"), (name, addresses.topic(name)))
        with frame(console, f"Partition {number}", "/topics", crumbs):
            known = {each.partition for each in look.topics[name].partitions} if look and name in look.topics else set()
            if number not in map(str, known):
                missing(console, "There is no such partition.")
                return
            show(_links(name, int(number), len(known)))
            live(lambda: _panel(console, name, int(number)), PERIOD_S)


def _links(name: str, number: int, count: int) -> Markup:
    return tag(
        "div",
        tag("a", f"← Partition {number - 1}", href=addresses.partition(name, number - 1), class_="button")
        if number
        else None,
        tag("a", f"Partition {number + 1} →", href=addresses.partition(name, number + 1), class_="button")
        if number + 1 < count
        else None,
        tag("a", "Records", href=addresses.records(name, partition=number), class_="button"),
        class_="pager",
    )


def _panel(console: Console, name: str, number: int) -> Markup:
    watch = console.watches.look(name, number)
    if watch.state is None:
        text = watch.error or "The replicas are being asked."
        return tag("p", text, class_="notice bad" if watch.error else "empty")
    return join(tag("p", watch.error, class_="notice bad") if watch.error else None, panel(watch.state))
