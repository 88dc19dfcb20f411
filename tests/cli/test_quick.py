"""The quick reading of `up` and `node` agrees with the full one, or leaves the line to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.quick import find

LINES = [
    ["up"],
    ["up", "--port", "19092"],
    ["up", "--nodes", "3"],
    ["up", "--nodes=3", "--ephemeral", "--port", "0"],
    ["up", "--port=0", "--ephemeral"],
    ["up", "--host", "127.0.0.2", "--data", "somewhere"],
    ["up", "--data=a=b"],
    ["up", "--set", "num.partitions=3", "--set", "log.dirs=x", "--log-level", "debug"],
    ["up", "--set=num.partitions=3"],
    ["up", "--registry", "off"],
    ["up", "--registry=127.0.0.1:9081"],
    ["up", "--console-port", "9080"],
    ["up", "--no-console"],
    ["node", "server.properties"],
    ["node", "server.properties", "--registry", "127.0.0.1:0"],
    ["node", "--set", "node.id=2", "server.properties", "--log-level=error"],
    ["up", "--log-format", "text"],
    ["node", "server.properties", "--log-format=json"],
]
LEFT_TO_THE_FULL_PARSER = [
    [],
    ["--help"],
    ["up", "--help"],
    ["up", "--port"],
    ["up", "--port", "many"],
    ["up", "--console-port", "many"],
    ["up", "--nodes"],
    ["up", "--nodes", "three"],
    ["up", "--nodes", "-1"],
    ["up", "--set", "--ephemeral"],
    ["up", "extra"],
    ["up", "--unknown"],
    ["node"],
    ["node", "a", "b"],
    ["format", "server.properties"],
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the commands were asked to do, instead of doing it."""
    seen: list[Any] = []
    monkeypatch.setattr("ottla.cli.up.run_up", lambda **options: seen.append(options))

    def run_node(properties: Path, settings: list[str], log_level: str, registry: str) -> None:
        seen.append((properties, settings, log_level, registry))

    monkeypatch.setattr("ottla.cli.node.run_node", run_node)
    monkeypatch.setenv("OTTLA_LOG_FORMAT", "text")  # Put back, whatever a line sets it to.
    return seen


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_both_readings_are_the_same(line: list[str], calls: list[Any]) -> None:
    quick = find(line)
    assert quick is not None
    quick()
    assert CliRunner().invoke(app, line).exit_code == 0
    assert len(calls) == 2
    assert calls[0] == calls[1]


@pytest.mark.parametrize("line", LEFT_TO_THE_FULL_PARSER, ids=" ".join)
def test_what_needs_explaining_is_left_to_the_full_parser(line: list[str]) -> None:
    assert find(line) is None


def test_a_node_that_starts_loads_nothing_that_only_some_need() -> None:
    """What groups, passwords, command lines and web pages are made of would be a tenth of the time that a start takes,
    each."""
    late = (
        "fastapi",
        "ottla.coordinator.group_shard",
        "ottla.coordinator.transaction.shard",
        "ottla.security.scram",
        "ottla.testing",
        "pathlib",
        "pyarrow",
        "rich",
        "typer",
    )
    script = f"import sys, ottla.cli.quick, ottla.cli.up; print(*[name for name in {late} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-S", "-c", script], env=_environment(), capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("\n", "")


def _environment() -> dict[str, str]:
    """Without `site`, whose own files load what they like."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
