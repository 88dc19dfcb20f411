"""`/topics/NAME/produce`: one record, written by hand: as text, or as JSON that a schema of the registry encodes."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.decoding import encode
from ottla.console.markup import tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    Live,
    attempt,
    frame,
    missing,
    query_of,
    read_only_notice,
)
from ottla.console.producing import Draft, parse_headers, produce
from ottla.console.registry import RegistryError
from ottla.console.units import count

ANY = "where Kafka's clients would send the key"
TEXT = ""
"""No schema."""


def register(console: Console) -> None:
    @ui.page("/topics/{name}/produce", response_timeout=RESPONSE_TIMEOUT_S)
    async def page(request: Request, name: str) -> None:
        look = await console.poller.knowing(lambda found: name in found.topics)
        with frame(console, "Produce a record", "/topics", (("Topics", "/topics"), (name, addresses.topic(name)))):
            if look is None or name not in look.topics:
                missing(console, "There is no topic of this name.")
                return
            read_only_notice(console)
            if console.may_change:
                partitions = [each.partition for each in look.topics[name].partitions]
                schemas = await _schemas(console)
                _form(console, name, partitions, query_of(request).get("key", ""), schemas)


async def _schemas(console: Console) -> dict[str, str]:
    """What a key or a value may be written as, by subject."""
    registry = console.registry
    if registry is None:
        return {}
    try:
        subjects = await console.workers.run(registry.subjects)
    except RegistryError:
        return {}  # Whoever writes text needs none.
    return {TEXT: "text, as it is", **{each: f"JSON, by the newest schema of {each}" for each in subjects}}


def _form(console: Console, name: str, partitions: list[int], first_key: str, schemas: Mapping[str, str]) -> None:
    def choice(label: str, subject: str) -> ui.select | None:
        if len(schemas) < 2:
            return None
        first = subject if subject in schemas else TEXT
        return ui.select(dict(schemas), value=first, label=label).props("outlined dense")

    with ui.element("div").classes("form"):
        partition = ui.select(
            {-1: ANY, **{each: f"partition {each}" for each in partitions}}, value=-1, label="Partition"
        ).props("outlined dense")
        key_schema = choice("The key is", f"{name}-key")
        key = ui.input("Key (empty: null)", value=first_key).props("outlined dense")
        value_schema = choice("The value is", f"{name}-value")
        value = ui.textarea("Value").props("outlined dense autogrow")
        tombstone = ui.checkbox("The value is null: a tombstone, which deletes the key from a compacted topic")
        headers = ui.textarea("Headers, one a line, as name: value").props("outlined dense autogrow")

        async def send() -> None:
            async def work() -> None:
                console.check_may_change()
                draft = Draft(
                    topic=name,
                    partition=None if partition.value in (None, -1) else int(partition.value),
                    key=await _encoded(console, key_schema, str(key.value)) if key.value else None,
                    value=None if tombstone.value else await _encoded(console, value_schema, str(value.value or "")),
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


async def _encoded(console: Console, chosen: ui.select | None, text: str) -> bytes:
    """Raises `ValueError` or `RegistryError` with one sentence."""
    subject = TEXT if chosen is None else str(chosen.value or TEXT)
    registry = console.registry
    if subject == TEXT or registry is None:
        return text.encode()
    latest = await console.workers.run(lambda: registry.latest(subject))
    schema = await console.workers.run(lambda: registry.schema(latest.schema_id))
    if schema is None:
        raise ValueError(f"The newest schema of {subject} cannot be read.")
    return encode(schema, text)
