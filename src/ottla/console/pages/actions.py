"""Buttons in tables. A table is markup, which knows no handlers: a button names an event and a row, and the page looks
the row up among those that it has shown, whatever the browser says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from nicegui import ui

from ottla.console.markup import Markup, tag

T = TypeVar("T")


def row_button(text: str, event: str, row: str, *, label: str) -> Markup:
    """`label` says it whole, to whoever does not see the row."""
    return tag("button", text, type="button", class_="row-button", data_event=event, data_row=row, aria_label=label)


def on_row(event: str, rows: Mapping[str, T], action: Callable[[T], Awaitable[None] | None]) -> None:
    """Call `action` with the row whose button was pressed."""

    async def pressed(arguments: Any) -> None:
        row = rows.get(str(arguments.args))
        if row is None:
            ui.notify("This row is gone: load the page again.", type="negative")
            return
        done = action(row)
        if done is not None:
            await done

    ui.on(event, pressed)
