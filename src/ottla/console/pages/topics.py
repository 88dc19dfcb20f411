"""`/topics`: which there are, how large, how fast; and a form for a new one."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from fastapi import Request
from nicegui import ui

from ottla.admin.topics import DEFAULT, Topic, create_topic
from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    attempt,
    filter_form,
    frame,
    live,
    query_of,
    read_only_notice,
    show,
    unanswered,
)
from ottla.console.poller import Look
from ottla.console.tables import Column, table
from ottla.console.units import count, rate, size


def register(console: Console) -> None:
    @ui.page("/topics", response_timeout=RESPONSE_TIMEOUT_S)
    async def topics(request: Request) -> None:
        query = query_of(request)
        await console.poller.first()
        with frame(console, "Topics", "/topics"):
            show(filter_form(query, "Name contains"))
            live(lambda: _table(console, query))
            read_only_notice(console)
            if console.may_change:
                _creation(console)


def _table(console: Console, query: Mapping[str, str]) -> Markup:
    look = console.poller.newest
    if look is None:
        return unanswered()
    wanted = query.get("q", "").casefold()
    with_internal = query.get("internal") == "1"
    found = [
        topic
        for topic in look.topics.values()
        if wanted in topic.name.casefold() and (with_internal or not topic.is_internal)
    ]
    hidden = sum(topic.is_internal for topic in look.topics.values())
    note = None
    if hidden and not with_internal:
        everything = urlencode({**query, "internal": "1"})
        note = tag("p", tag("a", f"Show {count(hidden, 'internal topic')} too", href=f"?{everything}"), class_="quiet")
    empty: Child = tag("p", "No topic is called so.")
    if not wanted:
        empty = tag("p", "There is no topic yet. Make one below, or with ", tag("code", "ottla topic create NAME"), ".")
    columns = _columns(console, look)
    return join(table(found, columns, key=lambda topic: topic.name, caption="Topics", query=query, empty=empty), note)


def _columns(console: Console, look: Look) -> list[Column[Topic]]:
    history = console.poller.history

    def appended(topic: Topic) -> float | None:
        return history.rate(f"end:{topic.name}")

    def in_sync(topic: Topic) -> tuple[int, int]:
        return sum(len(each.isr) for each in topic.partitions), sum(len(each.replicas) for each in topic.partitions)

    def sync_cell(topic: Topic) -> Child:
        have, want = in_sync(topic)
        kind = "good" if have == want else "bad"
        return tag("span", f"{count(have)} of {count(want, 'replica')}", class_=f"badge {kind}")

    return [
        Column(
            title="topic",
            cell=lambda each: tag("a", each.name, href=addresses.topic(each.name)),
            sort=lambda each: each.name,
        ),
        Column(
            title="partitions",
            cell=lambda each: count(len(each.partitions)),
            sort=lambda each: len(each.partitions),
            number=True,
        ),
        Column(title="in sync", cell=sync_cell, sort=lambda each: in_sync(each)[0] - in_sync(each)[1]),
        Column(
            title="records, at most",
            cell=lambda each: count(look.records_of(each.name)),
            sort=lambda each: look.records_of(each.name) or 0,
            number=True,
        ),
        Column(
            title="size of leaders",
            cell=lambda each: size(look.size_of(each.name)),
            sort=lambda each: look.size_of(each.name) or 0,
            number=True,
        ),
        Column(
            title="appended", cell=lambda each: rate(appended(each)), sort=lambda each: appended(each) or 0, number=True
        ),
        Column(
            title="",
            cell=lambda each: tag(
                "a", "Records", href=addresses.records(each.name), aria_label=f"Records of {each.name}"
            ),
        ),
    ]


def _creation(console: Console) -> None:
    show(tag("h2", "New topic"))
    with ui.element("div").classes("row-form"):
        name = ui.input("Name").props("outlined dense")
        partitions = ui.number("Partitions", value=1, min=1, format="%d").props("outlined dense")
        replicas = ui.number("Replicas (or default)", min=1, format="%d").props("outlined dense")

        async def create() -> None:
            wanted = str(name.value or "").strip()
            copies = DEFAULT if not replicas.value else int(replicas.value)
            parts = int(partitions.value or 1)

            async def work() -> None:
                console.check_may_change()
                await console.workers.ask(
                    lambda client: create_topic(client, wanted, partitions=parts, replication_factor=copies)
                )
                await console.poller.refresh()
                ui.navigate.to(addresses.topic(wanted))

            await attempt(work())

        ui.button("Create", on_click=create).props("unelevated no-caps color=accent")
