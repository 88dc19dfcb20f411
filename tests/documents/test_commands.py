"""Every `ottla …` that a document shows can be typed so: the command is there, and so are its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ottla.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
_LINE = re.compile(r"^(?: {4}|\$ |  )?(?:.*\| |.*\$\()?(?:\.venv/bin/)?(ottla [a-z].*)$")
_ENDS = frozenset({"|", ">", ">>", "<", "&", "&&", ";", "#"})


def shown(text: str) -> Iterator[list[str]]:
    """The commands of a document's code, as words behind `ottla`. Those with a gap (`…`, `[`) are no commands."""
    within = False
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("```"):
            within = not within
        if not (within or line.startswith("    ")):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines).strip()
        found = _LINE.match(line)
        if found is None or re.search(r"…|\[-", line):
            continue
        typed = re.split(r" {3,}| 2>", found[1])[0]  # Behind it may stand what it does.
        lexer = shlex.shlex(typed, posix=True, punctuation_chars="|<>&;")
        lexer.whitespace_split = True
        words = list(lexer)
        end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
        yield words[1:end]


def check(words: list[str]) -> None:
    """Raises what the command line itself would say."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="ottla")
    at = 0
    while hasattr(command, "list_commands"):
        name = words[at]
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {' '.join(words[: at + 1])}"
        at += 1
    command.make_context(words[at - 1], words[at:], parent=context)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_shown_can_be_typed(document: str) -> None:
    for words in shown((ROOT / document).read_text()):
        try:
            check(words)
        except typer.Exit:
            pass  # It was asked for help.
        except Exception as error:
            raise AssertionError(f"ottla {shlex.join(words)}: {getattr(error, 'message', error)}") from error


def mentioned(text: str) -> Iterator[list[str]]:
    """What stands within a sentence, whole or not: `ottla topic create NAME`, `ottla user`."""
    for found in re.findall(r"`ottla ([a-z][^`\n]*)`", text):
        yield re.sub(r"\{[^}]*\}", "X", found).split()


def check_mention(words: list[str]) -> None:
    """There is such a command, and it has such options; what it needs besides may be left out."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="ottla")
    left = list(words)
    while left and hasattr(command, "list_commands"):
        if "|" in left[0] or "…" in left[0]:
            return
        command = command.get_command(context, left.pop(0))
        assert command is not None, f"there is no command {shlex.join(words)}"
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
    unknown = [word for word in left if word.startswith("-") and word not in known]
    assert not unknown, f"ottla {shlex.join(words)}: there is no {unknown[0]}"


def test_what_is_mentioned_is_there() -> None:
    """In documents, and in what the program itself says."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / document for document in DOCUMENTS), ROOT / "ARCHITECTURE.md"]
    total = 0
    for source in sources:
        for words in mentioned(source.read_text()):
            check_mention(words)
            total += 1
    assert total > 100


def test_commands_are_found_and_wrong_ones_refused() -> None:
    page = "```\n$ echo x | ottla produce orders -K : \\\n    a.txt   # and so on\n```\n    ottla up\n\nottla nothing\n"
    assert list(shown(page)) == [["produce", "orders", "-K", ":", "a.txt"], ["up"]]
    with pytest.raises(Exception, match="--nonsense"):
        check(["topic", "create", "orders", "--nonsense"])
    with pytest.raises(AssertionError, match="topic make"):
        check(["topic", "make", "orders"])
    with pytest.raises(AssertionError, match="no --nonsense"):
        check_mention(next(mentioned("End it with `ottla txn abort {each} --nonsense`.")))
    with pytest.raises(AssertionError, match="no command txn stop"):
        check_mention(next(mentioned("See `ottla txn stop`.")))
    total = sum(len(list(shown((ROOT / document).read_text()))) for document in DOCUMENTS)
    assert total > 100
