"""The reference page is made from the table, so it cannot tell another story."""

from __future__ import annotations

from pathlib import Path

from ottla.config.key import Scope
from ottla.config.reference import render
from ottla.config.table import keys

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: python -m ottla.config.reference > docs/configuration.md"


def test_every_key_is_on_the_page() -> None:
    lines = render().splitlines()
    for scope in Scope:
        for name in keys(scope):
            assert any(line.startswith(f"| `{name}` |") for line in lines), name


def test_rows_have_as_many_cells_as_their_table() -> None:
    width = 0
    for line in render().splitlines():
        if line.startswith("|---"):
            width = line.count("|")
        elif line.startswith("| `"):
            assert line.count("|") == width, line
