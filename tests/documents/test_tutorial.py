"""A person new to Kafka follows the tutorial, and everything that it shows is true."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from tests.documents.pages import ADDRESS, ROOT, Typed, matches, parts, terminal

PAGE = ROOT / "docs" / "tutorial.md"
SPARK_BEGINS = "## Into a table"


@pytest.mark.slow
def test_what_comes_before_spark_is_true(tmp_path: Path) -> None:
    page, _, _ = PAGE.read_text().partition(SPARK_BEGINS)
    with terminal(tmp_path) as typed:
        typed.follow(page)
        shown = re.findall(rf"\(http://{re.escape(ADDRESS)}:8080([^)]*)\)", page)
        assert len(shown) == 3
        for path in shown:
            with urllib.request.urlopen(f"http://{ADDRESS}:{typed.ports['8080']}{path}", timeout=60) as answer:
                assert answer.status == 200
                assert "Ottla" in answer.read().decode()


@pytest.mark.spark
def test_the_whole_page_is_true(tmp_path: Path) -> None:
    with terminal(tmp_path) as typed:
        typed.follow(PAGE.read_text())


def test_what_is_shown_is_compared() -> None:
    assert matches(["a … c"], ["a b c"])
    assert matches(["…", "end"], ["one", "two", "end"])
    assert matches(["…"], [])
    assert not matches(["a", "b"], ["a"])
    assert not matches(["a"], ["a", "b"])
    assert not matches([], ["anything"])
    assert not matches(["0 …"], ["1 b"])


def test_the_page_has_commands_to_run() -> None:
    commands = [part.command for part in parts(PAGE.read_text()) if isinstance(part, Typed)]
    assert len(commands) > 12
    assert sum("ottla" in command for command in commands) > 8
