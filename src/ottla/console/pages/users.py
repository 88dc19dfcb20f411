"""`/users`: who can log in; giving passwords and taking them away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastapi import Request
from nicegui import ui

from ottla.admin.users import MECHANISMS, User, list_users, remove_user, set_user
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, tag
from ottla.console.pages.actions import on_row, row_button
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    attempt,
    confirm,
    frame,
    query_of,
    read_only_notice,
    refused,
    section,
    show,
)
from ottla.console.tables import Column, table
from ottla.console.units import count
from ottla.errors import KafkaError

ITERATIONS = 8192


class _Login(NamedTuple):
    """One way in of one user."""

    user: str
    mechanism: str

    @property
    def row(self) -> str:
        return f"{self.mechanism} {self.user}"


def register(console: Console) -> None:
    @ui.page("/users", response_timeout=RESPONSE_TIMEOUT_S)
    async def users(request: Request) -> None:
        query = query_of(request)
        with frame(console, "Users", "/users"):
            try:
                found = await console.workers.ask(list_users)
            except KafkaError as error:
                refused(console, error)
                return
            show(_table(found, query, console.may_change))
            section("New user, or new password")
            read_only_notice(console)
            if console.may_change:
                logins = [_Login(user.name, each.mechanism) for user in found for each in user.credentials]
                on_row("remove-login", {each.row: each for each in logins}, lambda login: _removal(console, login))
                _form(console, set(logins))


def _table(found: Sequence[User], query: Mapping[str, str], may_change: bool) -> Markup:
    def ways(user: User) -> Child:
        return [
            tag(
                "div",
                f"{each.mechanism}, {count(each.iterations, 'iteration')} ",
                row_button(
                    "Remove",
                    "remove-login",
                    _Login(user.name, each.mechanism).row,
                    label=f"Remove {each.mechanism} of {user.name}",
                )
                if may_change
                else None,
            )
            for each in user.credentials
        ]

    columns = [
        Column[User](title="user", cell=lambda each: each.name, sort=lambda each: each.name),
        Column[User](title="logs in with", cell=ways),
    ]
    how: Child = "Make one below."
    if not may_change:
        how = ["Make one with ", tag("code", "ottla user set NAME"), "."]
    empty = tag("p", "The cluster knows no SCRAM user. ", how)
    return table(found, columns, key=lambda each: each.name, caption="Users", query=query, empty=empty)


def _form(console: Console, known: set[_Login]) -> None:
    with ui.element("div").classes("row-form"):
        name = ui.input("User").props("outlined dense autocomplete=off")
        password = ui.input("Password", password=True).props("outlined dense autocomplete=new-password")
        mechanism = ui.select(list(MECHANISMS), value=MECHANISMS[-1], label="Mechanism").props("outlined dense")
        iterations = ui.number("Iterations", value=ITERATIONS, format="%d").props("outlined dense")

        async def preview() -> None:
            async def work() -> None:
                console.check_may_change()
                login = _Login(str(name.value or "").strip(), str(mechanism.value))
                secret, times = str(password.value or ""), int(iterations.value or 0)
                if not login.user or not secret:
                    raise ValueError("Write a name and a password.")

                async def apply() -> None:
                    console.check_may_change()
                    await console.workers.ask(
                        lambda client: set_user(client, login.user, secret, mechanism=login.mechanism, iterations=times)
                    )
                    ui.navigate.reload()

                if login in known:
                    said = f"{login.user} gets a new password for {login.mechanism}; the old one is of no use then."
                else:
                    said = f"{login.user} can log in with {login.mechanism} and this password."
                confirm("Set this password?", tag("p", said), "Set it", apply)

            await attempt(work())

        ui.button("Preview", on_click=preview).props("outline no-caps color=accent")
    show(tag("p", "The password is salted here: the cluster never sees it.", class_="quiet"))


def _removal(console: Console, login: _Login) -> None:
    async def remove() -> None:
        console.check_may_change()
        await console.workers.ask(lambda client: remove_user(client, login.user, mechanism=login.mechanism))
        ui.navigate.reload()

    said = f"{login.user} cannot log in with {login.mechanism} any more. Connections that are open stay open."
    confirm("Remove this way in?", tag("p", said), "Remove it", remove)
