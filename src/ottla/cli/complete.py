"""What the shell offers when a name is begun and Tab is pressed: topics, groups and users of the cluster, profiles.

Whoever presses Tab waits for it: a cluster that does not answer at once, or that refuses, offers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.blocking import BlockingClient

_PATIENCE = {
    "request.timeout.ms": "1000",
    "default.api.timeout.ms": "1500",
    "socket.connection.setup.timeout.ms": "1000",
}


def topics(ctx: Any, incomplete: str) -> list[str]:
    def names(client: BlockingClient) -> Iterable[str]:
        from ottla.admin.topics import list_topics

        return (each.name for each in list_topics(client) if incomplete or not each.is_internal)

    return _offered(ctx, incomplete, names)


def groups(ctx: Any, incomplete: str) -> list[str]:
    def names(client: BlockingClient) -> Iterable[str]:
        from ottla.admin.groups import list_groups

        return (each.group_id for each in list_groups(client))

    return _offered(ctx, incomplete, names)


def transactional_ids(ctx: Any, incomplete: str) -> list[str]:
    def names(client: BlockingClient) -> Iterable[str]:
        from ottla.admin.transactions import list_transactions

        return (each.transactional_id for each in list_transactions(client))

    return _offered(ctx, incomplete, names)


def users(ctx: Any, incomplete: str) -> list[str]:
    def names(client: BlockingClient) -> Iterable[str]:
        from ottla.admin.users import list_users

        return (each.name for each in list_users(client))

    return _offered(ctx, incomplete, names)


def profiles(incomplete: str) -> list[str]:
    from ottla.cli.profiles import config_path, load
    from ottla.errors import StartupError

    try:
        return sorted(name for name in load(config_path()).each if name.startswith(incomplete))
    except StartupError:
        return []


def _offered(ctx: Any, incomplete: str, names: Callable[[BlockingClient], Iterable[str]]) -> list[str]:
    from ottla.cli.session import open_session
    from ottla.client.blocking import BlockingClient
    from ottla.client.settings import ClientSettings
    from ottla.errors import KafkaError, StartupError

    given = ctx.params
    config = given.get("command_config")
    try:
        session = open_session(
            bootstrap=given.get("bootstrap"),
            profile=given.get("profile"),
            command_config=None if config is None else Path(config),
            properties=list(given.get("properties") or ()),
        )
        with BlockingClient(ClientSettings.parse({**session.properties, **_PATIENCE})) as client:
            return sorted(name for name in names(client) if name.startswith(incomplete))
    except (KafkaError, StartupError, ValueError, OSError):
        return []
