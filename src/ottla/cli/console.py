"""`ottla console`: the console by itself, for any Kafka cluster."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.cli.gateway import CONSOLE, check_installed, is_loopback
from ottla.cli.registry import read_users
from ottla.cli.schemas import registry_settings
from ottla.cli.session import Session
from ottla.cli.settings import configure_logging
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.console.server import serve_console
from ottla.console.timeouts import TIMEOUTS
from ottla.errors import StartupError
from ottla.runtime.system import listening_socket, run


def run_console(
    *,
    cluster: Session,
    host: str,
    port: int,
    registry: str | None,
    users: Path | None,
    log_level: str,
) -> None:
    configure_logging(log_level)
    check_installed(CONSOLE)
    try:
        settings = ClientSettings.parse({**TIMEOUTS, **cluster.properties})
    except InvalidClientConfig as error:
        raise StartupError(str(error)) from None
    schemas = registry_settings(cluster, registry)
    passwords = read_users(users) if users is not None else {}
    try:
        sock = listening_socket(host, port)
    except OSError as error:
        message = f"Port {port} of {host} cannot be used ({error.strerror}): choose another with --port."
        raise StartupError(message) from None
    shown = f"[{host}]" if ":" in host else host
    print(f"ready: http://{shown}:{sock.getsockname()[1]}", flush=True)
    if not passwords and not is_loopback(host):
        print(
            "ottla: other machines can open this console and it has no users, so it shows no records and changes "
            "nothing: give it --users FILE to let them.",
            file=sys.stderr,
        )
    run(
        serve_console(
            sock,
            settings,
            loopback=is_loopback(host),
            users=passwords,
            registry=schemas,
            leashed=False,
        )
    )
