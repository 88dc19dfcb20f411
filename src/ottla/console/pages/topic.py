"""`/topics/NAME`: partitions, rates, and configs that can be changed after a look at what that means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import Request
from nicegui import ui

from ottla.admin.configs import ConfigEntry, ResourceKind, alter_configs, describe_configs
from ottla.admin.topics import Partition, delete_topic
from ottla.console import addresses
from ottla.console.chart import chart
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    attempt,
    confirm,
    frame,
    live,
    missing,
    notice,
    query_of,
    read_only_notice,
    section,
    sentence,
    show,
)
from ottla.console.poller import Look
from ottla.console.tables import Column, facts, table
from ottla.console.units import count, rate, size
from ottla.errors import KafkaError
from ottla.model import TopicPartition

CRUMBS = (("Topics", "/topics"),)


def register(console: Console) -> None:
    @ui.page("/topics/{name}", response_timeout=RESPONSE_TIMEOUT_S)
    async def topic(request: Request, name: str) -> None:
        query = query_of(request)
        look = await console.poller.knowing(lambda found: name in found.topics)
        with frame(console, name, "/topics", CRUMBS):
            if look is None or name not in look.topics:
                missing(console, "There is no topic of this name.")
                return
            show(_links(name))
            live(lambda: _partitions(console, name, query))
            section("Configs")
            await _configs(console, name, query)
            _deletion(console, name)


def _links(name: str) -> Markup:
    return tag(
        "div",
        tag("a", "Records", href=addresses.records(name), class_="button"),
        tag("a", "Live tail", href=addresses.records(name, tail=1), class_="button"),
        tag("a", "Produce a record", href=addresses.topic(name, "produce"), class_="button"),
        class_="pager",
    )


def _partitions(console: Console, name: str, query: Mapping[str, str]) -> Markup:
    look = console.poller.newest
    if look is None or name not in look.topics:
        return tag("p", "The topic is gone.", class_="notice bad")
    topic, history = look.topics[name], console.poller.history
    return join(
        facts(
            [
                ("Partitions", count(len(topic.partitions))),
                ("Replicas of each", count(topic.replication_factor)),
                ("Records, at most", count(look.records_of(name))),
                ("Size of leaders", size(look.size_of(name))),
                ("Appended", rate(history.rate(f"end:{name}"))),
                ("Groups that read it", _groups(look, name)),
                ("Id", tag("code", topic.topic_id)),
            ]
        ),
        tag("h2", "Partitions"),
        table(
            topic.partitions,
            _columns(look),
            key=lambda each: str(each.partition),
            caption=f"Partitions of {name}",
            query=query,
            empty="It has no partitions.",
        ),
        tag(
            "div",
            chart("Records appended", {name: history.rates(f"end:{name}")}, rate),
            chart("Size of leaders", {name: history.series(f"size:{name}")}, size),
            class_="charts",
        ),
    )


def _groups(look: Look, topic: str) -> Child:
    readers = [(name, each.lag_in(topic)) for name, each in sorted(look.groups.items()) if topic in each.topics]
    if not readers:
        return "none"
    return [
        join("; " if at else "", tag("a", name, href=addresses.group(name)), f", {count(lag, 'record')} behind")
        for at, (name, lag) in enumerate(readers)
    ]


def _columns(look: Look) -> list[Column[Partition]]:
    def bounds(each: Partition) -> tuple[int, int] | None:
        found = look.bounds.get(TopicPartition(each.topic, each.partition))
        return None if found is None else (found.start, found.end)

    def held(each: Partition) -> int | None:
        found = bounds(each)
        return None if found is None else found[1] - found[0]

    def stored(each: Partition) -> int | None:
        sizes = look.sizes.get(TopicPartition(each.topic, each.partition), {})
        return None if each.leader is None else sizes.get(each.leader)

    def sync_cell(each: Partition) -> Child:
        kind = "bad" if each.is_under_replicated else "good"
        return tag("span", ", ".join(map(str, each.isr)) or "nobody", class_=f"badge {kind}")

    return [
        Column(
            title="partition",
            cell=lambda each: tag(
                "a", f"Partition {each.partition}", href=addresses.partition(each.topic, each.partition)
            ),
            sort=lambda each: each.partition,
        ),
        Column(
            title="leader",
            cell=lambda each: "none" if each.leader is None else f"node {each.leader}",
            sort=lambda each: -1 if each.leader is None else each.leader,
        ),
        Column(
            title="epoch", cell=lambda each: count(each.leader_epoch), sort=lambda each: each.leader_epoch, number=True
        ),
        Column(title="replicas on nodes", cell=lambda each: ", ".join(map(str, each.replicas))),
        Column(title="in sync", cell=sync_cell, sort=lambda each: len(each.isr) - len(each.replicas)),
        Column(
            title="first offset",
            cell=lambda each: count((bounds(each) or (None,))[0]),
            sort=lambda each: (bounds(each) or (0,))[0],
            number=True,
        ),
        Column(
            title="end offset",
            cell=lambda each: count((bounds(each) or (0, None))[1]),
            sort=lambda each: (bounds(each) or (0, 0))[1],
            number=True,
        ),
        Column(
            title="records, at most",
            cell=lambda each: count(held(each)),
            sort=lambda each: held(each) or 0,
            number=True,
        ),
        Column(title="size", cell=lambda each: size(stored(each)), sort=lambda each: stored(each) or 0, number=True),
    ]


async def _configs(console: Console, name: str, query: Mapping[str, str]) -> None:
    try:
        entries = await console.workers.ask(lambda client: describe_configs(client, ResourceKind.TOPIC, name))
    except KafkaError as error:
        notice(sentence(error), bad=True)
        return
    if console.may_change:
        _config_form(console, name, entries)
    read_only_notice(console)
    show(
        table(
            sorted(entries, key=lambda each: (not each.is_own, each.name)),
            [
                Column(title="config", cell=lambda each: tag("code", each.name)),
                Column(title="value", cell=_value),
                Column(
                    title="comes from",
                    cell=lambda each: tag("span", each.source.text, class_=f"badge{' good' if each.is_own else ''}"),
                ),
            ],
            key=lambda each: each.name,
            caption=f"Configs of {name}",
            query={key: value for key, value in query.items() if key not in ("sort", "order")},
            empty="The cluster tells no configs.",
        )
    )


def _value(entry: ConfigEntry) -> Child:
    if entry.is_sensitive:
        return tag("span", "secret", class_="quiet")
    return tag("code", entry.value) if entry.value else tag("span", "not set", class_="quiet")


def _config_form(console: Console, name: str, entries: Sequence[ConfigEntry]) -> None:
    by_name = {each.name: each for each in entries if not each.is_read_only}
    with ui.element("div").classes("row-form"):
        key = ui.select(sorted(by_name), label="Config", with_input=True).props("outlined dense")
        value = ui.input("New value").props("outlined dense")

        async def change(reset: bool) -> None:
            entry = by_name.get(str(key.value or ""))
            if entry is None:
                ui.notify("Choose a config first.")
                return
            wanted = str(value.value or "")
            changes = {} if reset else {entry.name: wanted}
            deletes = [entry.name] if reset else []

            async def check() -> None:
                console.check_may_change()
                await console.workers.ask(
                    lambda client: alter_configs(
                        client, ResourceKind.TOPIC, name, set=changes, delete=deletes, validate_only=True
                    )
                )

            async def apply() -> None:
                console.check_may_change()
                await console.workers.ask(
                    lambda client: alter_configs(client, ResourceKind.TOPIC, name, set=changes, delete=deletes)
                )
                ui.navigate.reload()

            if await attempt(check()):
                after = _fallback(entry) if reset else wanted
                confirm(f"Change {entry.name} of {name}?", _change(entry, after), "Change it", apply)

        ui.button("Preview the change", on_click=lambda: change(False)).props("outline no-caps color=accent")
        ui.button("Back to the default", on_click=lambda: change(True)).props("flat no-caps color=accent")


def _fallback(entry: ConfigEntry) -> str:
    """What the value is when the topic's own is taken away."""
    others = [each for each in entry.synonyms if not (entry.is_own and each is entry.synonyms[0])]
    return (others[0].value if others else None) or "the cluster's default"


def _change(entry: ConfigEntry, after: str) -> Markup:
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", [tag("th", head, scope="col") for head in ("config", "now", "then")])),
            tag(
                "tbody",
                tag(
                    "tr",
                    tag("th", entry.name, scope="row"),
                    tag("td", tag("code", entry.value or "not set")),
                    tag("td", tag("code", after), class_="changed"),
                ),
            ),
        ),
        tag("p", "The cluster has checked the value and would take it."),
        class_="table-box",
    )


def _deletion(console: Console, name: str) -> None:
    if not console.may_change:
        return
    section("Delete")
    with ui.element("div").classes("row-form"):
        typed = ui.input("The topic's name, to be sure").props("outlined dense").classes("long")

        async def delete() -> None:
            if typed.value != name:
                ui.notify("Write the topic's name to delete it with all its records.", type="negative")
                return

            async def work() -> None:
                console.check_may_change()
                await console.workers.ask(lambda client: delete_topic(client, name))
                await console.poller.refresh()
                ui.navigate.to("/topics")

            await attempt(work())

        ui.button("Delete the topic", on_click=delete).props("outline no-caps color=negative")
