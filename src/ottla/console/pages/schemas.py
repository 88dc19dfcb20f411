"""`/schemas`: subjects of the registry, their versions, and what changed from one to another."""

from __future__ import annotations

import difflib
import json
from collections.abc import Container, Mapping, Sequence

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    filter_form,
    frame,
    notice,
    query_of,
    sentence,
    show,
)
from ottla.console.registry import Registry, RegistryError, Version
from ottla.console.tables import Column, facts, table
from ottla.console.units import NOTHING, count

DESCRIBED_MAX = 200
"""Subjects whose newest version is asked for."""


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
                subjects, latest = await console.workers.run(lambda: _subjects(registry, query.get("q", "")))
            except RegistryError as error:
                notice(sentence(error), bad=True)
                return
            show(_table(registry, subjects, latest, query))

    @ui.page("/schemas/subject", response_timeout=RESPONSE_TIMEOUT_S)
    async def subject(request: Request) -> None:
        query = query_of(request)
        name = query.get("name", "")
        registry = console.registry
        look = await console.poller.first()
        with frame(console, name, "/schemas", (("Schemas", "/schemas"),)):
            if registry is None:
                _missing()
                return
            try:
                versions = await console.workers.run(lambda: registry.versions(name))
                level = await console.workers.run(lambda: registry.compatibility(name))
            except RegistryError as error:
                notice(sentence(error), bad=True)
                return
            topic = topic_of(name, look.topics if look is not None else ())
            show(
                facts(
                    [
                        ("Versions", count(len(versions))),
                        ("Demands of new ones", level.lower().replace("_", " ")),
                        ("Topic", tag("a", topic, href=addresses.topic(topic)) if topic else NOTHING),
                    ]
                ),
                _subject(name, versions, query.get("version", ""), query.get("against", "")),
            )


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


def _subjects(registry: Registry, wanted: str) -> tuple[list[str], dict[str, Version]]:
    """Those that contain `wanted`, and the newest version of the first of them."""
    subjects = [each for each in registry.subjects() if wanted.casefold() in each.casefold()]
    return subjects, {each: registry.latest(each) for each in subjects[:DESCRIBED_MAX]}


def _table(
    registry: Registry, subjects: Sequence[str], latest: Mapping[str, Version], query: Mapping[str, str]
) -> Markup:
    columns = [
        Column[str](
            title="subject", cell=lambda each: tag("a", each, href=addresses.subject(each)), sort=lambda each: each
        ),
        Column(
            title="type",
            cell=lambda each: latest[each].type.lower() if each in latest else NOTHING,
            sort=lambda each: latest[each].type if each in latest else "",
        ),
        Column(
            title="newest version",
            cell=lambda each: count(latest[each].version) if each in latest else NOTHING,
            sort=lambda each: latest[each].version if each in latest else 0,
            number=True,
        ),
        Column(
            title="schema id",
            cell=lambda each: str(latest[each].schema_id) if each in latest else NOTHING,
            sort=lambda each: latest[each].schema_id if each in latest else 0,
            number=True,
        ),
    ]
    empty: Child = tag("p", "No subject is called so.")
    if not query.get("q"):
        empty = tag(
            "p",
            f"The registry at {registry.address} has no schema yet: a serializer registers one, or ",
            tag("code", "ottla schema register SUBJECT FILE"),
            " does.",
        )
    return table(subjects, columns, key=lambda each: each, caption="Subjects", query=query, empty=empty)


def topic_of(subject: str, topics: Container[str]) -> str | None:
    """The topic whose keys or values are of this subject, by the usual names."""
    name = subject.removesuffix("-value") if subject.endswith("-value") else subject.removesuffix("-key")
    return name if name != subject and name in topics else None


def _subject(name: str, versions: list[Version], wanted: str, against: str) -> Markup:
    by_number = {str(each.version): each for each in versions}
    chosen = by_number.get(wanted, versions[-1])
    before = by_number.get(against) or next(
        (each for each in reversed(versions) if each.version < chosen.version), None
    )
    shown = join(
        _links("Show", [(each, addresses.subject(name, version=each.version)) for each in versions], chosen),
        tag("h2", f"Version {chosen.version}: {chosen.type.lower()}, schema id {chosen.schema_id}"),
        tag("pre", pretty(chosen.text), class_="schema", tabindex="0"),
    )
    others = [each for each in versions if each is not chosen]
    if before is None or not others:
        return shown
    links = [(each, addresses.subject(name, version=chosen.version, against=each.version)) for each in others]
    return join(
        shown,
        tag("h2", f"What version {chosen.version} has changed since version {before.version}"),
        _links("Compare with", links, before) if len(others) > 1 else None,
        difference(before, chosen),
    )


def _links(label: str, links: Sequence[tuple[Version, str]], chosen: Version) -> Markup:
    return tag(
        "nav",
        tag("span", label, class_="quiet"),
        [
            tag(
                "a",
                f"version {each.version}",
                href=address,
                class_="button",
                aria_current="true" if each is chosen else None,
            )
            for each, address in links
        ],
        class_="pager",
        aria_label=label,
    )


def pretty(text: str) -> str:
    """JSON over several lines; other schemas as they are."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def difference(before: Version, after: Version) -> Markup:
    """Line by line, with signs: colour alone tells nobody."""
    if pretty(before.text) == pretty(after.text):
        return tag("p", "Nothing.", class_="quiet")
    lines = list(difflib.ndiff(pretty(before.text).splitlines(), pretty(after.text).splitlines()))
    kinds = {"+": "added", "-": "removed"}
    spans = [tag("span", line, class_=kinds.get(line[:1])) for line in lines if not line.startswith("?")]
    return tag("div", spans, class_="diff", tabindex="0", role="region", aria_label="Differences")
