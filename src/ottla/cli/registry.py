"""`ottla registry`: the schema registry by itself, beside any Kafka cluster."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.cli.gateway import check_installed, is_loopback, parse_address
from ottla.cli.session import Session
from ottla.cli.settings import configure_logging
from ottla.client.settings import ClientSettings, InvalidClientConfig
from ottla.errors import StartupError
from ottla.gateway.server import serve_gateway
from ottla.runtime.system import listening_socket, run


def run_registry(*, cluster: Session, listen: str, users: Path | None, log_level: str) -> None:
    configure_logging(log_level)
    check_installed()
    host, port = parse_address(listen)
    options = {"client.id": "ottla-registry", "retry.backoff.ms": "20", "default.api.timeout.ms": "15000"}
    try:
        settings = ClientSettings.parse({**options, **cluster.properties})
    except InvalidClientConfig as error:
        raise StartupError(str(error)) from None
    try:
        sock = listening_socket(host, port)
    except OSError as error:
        raise StartupError(f"--listen {listen} cannot be used ({error.strerror}): choose another port.") from None
    print(f"ready: http://{listen.rpartition(':')[0]}:{sock.getsockname()[1]}", flush=True)
    passwords = read_users(users) if users is not None else {}
    if not passwords and not is_loopback(host):
        print(
            "ottla: other machines can reach this registry and it has no users, so it changes nothing: "
            "give it --users FILE to let them register schemas.",
            file=sys.stderr,
        )
    run(serve_gateway(sock, settings, loopback=is_loopback(host), users=passwords, leashed=False))


def read_users(path: Path) -> dict[str, str]:
    """A file with `name:password` in each line. Raises `StartupError`."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"--users {path} cannot be read: {error}.") from None
    found: dict[str, str] = {}
    for line in lines:
        if not line.strip():
            continue
        name, colon, password = line.partition(":")
        if not colon or not name:
            raise StartupError(f"--users {path} has a line that is not of the form name:password.")
        found[name] = password
    return found
