"""`/groups`: consumer groups beside the topics that they read, and how far behind they are."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.chart import chart
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, filter_form, frame, live, query_of, show, unanswered
from ottla.console.poller import GroupLook
from ottla.console.tables import Column, table
from ottla.console.units import count


def register(console: Console) -> None:
    @ui.page("/groups", response_timeout=RESPONSE_TIMEOUT_S)
    async def groups(request: Request) -> None:
        query = query_of(request)
        await console.poller.first()
        with frame(console, "Consumer groups", "/groups"):
            show(filter_form(query, "Name contains"))
            live(lambda: _page(console, query))


def _page(console: Console, query: Mapping[str, str]) -> Markup:
    look = console.poller.newest
    if look is None:
        return unanswered()
    wanted = query.get("q", "").casefold()
    found = [each for name, each in look.groups.items() if wanted in name.casefold()]
    note = None
    if look.groups_unmeasured:
        note = tag("p", f"Not measured here: {count(look.groups_unmeasured, 'more group')}.", class_="quiet")
    empty = "No group is called so." if wanted else "No consumer has come yet: a group is there once one has joined."
    history = console.poller.history
    lags = {each.group.group_id: history.series(f"lag:{each.group.group_id}") for each in found}
    return join(
        table(
            found,
            _columns(),
            key=lambda each: each.group.group_id,
            caption="Consumer groups",
            query=query,
            empty=tag("p", empty),
        ),
        note,
        tag("div", chart("Behind the end", lags, lambda value: count(round(value), "record")), class_="charts")
        if found
        else None,
    )


def _columns() -> list[Column[GroupLook]]:
    def topics(each: GroupLook) -> Child:
        names = sorted(each.topics)
        return [join(", " if at else "", tag("a", name, href=addresses.topic(name))) for at, name in enumerate(names)]

    return [
        Column(
            title="group",
            cell=lambda each: tag(
                "a", each.group.group_id or "(empty name)", href=addresses.group(each.group.group_id)
            ),
            sort=lambda each: each.group.group_id,
        ),
        Column(title="state", cell=lambda each: state_badge(each.group.state), sort=lambda each: each.group.state),
        Column(
            title="members",
            cell=lambda each: count(len(each.group.members)),
            sort=lambda each: len(each.group.members),
            number=True,
        ),
        Column(
            title="behind",
            cell=lambda each: count(each.total_lag, "record"),
            sort=lambda each: each.total_lag,
            number=True,
        ),
        Column(title="topics", cell=topics),
        Column(title="protocol", cell=lambda each: each.group.protocol, sort=lambda each: each.group.protocol),
    ]


def state_badge(state: str) -> Markup:
    return tag("span", state.lower(), class_=f"badge{' good' if state == 'Stable' else ''}")
