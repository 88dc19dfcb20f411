"""What commands print: tables for people, JSON for programs, sentences for both.

A list is one JSON object a line, anything else one object; the names in them are part of the command's interface. Names
that others have chosen cannot speak to the terminal: control characters are shown as what they are.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {0x2028: "\\u2028", 0x2029: "\\u2029"}

_MOMENT_S = 1.5
"""Who has waited for so long wants to know for what."""

Row = Mapping[str, Any]


class Output:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def rows(self, rows: Iterable[Row], columns: Mapping[str, str], *, empty: str = "") -> None:
        """Rows with stable names; `columns` says which are shown to people, by heading. Without rows, `empty` is said
        to people on standard error."""
        found = list(rows)
        if self.as_json:
            for row in found:
                _print(json.dumps(row, ensure_ascii=False))
        elif found:
            _print(table(list(columns), [[row[key] for key in columns.values()] for row in found]))
        elif empty:
            print(empty, file=sys.stderr, flush=True)

    def item(self, item: Row, text: str) -> None:
        """One object for programs, or what people are told instead."""
        _print(json.dumps(item, ensure_ascii=False) if self.as_json else text)

    def note(self, text: str) -> None:
        """For people alone, and never part of the result."""
        if not self.as_json:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Says `text` to a person on a terminal if what is done meanwhile takes longer than a moment."""
        if self.as_json or not sys.stderr.isatty():
            yield
            return
        timer = threading.Timer(_MOMENT_S, self.note, [text])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns with two spaces between them; numbers to the right."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(headings, *texts, strict=True)]
    rights = [all(_is_number(value) for value in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in (headings, *texts):
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, rights, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def plural(number: int, noun: str, several: str = "") -> str:
    """`1 record`, `2 records`. The plural has an s, if not told otherwise."""
    return f"{number} {noun if number == 1 else several or noun + 's'}"


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(cell(each) for each in value) or "-"
    return visible(str(value)) or "-"


def visible(text: str) -> str:
    return text.translate(_CONTROLS)


def size(number: int | None) -> str:
    """Bytes as people say them."""
    if number is None or number < 0:
        return "-"
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _print(text: str) -> None:
    print(text, flush=True)
