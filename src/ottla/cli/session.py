"""What every command that speaks to a cluster has in common: where it is, who we are there, and how to answer.

`command` registers a function with Typer and gives it, before its own options, a `Session`; the options that say where
the cluster is are the same everywhere. What counts, the later the more: the current profile (or that of `--profile`),
`--command-config`, `-X`, `--bootstrap`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ottla.cli import complete
from ottla.cli.output import Output
from ottla.cli.settings import read_properties
from ottla.client.blocking import BlockingClient
from ottla.client.peer import PeerLost
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.model import TopicPartition

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

F = TypeVar("F", bound=Callable[..., None])

_PANEL = "Cluster"
_COMMON: dict[str, tuple[Any, Any]] = {
    "bootstrap": (
        Annotated[
            str | None,
            typer.Option(
                *("--bootstrap", "-b", "--bootstrap-server"),
                metavar="HOST:PORT",
                help=f"Brokers of the cluster; {DEFAULT_BOOTSTRAP} if no profile says otherwise.",
                rich_help_panel=_PANEL,
            ),
        ],
        None,
    ),
    "profile": (
        Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="A cluster of `ottla profile list`.",
                rich_help_panel=_PANEL,
                autocompletion=complete.profiles,
            ),
        ],
        None,
    ),
    "command_config": (
        Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="A client's properties file.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "properties": (
        Annotated[
            list[str] | None,
            typer.Option("-X", metavar="KEY=VALUE", help="One of a client's properties.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.", rich_help_panel=_PANEL)],
        False,
    ),
}


class Session:
    """One command's view of the cluster and of whoever called it."""

    def __init__(self, properties: Mapping[str, str], *, as_json: bool) -> None:
        self.properties = properties
        self.out = Output(as_json=as_json)

    @cached_property
    def settings(self) -> ClientSettings:
        try:
            return ClientSettings.parse(self.properties)
        except InvalidClientConfig as error:
            raise StartupError(str(error)) from None

    @property
    def bootstrap(self) -> str:
        return self.properties["bootstrap.servers"]

    @contextmanager
    def client(self) -> Iterator[BlockingClient]:
        """What cannot be reached is one sentence with what to do."""
        try:
            with BlockingClient(self.settings) as client:
                yield client
        except PeerLost as error:
            raise StartupError(
                f"The cluster at {self.bootstrap} does not answer: {error.message}. Start one with `ottla up`, or name "
                "another with --bootstrap or --profile."
            ) from None
        except KafkaError as error:
            if error.code != ErrorCode.MISMATCHED_ENDPOINT_TYPE:
                raise
            raise StartupError(f"{self.bootstrap} is a controller's port: name a broker's with --bootstrap.") from None


def command(
    group: typer.Typer, name: str | None = None, *, examples: Iterable[str] = (), no_args_is_help: bool = False
) -> Callable[[F], F]:
    """Makes a command of a function whose first parameter is a `Session`. Its docstring is the help; `examples` stand
    before the options."""

    def register(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        common = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for each, (annotation, default) in _COMMON.items()
        ]

        def run(**options: Any) -> None:
            given = {each: options.pop(each) for each in _COMMON}
            function(open_session(**given), **options)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + common
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__name__ = function.__name__
        group.command(name, help=_help(function, examples), no_args_is_help=no_args_is_help)(run)
        return function

    return register


def group(help: str) -> typer.Typer:
    return typer.Typer(no_args_is_help=True, help=help, context_settings=HELP_OPTIONS, add_completion=False)


def single() -> typer.Typer:
    """For a command that is no group."""
    return typer.Typer(context_settings=HELP_OPTIONS, add_completion=False)


def open_session(
    *,
    bootstrap: str | None = None,
    profile: str | None = None,
    command_config: Path | None = None,
    properties: list[str] | None = None,
    as_json: bool = False,
) -> Session:
    from ottla.cli.profiles import config_path, load

    found: dict[str, str] = {"bootstrap.servers": DEFAULT_BOOTSTRAP}
    found.update(load(config_path()).chosen(profile))
    if command_config is not None:
        found.update(read_properties(command_config))
    found.update(pairs(properties or [], "-X"))
    if bootstrap is not None:
        found["bootstrap.servers"] = bootstrap
    return Session(found, as_json=as_json)


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` of an option that may be given again and again."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{option} {text} is not of the form KEY=VALUE.")
        found[key.strip()] = value.strip()
    return found


def parse_partitions(texts: Iterable[str], counts: Callable[[str], int]) -> list[TopicPartition]:
    """`orders` is all partitions of a topic, `orders:0,2` some of them. `counts` says how many a topic has."""
    found: list[TopicPartition] = []
    for text in texts:
        topic, colon, indexes = text.partition(":")
        count = counts(topic)
        if not colon:
            found += [TopicPartition(topic, each) for each in range(count)]
            continue
        for each in indexes.split(","):
            if not each.strip().isdecimal() or int(each) >= count:
                raise StartupError(f"{text!r}: {topic} has partitions 0 to {count - 1}; write {topic} or {topic}:0.")
            found.append(TopicPartition(topic, int(each)))
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Asks a person before something is lost; a program has to say --yes."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise StartupError(f"{question} Say --yes to do it without being asked.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _help(function: Callable[..., None], examples: Iterable[str]) -> str:
    text = inspect.cleandoc(function.__doc__ or "").replace("[", "\\[")
    shown = "\n".join(f"  $ {each}" for each in examples).replace("[", "\\[")
    return f"{text}\n\n{shown}" if shown else text
