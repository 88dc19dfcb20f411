"""`/acls`: who may do what; giving rights and taking them away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import Request
from nicegui import ui

from ottla.admin.acls import CLUSTER_NAME, OPERATIONS, RESOURCES, Acl, AclFilter, create_acls, delete_acls, list_acls
from ottla.console.console import Console
from ottla.console.markup import Child, Markup, join, tag
from ottla.console.pages.actions import on_row, row_button
from ottla.console.pages.frame import (
    RESPONSE_TIMEOUT_S,
    attempt,
    confirm,
    filter_form,
    frame,
    query_of,
    read_only_notice,
    refused,
    section,
    show,
)
from ottla.console.tables import Column, table
from ottla.errors import ErrorCode, KafkaError

_PATTERNS = {"literal": "this name (* is every one)", "prefixed": "every name that begins so"}
_PERMISSIONS = {"allow": "may", "deny": "may not, whatever else is allowed"}


def register(console: Console) -> None:
    @ui.page("/acls", response_timeout=RESPONSE_TIMEOUT_S)
    async def acls(request: Request) -> None:
        query = query_of(request)
        with frame(console, "ACLs", "/acls"):
            try:
                found = await console.workers.ask(list_acls)
            except KafkaError as error:
                _refused(console, error)
                return
            show(filter_form(query, "Principal or resource contains"), _table(found, query, console.may_change))
            section("New ACL")
            read_only_notice(console)
            if console.may_change:
                on_row("remove-acl", {repr(each): each for each in found}, lambda acl: _removal(console, acl))
                _form(console)


def _refused(console: Console, error: KafkaError) -> None:
    if error.code != ErrorCode.SECURITY_DISABLED:
        refused(console, error)
        return
    show(
        tag(
            "div",
            tag("p", "This cluster has no authorizer: everybody may do everything, and there are no ACLs to keep."),
            tag(
                "p",
                "To have one, start every node with ",
                tag("code", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
                " and name somebody who may give rights in ",
                tag("code", "super.users"),
                ".",
            ),
            class_="empty",
        )
    )


def _table(found: Sequence[Acl], query: Mapping[str, str], may_change: bool) -> Markup:
    wanted = query.get("q", "").casefold()
    columns = [
        Column[Acl](title="principal", cell=lambda each: each.principal, sort=lambda each: each.principal),
        Column(title="permission", cell=_permission, sort=lambda each: each.permission),
        Column(title="operation", cell=lambda each: each.operation, sort=lambda each: each.operation),
        Column(
            title="on", cell=lambda each: f"{each.resource} {each.name}", sort=lambda each: (each.resource, each.name)
        ),
        Column(title="pattern", cell=lambda each: each.pattern),
        Column(title="from host", cell=lambda each: "any" if each.host == "*" else each.host),
    ]
    if may_change:
        columns.append(
            Column(
                title="",
                cell=lambda each: row_button("Remove", "remove-acl", repr(each), label=f"Remove: {in_words(each)}"),
            )
        )
    shown = [each for each in found if wanted in f"{each.principal} {each.resource} {each.name}".casefold()]
    empty = "No ACL is so: change the filter." if found else "There is no ACL: only super users may do anything."
    return table(shown, columns, key=repr, caption="ACLs", query=query, empty=tag("p", empty))


def _permission(acl: Acl) -> Child:
    return tag("span", acl.permission, class_=f"badge {'bad' if acl.permission == 'deny' else 'good'}")


def in_words(acl: Acl) -> str:
    """`User:ann may read topic orders, from any host.`"""
    verb = "may not" if acl.permission == "deny" else "may"
    what = "do everything with" if acl.operation == "all" else f"{acl.operation} on"
    if acl.resource == "cluster":
        where = "the cluster"
    elif acl.pattern == "prefixed":
        where = f"every {acl.resource} whose name begins with {acl.name}"
    else:
        where = f"every {acl.resource}" if acl.name == "*" else f"the {acl.resource} {acl.name}"
    host = "any host" if acl.host == "*" else acl.host
    return f"{acl.principal} {verb} {what} {where}, from {host}."


def wanted_acls(
    *, principal: str, permission: str, operations: Sequence[str], resource: str, name: str, pattern: str, host: str
) -> list[Acl]:
    """What a form says. Raises `ValueError` with one sentence."""
    if ":" not in principal.strip(":"):
        raise ValueError("Write the principal as User:ann, or User:* for everybody.")
    if not operations:
        raise ValueError("Choose an operation.")
    if resource == "cluster":
        name, pattern = CLUSTER_NAME, "literal"
    elif not name:
        raise ValueError(f"Write the name of the {resource}, or * for every one.")
    return [
        Acl(
            resource=resource,
            name=name,
            pattern=pattern,
            principal=principal,
            permission=permission,
            operation=each,
            host=host or "*",
        )
        for each in operations
    ]


def _form(console: Console) -> None:
    with ui.element("div").classes("row-form"):
        principal = ui.input("Principal, as User:ann").props("outlined dense")
        permission = ui.select(_PERMISSIONS, value="allow", label="Permission").props("outlined dense")
        operations = ui.select(list(OPERATIONS[2:]), multiple=True, label="Operations").props(
            "outlined dense use-chips"
        )
        resource = ui.select(list(RESOURCES[2:]), value="topic", label="On").props("outlined dense")
        name = ui.input("Name").props("outlined dense")
        pattern = ui.select(_PATTERNS, value="literal", label="Which names").props("outlined dense")
        host = ui.input("Host (empty: any)").props("outlined dense")

        async def preview() -> None:
            async def work() -> None:
                console.check_may_change()
                wanted = wanted_acls(
                    principal=str(principal.value or "").strip(),
                    permission=str(permission.value),
                    operations=[str(each) for each in operations.value or ()],
                    resource=str(resource.value),
                    name=str(name.value or "").strip(),
                    pattern=str(pattern.value),
                    host=str(host.value or "").strip(),
                )

                async def apply() -> None:
                    console.check_may_change()
                    await console.workers.ask(lambda client: create_acls(client, wanted))
                    ui.navigate.reload()

                confirm("Add this?", _said(wanted), "Add it", apply)

            await attempt(work())

        ui.button("Preview", on_click=preview).props("outline no-caps color=accent")


def _removal(console: Console, acl: Acl) -> None:
    exactly = AclFilter(
        resource=acl.resource,
        name=acl.name,
        pattern=acl.pattern,
        principal=acl.principal,
        permission=acl.permission,
        operation=acl.operation,
        host=acl.host,
    )

    async def remove() -> None:
        console.check_may_change()
        gone = await console.workers.ask(lambda client: delete_acls(client, exactly))
        if not gone:
            raise ValueError("It was removed already.")
        ui.navigate.reload()

    confirm("Remove this ACL?", _said([acl]), "Remove it", remove)


def _said(acls: Sequence[Acl]) -> Markup:
    return join(tag("ul", [tag("li", in_words(each)) for each in acls], class_="said"))
