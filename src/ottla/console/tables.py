"""Tables whose order is part of the page's address: a heading is a link that sorts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from ottla.console.markup import Child, Markup, tag

T = TypeVar("T")

ROWS_MAX = 1_000
"""A browser stays quick up to here; a filter finds the rest."""


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    title: str
    cell: Callable[[T], Child]
    sort: Callable[[T], Any] | None = None
    """What rows are ordered by: something comparable; none for a column that does not sort."""
    number: bool = False


def table(
    items: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    key: Callable[[T], str],
    caption: str,
    query: Mapping[str, str],
    empty: Child,
) -> Markup:
    """`query` is the page's: `sort` names a column, `order` may be `down`. `empty` is shown where there is nothing."""
    rows = list(items)
    if not rows:
        return tag("div", empty, class_="empty")
    chosen = next((column for column in columns if column.title == query.get("sort") and column.sort), None)
    down = query.get("order") == "down"
    if chosen is not None and chosen.sort is not None:
        rows.sort(key=chosen.sort, reverse=down)
    body = [
        tag(
            "tr",
            [
                tag("th", column.cell(row), scope="row")
                if at == 0
                else tag("td", column.cell(row), class_="number" if column.number else None)
                for at, column in enumerate(columns)
            ],
            data_key=key(row),
        )
        for row in rows[:ROWS_MAX]
    ]
    more = len(rows) - ROWS_MAX
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", [_heading(column, chosen, down, query) for column in columns])),
            tag("tbody", body),
        ),
        tag("p", f"{more:,} more rows are not shown: filter for them.") if more > 0 else None,
        class_="table-box",
    )


def _heading(column: Column[T], chosen: Column[T] | None, down: bool, query: Mapping[str, str]) -> Markup:
    kind = "number" if column.number else None
    if column.sort is None:
        return tag("th", column.title, scope="col", class_=kind)
    is_chosen = column is chosen
    # A number is mostly sorted for its largest.
    order = "down" if (not down if is_chosen else column.number) else "up"
    link = urlencode({**query, "sort": column.title, "order": order})
    arrow = (" ↓" if down else " ↑") if is_chosen else ""
    return tag(
        "th",
        tag("a", column.title, tag("span", arrow, aria_hidden="true"), href=f"?{link}"),
        scope="col",
        class_=kind,
        aria_sort=("descending" if down else "ascending") if is_chosen else None,
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts")
