"""`/acls` and `/users`: who may do what, and who can log in."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ottla.admin.acls import Acl, list_acls
from ottla.admin.users import User, list_users
from ottla.console.console import Console
from ottla.console.markup import tag
from ottla.console.pages.frame import RESPONSE_TIMEOUT_S, filter_form, frame, query_of, sentence, show
from ottla.console.tables import Column, table
from ottla.console.units import count
from ottla.errors import KafkaError


def register(console: Console) -> None:
    @ui.page("/acls", response_timeout=RESPONSE_TIMEOUT_S)
    async def acls(request: Request) -> None:
        query = query_of(request)
        with frame(console, "ACLs", "/acls"):
            try:
                found = await console.workers.ask(list_acls)
            except KafkaError as error:
                show(tag("p", sentence(error), class_="empty"))
                return
            show(filter_form(query, "Principal or resource contains"))
            wanted = query.get("q", "").casefold()
            columns = [
                Column[Acl](title="principal", cell=lambda each: each.principal, sort=lambda each: each.principal),
                Column(
                    title="permission",
                    cell=lambda each: tag(
                        "span", each.permission, class_=f"badge {'bad' if each.permission == 'deny' else 'good'}"
                    ),
                    sort=lambda each: each.permission,
                ),
                Column(title="operation", cell=lambda each: each.operation, sort=lambda each: each.operation),
                Column(
                    title="on",
                    cell=lambda each: f"{each.resource} {each.name}",
                    sort=lambda each: (each.resource, each.name),
                ),
                Column(title="pattern", cell=lambda each: each.pattern),
                Column(title="from host", cell=lambda each: each.host),
            ]
            show(
                table(
                    [each for each in found if wanted in f"{each.principal} {each.resource} {each.name}".casefold()],
                    columns,
                    key=repr,
                    caption="ACLs",
                    query=query,
                    empty=tag("p", "There is no such ACL. Without any, only super users may do anything."),
                )
            )

    @ui.page("/users", response_timeout=RESPONSE_TIMEOUT_S)
    async def users(request: Request) -> None:
        query = query_of(request)
        with frame(console, "Users", "/users"):
            try:
                found = await console.workers.ask(list_users)
            except KafkaError as error:
                show(tag("p", sentence(error), class_="empty"))
                return
            columns = [
                Column[User](title="user", cell=lambda each: each.name, sort=lambda each: each.name),
                Column[User](
                    title="logs in with",
                    cell=lambda each: ", ".join(
                        f"{one.mechanism}, {count(one.iterations, 'iteration')}" for one in each.credentials
                    ),
                ),
            ]
            empty = tag("p", "The cluster knows no SCRAM user. Make one with ", tag("code", "ottla user set NAME"), ".")
            show(table(found, columns, key=lambda each: each.name, caption="Users", query=query, empty=empty))
