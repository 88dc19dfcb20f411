"""`/topics/NAME/records`: the record browser. Where it stands, what it filters and how it decodes is its address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from fastapi import Request
from nicegui import ui

from ottla.console import addresses
from ottla.console.browsing import LIMIT, STARTS, BadQuery, Query, cursor_text
from ottla.console.console import Console
from ottla.console.decoding import MODES, Decoder
from ottla.console.filters import BadFilter
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, Live, frame, missing, notice, query_of, sentence, show
from ottla.console.reading import Page, SeenRecord, read_forward
from ottla.console.record_view import record_view
from ottla.console.units import count
from ottla.errors import KafkaError

TAIL_PERIOD_S = 0.7
TAIL_RECORDS_MAX = 200
TAIL_STEP_MAX = 100
"""Records a look: a person reads no faster, and a busy topic must not fill the browser."""


def register(console: Console) -> None:
    @ui.page("/topics/{name}/records", response_timeout=RESPONSE_TIMEOUT_S)
    async def records(request: Request, name: str) -> None:
        query = query_of(request)
        look = await console.poller.knowing(lambda found: name in found.topics)
        with frame(console, "Records", "/topics", (("Topics", "/topics"), (name, addresses.topic(name)))):
            if look is None or name not in look.topics:
                missing(console, "There is no topic of this name.")
                return
            partitions = [each.partition for each in look.topics[name].partitions]
            show(_form(query, partitions))
            try:
                console.check_may_read()
                wanted = Query.parse(query)
                if wanted.partition is not None and wanted.partition not in partitions:
                    raise BadQuery(f"The topic has no partition {wanted.partition}.")
                decoder = console.decoder(wanted.decode)
                page = await console.workers.ask(lambda client: wanted.run(client, name, partitions, decoder))
            except (KafkaError, BadQuery, BadFilter) as error:
                notice(sentence(error), bad=True)
                return
            if query.get("tail") == "1":
                _tail(console, name, wanted, page, decoder)
            else:
                show(_page(name, query, wanted, page, decoder))


def _form(query: Mapping[str, str], partitions: list[int]) -> Markup:
    chosen = query.get("partition", "all")
    start = query.get("from", "newest")
    return tag(
        "form",
        tag(
            "label",
            "Partition",
            tag("select", [_option(each, each, chosen) for each in ("all", *map(str, partitions))], name="partition"),
        ),
        tag(
            "label", "Begin at", tag("select", [_option(key, text, start) for key, text in STARTS.items()], name="from")
        ),
        tag(
            "label", "Offset", tag("input", name="offset", value=query.get("offset", ""), inputmode="numeric", size=10)
        ),
        tag(
            "label",
            "Time (UTC)",
            tag("input", name="time", type="datetime-local", step="1", value=query.get("time", "")),
        ),
        tag(
            "label",
            "Filter: words, key:…, value.field>10, /expression/, -not",
            tag("input", name="filter", type="search", value=query.get("filter", ""), data_action="filter"),
            class_="wide",
        ),
        tag(
            "label",
            "Show as",
            tag("select", [_option(each, each, query.get("decode", "auto")) for each in MODES], name="decode"),
        ),
        tag(
            "label",
            "Records a page",
            tag("input", name="limit", value=query.get("limit", str(LIMIT)), inputmode="numeric", size=5),
        ),
        tag("button", "Show", type="submit", class_="primary"),
        tag("button", "Live tail", type="submit", name="tail", value="1"),
        class_="browse",
        role="search",
    )


def _option(value: str, text: str, chosen: str) -> Markup:
    return tag("option", text, value=value, selected=value == chosen)


def _page(name: str, query: Mapping[str, str], wanted: Query, page: Page, decoder: Decoder) -> Markup:
    kept = {key: value for key, value in query.items() if key not in ("older", "newer", "tail")}
    newest_first = list(reversed(page.records))
    older = urlencode({**kept, "older": cursor_text(page.older)})
    newer = urlencode({**kept, "newer": cursor_text(page.newer)})
    looked = f"{count(len(page.records), 'record')} shown, {count(page.scanned)} looked at."
    if page.cut_short:
        looked += " There is more to look at than one page may cost: go on with older or newer."
    pager = tag(
        "div",
        tag("a", "← Newer", href=f"?{newer}", class_="button"),
        tag("a", "Older →", href=f"?{older}", class_="button"),
        tag("span", looked, class_="quiet"),
        tag(
            "a",
            "Download as JSON lines",
            href=f"{addresses.topic(name, 'records.jsonl')}?{urlencode(dict(query))}",
            download=True,
        ),
        class_="pager",
    )
    if not newest_first:
        return join(pager, _nothing(name, wanted))
    return join(pager, _list(name, newest_first, decoder), pager if len(newest_first) > 10 else None)


def _list(name: str, records: list[SeenRecord], decoder: Decoder) -> Markup:
    return tag("div", [record_view(name, each, decoder) for each in records], class_="records")


def _nothing(name: str, wanted: Query) -> Child:
    if wanted.filter:
        return tag("p", "No record that was looked at passes the filter.", class_="empty")
    if wanted.newer_than is not None:
        return tag("p", "Nothing newer has come yet.", class_="empty")
    if wanted.older_than is not None:
        return tag("p", "There is nothing older.", class_="empty")
    if wanted.start in ("offset", "time"):
        return tag("p", "There is no record from this place on.", class_="empty")
    return tag(
        "div",
        tag("p", "There is no record here."),
        tag(
            "p",
            "Write one on ",
            tag("a", "this page", href=addresses.topic(name, "produce")),
            ", or with ",
            tag("code", f"ottla produce {name}"),
            ".",
        ),
        class_="empty",
    )


def _tail(console: Console, name: str, wanted: Query, page: Page, decoder: Decoder) -> None:
    """What was there, and then what comes, newest first."""
    seen = page.records[-TAIL_RECORDS_MAX:]
    positions = dict(page.newer)
    matches = wanted.matches(decoder)

    def render(trouble: str | None = None) -> Markup:
        newest_first = list(reversed(seen))
        return join(
            tag(
                "p",
                tag("span", "● live", class_="badge good"),
                " New records appear as they are appended, newest first.",
                class_="quiet",
            ),
            tag("p", trouble, class_="notice bad") if trouble else None,
            _list(name, newest_first, decoder) if newest_first else tag("p", "Nothing has come yet.", class_="empty"),
        )

    part = Live(render())
    busy = False

    async def follow() -> None:
        nonlocal busy, positions
        if busy:
            return
        busy = True
        try:
            found = await console.workers.ask(
                lambda client: read_forward(
                    client, name, positions, limit=TAIL_STEP_MAX, matches=matches, committed=wanted.committed
                )
            )
        except KafkaError as error:
            part.update(render(sentence(error)))
        else:
            positions = found.newer
            seen.extend(found.records)
            del seen[:-TAIL_RECORDS_MAX]
            part.update(render())
        finally:
            busy = False

    ui.timer(TAIL_PERIOD_S, follow)
