"""The examples do what their page says: it is followed line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.pages import ROOT, Typed, parts, terminal

PAGE = ROOT / "docs" / "examples.md"
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_the_page_of_examples_is_true(tmp_path: Path) -> None:
    with terminal(tmp_path) as typed:
        typed.follow(PAGE.read_text())


def test_every_example_is_on_the_page_and_run() -> None:
    page = PAGE.read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"`examples/{path.name}`" in page, f"{path.name} is not on the page"
    run = {part.command for part in parts(page) if isinstance(part, Typed)}
    assert len([command for command in run if command.startswith("python examples/")]) == 4
