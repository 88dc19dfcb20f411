"""`/topics/NAME/produce`: one record, written by hand."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    Live,
    attempt,
    frame,
    notice,
    query_of,
    read_only_notice,
)
from ottla.console.producing import Draft, parse_headers, produce
from ottla.console.units import count

ANY = "where Kafka's clients would send the key"


def register(console: Console) -> None:
    @ui.page("/topics/{name}/produce", response_timeout=RESPONSE_TIMEOUT_S)
    async def page(request: Request, name: str) -> None:
        look = await console.poller.first()
        with frame(console, "Produce a record", "/topics", (("Topics", "/topics"), (name, addresses.topic(name)))):
            if look is None or name not in look.topics:
                notice("There is no topic of this name.", bad=True)
                return
            read_only_notice(console)
            if console.may_change:
                partitions = [each.partition for each in look.topics[name].partitions]
                _form(console, name, partitions, query_of(request).get("key", ""))


def _form(console: Console, name: str, partitions: list[int], first_key: str) -> None:
    with ui.element("div").classes("form"):
        partition = ui.select(
            {-1: ANY, **{each: f"partition {each}" for each in partitions}}, value=-1, label="Partition"
        ).props("outlined dense")
        key = ui.input("Key (empty: null)", value=first_key).props("outlined dense")
        value = ui.textarea("Value").props("outlined dense autogrow")
        tombstone = ui.checkbox("The value is null: a tombstone, which deletes the key from a compacted topic")
        headers = ui.textarea("Headers, one a line, as name: value").props("outlined dense autogrow")

        async def send() -> None:
            async def work() -> None:
                console.check_may_change()
                draft = Draft(
                    topic=name,
                    partition=None if partition.value in (None, -1) else int(partition.value),
                    key=str(key.value).encode() if key.value else None,
                    value=None if tombstone.value else str(value.value or "").encode(),
                    headers=tuple(parse_headers(str(headers.value or ""))),
                )
                done = await console.workers.ask(lambda client: produce(client, draft))
                link = addresses.record(name, done.partition, done.offset)
                said.update(
                    tag(
                        "p",
                        f"Appended to partition {done.partition} at offset {count(done.offset)}. ",
                        tag("a", "Look at it", href=link),
                        class_="notice",
                        role="status",
                    )
                )

            await attempt(work())

        with ui.element("div").classes("buttons"):
            ui.button("Produce", on_click=send).props("unelevated no-caps color=accent")
        said = Live(tag("p", "It is appended with acks=all: every replica in sync has it.", class_="quiet"))
