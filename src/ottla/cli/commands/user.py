"""`ottla user`: SCRAM's users of a running cluster, as kafka-configs manages them.

A password is asked for, or read from standard input; it is never an argument, which everybody on the machine could
read. It is salted here, so that the cluster never sees it either.
"""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from ottla.admin import users
from ottla.cli import complete
from ottla.cli.output import visible
from ottla.cli.session import Session, command, group
from ottla.errors import StartupError, UsageError
from ottla.security.scram import ITERATIONS_MAX, ITERATIONS_MIN

app = group("SCRAM's users of a running cluster.")

Name = Annotated[str, typer.Argument(help="The user.", show_default=False, autocompletion=complete.users)]
Mechanism = Annotated[str, typer.Option(help=" or ".join(users.MECHANISMS))]


@command(app, "set", examples=["ottla user set ann", "ottla user set app --mechanism SCRAM-SHA-256 < password.txt"])
def set_user(
    session: Session,
    name: Name,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Annotated[int, typer.Option(help="How often the password is hashed.")] = 8192,
) -> None:
    """Make a user, or give one a new password, which is asked for or read from standard input."""
    _check(mechanism)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UsageError(f"--iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}.")
    password = _password()
    with session.client() as client:
        users.set_user(client, name, password, mechanism=mechanism, iterations=iterations)
    session.out.item({"user": name, "mechanism": mechanism}, f"user {name} can log in with {mechanism}")


@command(app, "remove", examples=["ottla user remove ann"])
def remove_user(session: Session, name: Name, mechanism: Mechanism = "SCRAM-SHA-512") -> None:
    """Take a user's credential away."""
    _check(mechanism)
    with session.client() as client:
        users.remove_user(client, name, mechanism=mechanism)
    said = f"user {name} cannot log in with {mechanism} any more"
    session.out.item({"user": name, "mechanism": mechanism, "removed": True}, said)


@command(app, "list", examples=["ottla user list"])
def list_users(session: Session) -> None:
    """Show who can log in, and how."""
    with session.client() as client:
        found = users.list_users(client)
    if not found:
        session.out.note("There are no users; make one with `ottla user set NAME`.")
    for user in found:
        known = [f"{each.mechanism} ({each.iterations} iterations)" for each in user.credentials]
        item = {
            "user": user.name,
            "credentials": [{"mechanism": each.mechanism, "iterations": each.iterations} for each in user.credentials],
        }
        session.out.item(item, visible(f"{user.name}: {', '.join(known)}"))


def _check(mechanism: str) -> None:
    if mechanism not in users.MECHANISMS:
        raise UsageError(f"--mechanism {mechanism} is none of {', '.join(users.MECHANISMS)}.")


def _password() -> str:
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass("password: ")
        if getpass.getpass("again: ") != password:
            raise StartupError("The two passwords are not the same.")
    if not password:
        raise StartupError("The password is empty.")
    return password
