"""`ottla config`: the configs of topics, brokers and groups, and where each value comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.admin import configs
from ottla.cli.session import Session, command, group, pairs

app = group("Configs of topics, brokers and groups.")

_KINDS = {
    "topic": configs.ResourceKind.TOPIC,
    "broker": configs.ResourceKind.BROKER,
    "group": configs.ResourceKind.GROUP,
    "logger": configs.ResourceKind.BROKER_LOGGER,
    "client-metrics": configs.ResourceKind.CLIENT_METRICS,
}

Kind = Annotated[str, typer.Argument(help=", ".join(_KINDS), show_default=False)]
Name = Annotated[str, typer.Argument(help="Its name; a broker's is its id, and `all` is every broker.")]


@command(
    app,
    "get",
    examples=["ottla config get topic orders", "ottla config get broker 1 log.retention.ms --explain"],
)
def get(
    session: Session,
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(help="Only these keys.")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Defaults too.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="What each key means.")] = False,
) -> None:
    """Show configs with where each value comes from."""
    with session.client() as client:
        entries = configs.describe_configs(
            client, _kind(kind), _name(kind, name), keys=keys or None, documentation=explain
        )
    rows = [
        {
            "key": each.name,
            "value": "****" if each.is_sensitive else each.value,
            "source": each.source.text,
            "type": each.type,
            "read_only": each.is_read_only,
            "documentation": each.documentation,
        }
        for each in entries
        if all_ or keys or not each.is_default
    ]
    columns = {"KEY": "key", "VALUE": "value", "FROM": "source"}
    if explain:
        columns |= {"MEANING": "documentation"}
    session.out.rows(rows, columns, empty="Everything is at its default; --all shows that too.")


@command(
    app,
    "set",
    examples=[
        "ottla config set topic orders retention.ms=3600000",
        "ottla config set broker all log.cleaner.threads=2",
        "ottla config set topic orders cleanup.policy+=compact",
    ],
)
def set_(
    session: Session,
    kind: Kind,
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="KEY+=VALUE and KEY-=VALUE for lists.")],
    check: Annotated[bool, typer.Option("--check", "-n", help="Only ask whether it could be done.")] = False,
) -> None:
    """Change configs while the cluster runs."""
    given = pairs(settings, "KEY=VALUE:")
    append = {key[:-1].strip(): value for key, value in given.items() if key.endswith("+")}
    subtract = {key[:-1].strip(): value for key, value in given.items() if key.endswith("-")}
    plain = {key: value for key, value in given.items() if not key.endswith(("+", "-"))}
    with session.client() as client:
        configs.alter_configs(
            client,
            _kind(kind),
            _name(kind, name),
            set=plain,
            append=append,
            subtract=subtract,
            validate_only=check,
        )
    said = f"{kind} {name} could be changed so" if check else f"{kind} {name} changed"
    session.out.item({"kind": kind, "name": name, "changed": not check, "set": given}, said)


@command(app, "unset", examples=["ottla config unset topic orders retention.ms"])
def unset(
    session: Session, kind: Kind, name: Name, keys: Annotated[list[str], typer.Argument(help="The keys.")]
) -> None:
    """Take configs back: what stands behind them counts again."""
    with session.client() as client:
        configs.alter_configs(client, _kind(kind), _name(kind, name), delete=keys)
    session.out.item({"kind": kind, "name": name, "unset": keys}, f"{kind} {name} changed")


def _kind(kind: str) -> configs.ResourceKind:
    if kind not in _KINDS:
        raise typer.BadParameter(f"{kind} is none of {', '.join(_KINDS)}.")
    return _KINDS[kind]


def _name(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == "all" else name
