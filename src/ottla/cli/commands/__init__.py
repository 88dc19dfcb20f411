"""The commands that speak to a cluster, one module a command or a group of them; each has its Typer as `app`.

`CommandsOnUse` knows them by name and imports a module when its command is used, or when the help of all is asked for:
none of them costs the others anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

TABLE = (
    "topic",
    "produce",
    "consume",
    "group",
    "config",
    "cluster",
    "acl",
    "schema",
    "txn",
    "user",
    "quota",
    "profile",
    "snapshot",
    "log",
    "doctor",
    "bench",
)


def load(name: str) -> typer.Typer:
    app: typer.Typer = import_module(f"{__name__}.{name}").app
    return app


class CommandsOnUse(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *TABLE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in TABLE:
            return super().get_command(ctx, cmd_name)
        found = typer.main.get_command(load(cmd_name))
        found.name = cmd_name
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not ctx.resilient_parsing:
            from difflib import get_close_matches

            if close := get_close_matches(args[0], known):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, close))}?")
        return super().resolve_command(ctx, args)
