"""The reference page of metrics is made from the table, so it cannot tell another story."""

from __future__ import annotations

from pathlib import Path

from ottla.metrics.reference import render, shown_names
from ottla.metrics.rows import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "metrics-reference.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run: python -m ottla.metrics.reference > docs/metrics-reference.md"


def test_no_two_rows_are_shown_under_one_name() -> None:
    names = [name for row in ROWS for name in shown_names(row)]
    assert len(set(names)) == len(names)
