"""`/groups/NAME`: members, how far behind each partition is, and moving the group after a look at what that means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from ottla.admin.groups import GroupMember
from ottla.admin.seeking import (
    SeekPlan,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    apply_seek,
    plan_seek,
)
from ottla.console import addresses
from ottla.console.chart import chart
from ottla.console.console import Console
from ottla.console.markup import Markup, join, tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    attempt,
    confirm,
    frame,
    live,
    missing,
    query_of,
    read_only_notice,
    section,
)
from ottla.console.pages.groups import state_badge
from ottla.console.tables import Column, facts, table
from ottla.console.units import count
from ottla.model import TopicPartition

TARGETS = {
    "earliest": "the first record",
    "latest": "the end",
    "offset": "an offset",
    "shift": "so many records on (negative: back)",
    "time": "a time (UTC)",
}
EVERYWHERE = "all partitions"


def register(console: Console) -> None:
    @ui.page("/groups/{name}", response_timeout=RESPONSE_TIMEOUT_S)
    async def group(request: Request, name: str) -> None:
        await _group(console, name, query_of(request))

    @ui.page("/group", response_timeout=RESPONSE_TIMEOUT_S)
    async def group_by_query(request: Request) -> None:
        query = query_of(request)
        await _group(console, query.get("name", ""), query)


async def _group(console: Console, name: str, query: Mapping[str, str]) -> None:
    look = await console.poller.knowing(lambda found: name in found.groups)
    with frame(console, name or "(empty name)", "/groups", (("Groups", "/groups"),)):
        if look is None or name not in look.groups:
            missing(console, "There is no consumer group of this name.")
            return
        live(lambda: _page(console, name, query))
        section("Move the group")
        read_only_notice(console)
        if console.may_change:
            _form(console, name, sorted(look.groups[name].committed))


def _page(console: Console, name: str, query: Mapping[str, str]) -> Markup:
    look = console.poller.newest
    if look is None or name not in look.groups:
        return tag("p", "The group is gone.", class_="notice bad")
    found = look.groups[name]
    group, history = found.group, console.poller.history
    holders = {key: member for member in group.members for key in member.assigned}
    keys = sorted({*found.committed, *holders})
    topics = sorted({key.topic for key in found.lag})
    return join(
        facts(
            [
                ("State", state_badge(group.state)),
                ("Members", count(len(group.members))),
                ("Behind", count(found.total_lag, "record")),
                ("Protocol", group.protocol),
                ("Assignor", group.assignor or "none yet"),
                ("Coordinator", f"node {group.coordinator}"),
            ]
        ),
        tag("h2", "Partitions"),
        table(
            keys,
            [
                Column[TopicPartition](
                    title="partition",
                    cell=lambda key: tag(
                        "a", f"{key.topic}-{key.partition}", href=addresses.partition(key.topic, key.partition)
                    ),
                    sort=lambda key: key,
                ),
                Column(
                    title="committed offset",
                    cell=lambda key: count(found.committed.get(key)),
                    sort=lambda key: found.committed.get(key, -1),
                    number=True,
                ),
                Column(
                    title="end offset",
                    cell=lambda key: count(look.bounds[key].end if key in look.bounds else None),
                    number=True,
                ),
                Column(
                    title="behind",
                    cell=lambda key: count(found.lag.get(key), "record"),
                    sort=lambda key: found.lag.get(key, -1),
                    number=True,
                ),
                Column(
                    title="read by",
                    cell=lambda key: (
                        holders[key].client_id if key in holders else tag("span", "nobody", class_="quiet")
                    ),
                ),
                Column(
                    title="",
                    cell=lambda key: tag(
                        "a",
                        "Next record",
                        href=addresses.record(key.topic, key.partition, found.committed.get(key, 0)),
                        aria_label=f"The next record of {key.topic}-{key.partition}",
                    ),
                ),
            ],
            key=str,
            caption=f"Partitions that {name} reads",
            query=query,
            empty="The group has committed nothing yet.",
        ),
        tag(
            "div",
            chart(
                "Behind the end, by topic",
                {topic: history.series(f"lag:{name}:{topic}") for topic in topics},
                lambda value: count(round(value), "record"),
            ),
            class_="charts",
        ),
        tag("h2", "Members"),
        table(
            group.members,
            [
                Column[GroupMember](title="member", cell=lambda each: each.member_id),
                Column(title="client", cell=lambda each: each.client_id),
                Column(title="host", cell=lambda each: each.host),
                Column(
                    title="partitions",
                    cell=lambda each: ", ".join(f"{key.topic}-{key.partition}" for key in each.assigned) or "none",
                ),
            ],
            key=lambda each: each.member_id,
            caption=f"Members of {name}",
            query={},
            empty="Nobody is in the group now.",
        ),
    )


def target_of(kind: str, text: str) -> Target:
    """Raises `ValueError` with one sentence."""
    match kind:
        case "earliest":
            return ToEarliest()
        case "latest":
            return ToLatest()
        case "time":
            try:
                when = datetime.fromisoformat(text.strip())
            except ValueError:
                raise ValueError("Write the time as 2026-11-16T09:30.") from None
            return ToTime(int(when.replace(tzinfo=when.tzinfo or UTC).timestamp() * 1000))
        case _:
            try:
                number = int(text.replace(",", ""))
            except ValueError:
                raise ValueError("Write a number.") from None
            return ShiftBy(number) if kind == "shift" else ToOffset(number)


def _form(console: Console, name: str, partitions: list[TopicPartition]) -> None:
    by_name = {f"{key.topic}-{key.partition}": key for key in partitions}
    with ui.element("div").classes("row-form"):
        where = ui.select([EVERYWHERE, *by_name], value=EVERYWHERE, label="Where").props("outlined dense")
        kind = ui.select(TARGETS, value="earliest", label="To").props("outlined dense")
        value = ui.input("Offset, number or time").props("outlined dense")

        async def preview() -> None:
            chosen = None if where.value == EVERYWHERE else [by_name[str(where.value)]]

            async def work() -> None:
                console.check_may_change()
                target = target_of(str(kind.value), str(value.value or ""))
                plan = await console.workers.ask(lambda client: plan_seek(client, name, target, chosen))

                async def apply() -> None:
                    console.check_may_change()
                    await console.workers.ask(lambda client: apply_seek(client, plan))
                    await console.poller.refresh()
                    ui.notify(f"{name} goes on from there.")

                confirm(f"Move {name}?", plan_table(plan), "Move it", apply)

            await attempt(work())

        ui.button("Preview the move", on_click=preview).props("outline no-caps color=accent")


def plan_table(plan: SeekPlan) -> Markup:
    heads = ("partition", "now", "then", "behind then")
    return tag(
        "div",
        tag(
            "table",
            tag(
                "thead",
                tag(
                    "tr",
                    [tag("th", head, scope="col", class_="number" if at else None) for at, head in enumerate(heads)],
                ),
            ),
            tag(
                "tbody",
                [
                    tag(
                        "tr",
                        tag("th", f"{move.topic}-{move.partition}", scope="row"),
                        tag("td", count(move.before), class_="number"),
                        tag("td", count(move.after), class_=f"number{' changed' if move.after != move.before else ''}"),
                        tag("td", count(move.lag_after, "record"), class_="number"),
                    )
                    for move in plan.moves
                ],
            ),
        ),
        class_="table-box",
    )
