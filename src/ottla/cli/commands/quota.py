"""`ottla quota`: which users, clients and addresses are kept to which rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ottla.admin import quotas
from ottla.cli.session import Session, command, group, pairs
from ottla.errors import StartupError

app = group("Quotas: what users, clients and addresses may use.")

DEFAULT = "default"
_KINDS = {"user": "user", "client": "client-id", "ip": "ip"}
_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_IP_KEYS = ("connection_creation_rate",)
_COLUMNS = {"USER": "user", "CLIENT": "client", "IP": "ip", "QUOTA": "quota", "VALUE": "value"}

User = Annotated[str | None, typer.Option(metavar="NAME", help="A user; `default` is each that has none of its own.")]
Client = Annotated[
    str | None, typer.Option(metavar="ID", help="A client id; `default` is each that has none of its own.")
]
Ip = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="An address; `default` is each that has none of its own.")
]


@command(app, "list", examples=["ottla quota list", "ottla quota list --user ann --json"])
def list_quotas(session: Session, user: User = None, client: Client = None, ip: Ip = None) -> None:
    """List quotas; only those of whom is named, if anybody is."""
    wanted = _entity(user, client, ip)
    with session.client() as asked:
        found = quotas.list_quotas(asked)
    rows = [
        _row(each.entity, key, value)
        for each in found
        if all(kind in each.entity and each.entity[kind] == name for kind, name in wanted.items())
        for key, value in each.values.items()
    ]
    session.out.rows(rows, _COLUMNS, empty="There are no such quotas; set one with `ottla quota set`.")


@command(
    app,
    "set",
    examples=[
        "ottla quota set --user ann producer_byte_rate=1048576 consumer_byte_rate=2097152",
        "ottla quota set --client default request_percentage=50",
        "ottla quota set --ip 10.0.0.7 connection_creation_rate=10",
    ],
)
def set_quota(
    session: Session,
    settings: Annotated[
        list[str],
        typer.Argument(metavar="KEY=NUMBER", help=f"{', '.join(_KEYS)}; of an address {', '.join(_IP_KEYS)}."),
    ],
    user: User = None,
    client: Client = None,
    ip: Ip = None,
) -> None:
    """Keep a user, a client, a user's client, or an address to a rate."""
    entity = _named(user, client, ip)
    values = {key: _number(key, value) for key, value in pairs(settings, "KEY=NUMBER:").items()}
    _check_keys(entity, values)
    with session.client() as asked:
        quotas.alter_quota(asked, entity, set=values)
    session.out.rows([_row(entity, key, value) for key, value in values.items()], _COLUMNS)


@command(app, "remove", examples=["ottla quota remove --user ann producer_byte_rate", "ottla quota remove --user ann"])
def remove_quota(
    session: Session,
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these; all if not given.")] = None,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
) -> None:
    """Take quotas away: what stands behind them counts again."""
    entity = _named(user, client, ip)
    with session.client() as asked:
        known = next((each.values for each in quotas.list_quotas(asked) if each.entity == entity), {})
        missing = [key for key in keys or () if key not in known]
        if missing or not known:
            what = missing[0] if missing else "quota"
            raise StartupError(f"There is no {what} for {_shown(entity)}: see `ottla quota list`.")
        gone = keys or list(known)
        quotas.alter_quota(asked, entity, delete=gone)
    item: dict[str, Any] = {**_places(entity), "removed": gone}
    session.out.item(item, f"{_shown(entity)} has no {', '.join(gone)} any more")


def _entity(user: str | None, client: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client, "ip": ip}
    return {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}


def _named(user: str | None, client: str | None, ip: str | None) -> dict[str, str | None]:
    entity = _entity(user, client, ip)
    if not entity:
        raise typer.BadParameter("Say whose quota with --user, --client or --ip.")
    if "ip" in entity and len(entity) > 1:
        raise typer.BadParameter("An address has a quota of its own: leave --user and --client out.")
    return entity


def _check_keys(entity: Mapping[str, str | None], values: dict[str, float]) -> None:
    known = _IP_KEYS if "ip" in entity else _KEYS
    unknown = [key for key in values if key not in known]
    if unknown:
        raise StartupError(f"{unknown[0]} is no quota of {_shown(entity)}: choose of {', '.join(known)}.")


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise StartupError(f"{key}={text}: write a number above 0.")
    return number


def _places(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    """By the names of the options; none for what is not named."""
    return {option: entity[kind] or DEFAULT if kind in entity else None for option, kind in _KINDS.items()}


def _row(entity: Mapping[str, str | None], key: str, value: float) -> dict[str, Any]:
    return {**_places(entity), "quota": key, "value": int(value) if value == int(value) else value}


def _shown(entity: Mapping[str, str | None]) -> str:
    return " and ".join(f"{option} {name}" for option, name in _places(entity).items() if name is not None)
