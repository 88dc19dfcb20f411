"""The page of all commands of `ottla`, out of the very tree that reads the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import typer

from ottla.cli.app import app

_INTRODUCTION = """\
# Commands

<!-- Made by `make references` from the commands themselves (ottla.cli). -->

Every command of `ottla` and what it takes; `-h` says the same. [The command line](command-line.md) is the guide.

Commands that speak to a cluster also take `--bootstrap HOST:PORT` (`-b`; 127.0.0.1:9092 if no profile says otherwise),
`--profile NAME`, `--command-config FILE`, `-X KEY=VALUE` and `--json`. They are marked with a star.
"""

_COMMON = {"bootstrap", "profile", "command_config", "properties", "as_json"}
_NEVER_SHOWN = {"help", "install_completion", "show_completion"}


def render() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    return "\n".join([_INTRODUCTION, *_walk(root, typer.Context(root, info_name="ottla"), ["ottla"])])


def _walk(command: Any, context: Any, path: list[str]) -> Iterator[str]:
    """A section a command; groups are a heading for theirs."""
    names = command.list_commands(context) if hasattr(command, "list_commands") else None
    if names is None:
        yield from _section(command, path)
        return
    if len(path) > 1:
        yield f"## {' '.join(path)}\n"
        yield f"{_text(command.help)}\n"
    for name in names:
        child = command.get_command(context, name)
        yield from _walk(child, typer.Context(child, parent=context, info_name=name), [*path, name])


def _section(command: Any, path: list[str]) -> Iterator[str]:
    names = {each.name for each in command.params}
    common = names >= _COMMON
    shown = [each for each in command.params if _is_shown(each, common=common)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    yield f"{'#' * min(len(path), 3)} {' '.join(path)}{' ★' if common else ''}\n"
    about, examples = _parts(command.help or "")
    yield f"{about}\n"
    if examples:
        yield "\n".join(["```console", *examples, "```", ""])
    if arguments or options:
        yield "| | | default |\n|---|---|---|"
        for each in [*arguments, *options]:
            yield f"| {_name(each)} | {_cell(getattr(each, 'help', None))} | {_default(each)} |"
        yield ""


def _is_shown(parameter: Any, *, common: bool) -> bool:
    return (
        parameter.name not in _NEVER_SHOWN
        and not getattr(parameter, "hidden", False)
        and not (common and parameter.name in _COMMON)
    )


def _parts(text: str) -> tuple[str, list[str]]:
    """What a command's help says, and the lines of its examples."""
    said: list[str] = []
    examples: list[str] = []
    for line in map(str.strip, text.replace("\\[", "[").splitlines()):
        if line.startswith("$ "):
            examples.append(line)
        elif examples and examples[-1].endswith("\\"):
            examples.append(f"    {line}")
        elif line:
            said.append(line)
    return _text(" ".join(said)), examples


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda each: (not each.startswith("--"), each))
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join(f"`{each}{value if at == 0 else ''}`" for at, each in enumerate(names)).replace("|", "\\|")


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    kind = parameter.type_descriptor.annotation
    while inner := [each for each in get_args(kind) if each is not NoneType]:
        kind = inner[0]  # Of `int | None` and `list[int]` alike.
    return {int: "N", float: "N", Path: "PATH"}.get(kind, "TEXT")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or default is False or default == () or default == [] or callable(default):
        return ""
    if default is True:
        return f"`{parameter.opts[0]}`"
    return f"`{default}`".replace("\n", "\\n")


def _cell(text: str | None) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str | None) -> str:
    """One paragraph; brackets that Rich would read, and angles that a browser would, are meant as they stand."""
    return re.sub(r"\s+", " ", (text or "").replace("\\[", "[")).replace("<", "&lt;").strip()
