"""Transcripts: tests of pure machines as a dialogue in a text file, which a reader can follow without the code.

    # A comment says what is about to happen.
    command word key=value other=1,2
    ----
    what came of it, one line a fact

A case ends at an empty line. `run` carries out every command in order and compares what came of it with what is
written. To accept what comes now, run pytest with `--rewrite` (or with OTTLA_REWRITE=1 in the environment), look at the
diff, and commit it only when you can explain it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

RULE = "----"


class Command(NamedTuple):
    line: int
    name: str
    words: list[str]
    """What follows the name without '='."""

    options: dict[str, str]

    def integer(self, name: str, default: int | None = None) -> int:
        text = self.options.get(name)
        if text is None:
            assert default is not None, f"line {self.line}: {self.name} needs {name}=…"
            return default
        return int(text)

    def integers(self, name: str) -> list[int]:
        text = self.options.get(name, "")
        return [int(part) for part in text.split(",") if part]


class _Case(NamedTuple):
    comments: list[str]
    command: str
    line: int
    expected: list[str]


def _parse(text: str) -> list[_Case]:
    cases: list[_Case] = []
    for number, block in _blocks(text):
        comments = [line for line in block if line.startswith("#")]
        lines = [line for line in block if not line.startswith("#")]
        if not lines:
            cases.append(_Case(comments, "", number, []))
            continue
        assert lines[1:2] == [RULE], f"line {number}: a command is followed by {RULE}"
        cases.append(_Case(comments, lines[0], number + len(comments), lines[2:]))
    return cases


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    blocks: list[tuple[int, list[str]]] = []
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            block.append(line)
        elif block:
            blocks.append((number - len(block), block))
            block = []
    return blocks


def _command(case: _Case) -> Command:
    name, *rest = case.command.split()
    words = [word for word in rest if "=" not in word]
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    return Command(case.line, name, words, options)


def run(path: Path, execute: Callable[[Command], list[str]], config: pytest.Config) -> None:
    """Play the transcript at `path`; `execute` carries out a command and returns what came of it, line by line."""
    cases = _parse(path.read_text())
    rewrite = bool(config.getoption("--rewrite", default=False)) or bool(os.environ.get("OTTLA_REWRITE"))
    written: list[str] = []
    for case in cases:
        if not case.command:
            written.append("\n".join(case.comments))
            continue
        came = execute(_command(case))
        if not rewrite:
            where = f"{path.name}:{case.line}: {case.command}"
            assert came == case.expected, f"{where}\n" + "\n".join(["came:", *came, "written:", *case.expected])
        written.append("\n".join([*case.comments, case.command, RULE, *came]))
    if rewrite:
        path.write_text("\n\n".join(written) + "\n")


def transcripts(directory: Path) -> list[Path]:
    found = sorted(directory.glob("*.txt"))
    assert found, f"no transcripts in {directory}"
    return found
