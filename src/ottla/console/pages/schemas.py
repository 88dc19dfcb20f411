"""`/schemas`: subjects of the registry, their versions, and what changed from one to another."""

from __future__ import annotations

import difflib
import json

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import Markup, join, tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    filter_form,
    frame,
    notice,
    query_of,
    sentence,
    show,
)
from ottla.console.registry import RegistryError, Version
from ottla.console.tables import Column, table


def register(console: Console) -> None:
    @ui.page("/schemas", response_timeout=RESPONSE_TIMEOUT_S)
    async def schemas(request: Request) -> None:
        query = query_of(request)
        registry = console.registry
        with frame(console, "Schemas", "/schemas"):
            if registry is None:
                _missing()
                return
            show(filter_form(query, "Subject contains"))
            try:
                subjects = await console.workers.run(registry.subjects)
            except RegistryError as error:
                notice(sentence(error), bad=True)
                return
            wanted = query.get("q", "").casefold()
            columns = [
                Column[str](
                    title="subject",
                    cell=lambda each: tag("a", each, href=addresses.subject(each)),
                    sort=lambda each: each,
                )
            ]
            show(
                table(
                    [each for each in subjects if wanted in each.casefold()],
                    columns,
                    key=lambda each: each,
                    caption="Subjects",
                    query=query,
                    empty=tag("p", f"The registry at {registry.address} has no such subject yet."),
                )
            )

    @ui.page("/schemas/subject", response_timeout=RESPONSE_TIMEOUT_S)
    async def subject(request: Request) -> None:
        query = query_of(request)
        name = query.get("name", "")
        registry = console.registry
        with frame(console, name, "/schemas", (("Schemas", "/schemas"),)):
            if registry is None:
                _missing()
                return
            try:
                versions = await console.workers.run(lambda: registry.versions(name))
            except RegistryError as error:
                notice(sentence(error), bad=True)
                return
            show(_subject(name, versions, query.get("version", ""), query.get("against", "")))


def _missing() -> None:
    show(
        tag(
            "p",
            "This console knows no schema registry: start it with ",
            tag("code", "ottla console --registry http://host:port"),
            ".",
            class_="empty",
        )
    )


def _subject(name: str, versions: list[Version], wanted: str, against: str) -> Markup:
    by_number = {str(each.version): each for each in versions}
    chosen = by_number.get(wanted, versions[-1])
    before = by_number.get(against) or next(
        (each for each in reversed(versions) if each.version < chosen.version), None
    )
    links = [
        tag(
            "a",
            f"version {each.version}",
            href=addresses.subject(name, version=each.version),
            class_="button",
            aria_current="true" if each is chosen else None,
        )
        for each in versions
    ]
    shown = join(
        tag("div", links, class_="pager"),
        tag("h2", f"Version {chosen.version}: {chosen.type.lower()}, id {chosen.schema_id}"),
        tag("pre", pretty(chosen.text), class_="schema", tabindex="0"),
    )
    if before is None:
        return shown
    return join(
        shown,
        tag("h2", f"What version {chosen.version} changed since version {before.version}"),
        difference(before, chosen),
    )


def pretty(text: str) -> str:
    """JSON over several lines; other schemas as they are."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def difference(before: Version, after: Version) -> Markup:
    """Line by line, with signs: colour alone tells nobody."""
    lines = list(difflib.ndiff(pretty(before.text).splitlines(), pretty(after.text).splitlines()))
    kinds = {"+": "added", "-": "removed"}
    spans = [tag("span", line, class_=kinds.get(line[:1])) for line in lines if not line.startswith("?")]
    return tag("div", spans, class_="diff", tabindex="0", role="region", aria_label="Differences")
