"""A command line that is not understood ends with status 2, whoever finds it out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.settings import build_config
from ottla.cli.times import parse_duration, parse_moment
from ottla.errors import StartupError, UsageError
from tests.cli.sessions import run_ottla


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("up --nodes 0", "--nodes 0 is not between 1 and 100."),
        ("up --port 70000", "--port 70000 is too high"),
        ("up --set foo", "--set foo is not of the form KEY=VALUE."),
        ("up --log-level loud", "--log-level loud is none of debug, info, warning, error."),
        ("up --log-format loud", "--log-format loud is none of "),
    ],
)
def test_of_what_serves(tmp_path: Path, words: str, said: str) -> None:
    """In a process of its own: it takes over signals."""
    command = [sys.executable, "-m", "ottla.cli", *words.split()]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"ottla: {said}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "sim --seeds few",
        "sim --seeds 5-1",
        "sim --mode mixed",
        "sim --mutation none-such",
        "sim --seconds 0",
        "doctor --skew soon",
        "consume orders -f %q",
    ],
)
def test_of_what_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    status, out, err = run_ottla(words.split())
    assert (status, out, err.startswith("ottla: ")) == (2, b"", True)


def test_of_times() -> None:
    for parse in (parse_moment, parse_duration):
        with pytest.raises(UsageError, match="'soon' is no "):
            parse("soon")


def test_a_file_that_does_not_fit_is_no_matter_of_usage_and_shows_what_is_empty() -> None:
    with pytest.raises(StartupError, match=r"^Invalid value '' for configuration node\.id: ") as refused:
        build_config({"process.roles": "broker", "controller.listener.names": "CONTROLLER", "node.id": ""})
    assert not isinstance(refused.value, UsageError)
