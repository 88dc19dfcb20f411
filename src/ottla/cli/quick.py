"""The everyday forms of `up` and `node`, read by hand.

A node should be ready in the blink of an eye, and importing a framework for command lines takes longer than starting
the node does. What is not understood here (help, a mistake, another command) goes to the full command line in `app`,
which knows the same options and explains them; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable

_VALUED = {
    "up": {"--nodes", "--port", "--host", "--data", "--registry", "--console-port"}
    | {"--set", "--log-level", "--log-format"},
    "node": {"--registry", "--set", "--log-level", "--log-format"},
}
_FLAGS = {"up": {"--ephemeral", "--no-console"}, "node": set[str]()}


class Parsed:
    """The options of one command line: each value as text, in order."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.values: dict[str, list[str]] = {}
        self.flags: set[str] = set()
        self.arguments: list[str] = []

    def last(self, option: str, default: str) -> str:
        return self.values.get(option, [default])[-1]


def parse(arguments: list[str]) -> Parsed | None:
    """The options, or none if the line is for the full parser."""
    if not arguments or arguments[0] not in _VALUED:
        return None
    parsed = Parsed(arguments[0])
    rest = iter(arguments[1:])
    for argument in rest:
        option, equals, value = argument.partition("=")
        if argument in _FLAGS[parsed.command]:
            parsed.flags.add(argument)
        elif option in _VALUED[parsed.command]:
            if not equals:
                value = next(rest, "")
                if not value or value.startswith("--"):
                    return None
            parsed.values.setdefault(option, []).append(value)
        elif argument.startswith("-"):
            return None
        else:
            parsed.arguments.append(argument)
    wanted = 1 if parsed.command == "node" else 0
    if len(parsed.arguments) != wanted:
        return None
    if not all(parsed.last(option, "0").isdecimal() for option in ("--port", "--nodes", "--console-port")):
        return None
    return parsed


def _choose_log_format(parsed: Parsed) -> None:
    if "--log-format" in parsed.values:
        from ottla.cli.settings import choose_log_format

        choose_log_format(parsed.last("--log-format", ""))


def find(arguments: list[str]) -> Callable[[], None] | None:
    """What to run for this command line, or none if it is for the full parser."""
    parsed = parse(arguments)
    if parsed is None:
        return None
    if parsed.command == "node":
        return lambda: _node(parsed)
    return lambda: _up(parsed)


def _up(parsed: Parsed) -> None:
    from ottla.cli.up import run_up

    _choose_log_format(parsed)
    run_up(
        nodes=int(parsed.last("--nodes", "1")),
        port=int(parsed.last("--port", "9092")),
        host=parsed.last("--host", "127.0.0.1"),
        data=parsed.last("--data", "ottla-data"),
        ephemeral="--ephemeral" in parsed.flags,
        registry=parsed.last("--registry", "") or None,
        console="--no-console" not in parsed.flags,
        console_port=int(parsed.last("--console-port", "0")) if "--console-port" in parsed.values else None,
        settings=parsed.values.get("--set", []),
        log_level=parsed.last("--log-level", "warning"),
    )


def _node(parsed: Parsed) -> None:
    from pathlib import Path

    from ottla.cli.node import run_node

    _choose_log_format(parsed)
    run_node(
        Path(parsed.arguments[0]),
        parsed.values.get("--set", []),
        parsed.last("--log-level", "info"),
        parsed.last("--registry", "off"),
    )
