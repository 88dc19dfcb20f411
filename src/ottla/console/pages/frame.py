"""What every page has: the way around, a place for its content, live parts, and words for what went wrong."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from fastapi import Request
from nicegui import ui

from ottla.client.peer import PeerLost
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.registry import RegistryError
from ottla.console.units import clock
from ottla.errors import KafkaError

RESPONSE_TIMEOUT_S = 60.0
"""A cluster whose nodes do not answer takes its time; the page waits for it and then says so."""
PERIOD_S = 1.0

NAVIGATION = (
    ("/", "Health", "h"),
    ("/topics", "Topics", "t"),
    ("/groups", "Groups", "g"),
    ("/brokers", "Nodes", "n"),
    ("/charts", "Charts", "c"),
    ("/transactions", "Transactions", "x"),
    ("/schemas", "Schemas", "s"),
    ("/acls", "ACLs", "a"),
    ("/users", "Users", "u"),
)

HEAD = """
<link rel="stylesheet" href="/assets/console.css">
<script src="/assets/console.js"></script>
"""


@contextmanager
def frame(console: Console, title: str, here: str, crumbs: tuple[tuple[str, str], ...] = ()) -> Iterator[None]:
    """The page's content is made inside. `here` is the address of its entry in the navigation; `crumbs` are the pages
    above it, as (name, address)."""
    ui.page_title(f"{title} · Ottla")
    ui.html(_navigation(here), sanitize=False).classes("frame-side")
    with ui.element("div").props("id=main tabindex=-1").classes("frame-main"):
        _html(
            tag(
                "div",
                tag(
                    "nav",
                    tag("ol", [tag("li", tag("a", name, href=address)) for name, address in crumbs]),
                    aria_label="Above this page",
                    class_="crumbs",
                )
                if crumbs
                else None,
                tag("h1", title),
            )
        )
        live(lambda: _trouble(console))
        yield


def _navigation(here: str) -> Markup:
    return tag(
        "div",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("a", tag("span", "▮▮▯", class_="brand-mark", aria_hidden="true"), "Ottla", href="/", class_="brand"),
        tag(
            "nav",
            tag(
                "ul",
                [
                    tag(
                        "li",
                        tag(
                            "a",
                            name,
                            tag("kbd", f"g {key}", aria_hidden="true"),
                            href=address,
                            data_shortcut=key,
                            aria_current="page" if address == here else None,
                        ),
                    )
                    for address, name, key in NAVIGATION
                ],
            ),
            aria_label="Pages",
        ),
        tag(
            "div",
            tag("button", "Theme", type="button", data_action="theme", title="Light, dark, or as the system (d)"),
            tag("button", "Keys", type="button", data_action="help", title="What keys do (?)"),
            class_="tools",
        ),
        class_="side",
    )


def _trouble(console: Console) -> Markup:
    """Why what is shown may be old; nothing while all is well."""
    console.poller.newest  # noqa: B018 - asking says that somebody looks
    if console.poller.error is None:
        return join()
    look = console.poller.newest
    return tag(
        "p",
        tag("strong", "The cluster cannot be asked. "),
        as_sentence(console.poller.error),
        None if look is None else f" What is shown was true at {clock(look.time_s)}.",
        class_="notice bad",
        role="alert",
    )


def unanswered() -> Markup:
    return tag("p", "The cluster has not answered yet: this page shows it as soon as it does.", class_="empty")


def wait_for_cluster(console: Console) -> None:
    """In place of what only the cluster knows: the page loads itself again when that answers."""
    show(unanswered())

    def look() -> None:
        if console.poller.newest is not None and console.poller.error is None:
            ui.navigate.reload()

    ui.timer(PERIOD_S, look)


def missing(console: Console, text: str) -> None:
    """For a page about something that the cluster has not; or nobody can say whether it has."""
    if console.poller.newest is None:
        wait_for_cluster(console)
    else:
        notice(text, bad=True)


def refused(console: Console, error: KafkaError) -> None:
    """The cluster said no, or nothing."""
    if isinstance(error, PeerLost) and console.poller.error is not None:
        wait_for_cluster(console)
    else:
        notice(sentence(error), bad=True)


class Live:
    """A part of the page that is drawn anew when what it shows has changed: in place, so that focus, selection and
    what was opened stay."""

    def __init__(self, markup: Markup) -> None:
        self._shown = str(markup)
        self._element = ui.html(self._shown, sanitize=False).classes("live")

    def update(self, markup: Markup) -> None:
        if markup != self._shown:
            self._shown = str(markup)
            element = json.dumps(self._element.html_id)
            self._element.client.run_javascript(f"ottla.show({element}, {json.dumps(self._shown)})")


def live(render: Callable[[], Markup], period_s: float = PERIOD_S) -> Live:
    """`render` reads what is in memory, and asks nobody."""
    part = Live(render())
    ui.timer(period_s, lambda: part.update(render()))
    return part


def _html(markup: Markup) -> None:
    ui.html(markup, sanitize=False).classes("block")


def show(*children: Child) -> None:
    """Markup that stays as it is."""
    _html(join(*children))


def section(title: str, *children: Child) -> None:
    show(tag("h2", title), *children)


def notice(text: Child, *, bad: bool = False) -> None:
    show(tag("p", text, class_=f"notice{' bad' if bad else ''}", role="alert" if bad else None))


def query_of(request: Request) -> dict[str, str]:
    return dict(request.query_params)


async def attempt(work: Awaitable[None]) -> bool:
    """Whether it could be done; if not, the person is told why."""
    try:
        await work
    except (KafkaError, RegistryError, ValueError) as error:
        ui.notify(sentence(error), type="negative", multi_line=True, close_button="Close", timeout=0)
        return False
    return True


def sentence(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return as_sentence(error.message or error.code.name)
    return str(error)


def as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def confirm(title: str, preview: Markup, button: str, action: Callable[[], Awaitable[None]]) -> None:
    """A dialog that shows what would happen, and does it if told so."""
    with ui.dialog(value=True) as dialog, ui.card().classes("dialog"):
        show(tag("h2", title), preview)
        with ui.element("div").classes("buttons"):
            ui.button("Leave it as it is", on_click=dialog.close).props("flat no-caps")

            async def go() -> None:
                if await attempt(action()):
                    dialog.close()

            ui.button(button, on_click=go).props("unelevated no-caps color=accent")


def filter_form(query: Mapping[str, str], label: str) -> Markup:
    """A filter that is part of the page's address."""
    kept = [tag("input", type="hidden", name=name, value=value) for name, value in query.items() if name != "q"]
    return tag(
        "form",
        kept,
        tag("label", label, for_="q"),
        tag("input", id="q", name="q", type="search", value=query.get("q", ""), data_action="filter"),
        tag("button", "Filter", type="submit"),
        class_="filter",
        role="search",
    )


def read_only_notice(console: Console) -> None:
    if not console.may_change:
        notice("This console changes nothing: other machines can open it, and it asks nobody who they are.")
