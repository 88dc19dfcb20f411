"""`ottla acl`: who may do what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ottla.admin import acls
from ottla.cli.output import plural
from ottla.cli.session import Session, command, confirm, group

app = group("Who may do what: access control entries.")

_COLUMNS = {
    "RESOURCE": "resource",
    "NAME": "name",
    "PATTERN": "pattern",
    "PRINCIPAL": "principal",
    "PERMISSION": "permission",
    "OPERATION": "operation",
    "HOST": "host",
}

Resource = Annotated[str | None, typer.Option(help=", ".join(acls.RESOURCES[2:]))]
Name = Annotated[str | None, typer.Option(help="The resource's name; * is every one.")]
Principal = Annotated[str | None, typer.Option(help="As in User:ann; User:* is everybody.")]


@command(app, "list", examples=["ottla acl list", "ottla acl list --resource topic --name orders --match"])
def list_acls(
    session: Session,
    resource: Resource = None,
    name: Name = None,
    principal: Principal = None,
    match: Annotated[bool, typer.Option("--match", help="All that apply to the name: prefixes and * too.")] = False,
) -> None:
    """List entries."""
    wanted = acls.AclFilter(
        resource=resource or "any", name=name, principal=principal, pattern="match" if match else "any"
    )
    with session.client() as client:
        found = acls.list_acls(client, wanted)
    session.out.rows([_row(each) for each in found], _COLUMNS, empty="There are no such entries.")


@command(
    app,
    "add",
    examples=[
        "ottla acl add User:ann read describe --resource topic --name orders",
        "ottla acl add User:app read --resource group --name app- --prefixed",
        "ottla acl add User:bob all --resource topic --name secret --deny",
    ],
)
def add_acls(
    session: Session,
    principal: Annotated[str, typer.Argument(help="As in User:ann; User:* is everybody.")],
    operations: Annotated[list[str], typer.Argument(help=", ".join(acls.OPERATIONS[2:]))],
    resource: Annotated[str, typer.Option(help=", ".join(acls.RESOURCES[2:]))],
    name: Name = None,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="Every name that begins so.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Forbid, which counts more than any allowance.")] = False,
    host: Annotated[str, typer.Option(help="Only from this address.")] = "*",
) -> None:
    """Allow somebody something, or forbid it."""
    if name is None:
        if resource != "cluster":
            raise typer.BadParameter("Say of what with --name.")
        name = acls.CLUSTER_NAME
    wanted = [
        acls.Acl(
            resource=resource,
            name=name,
            pattern="prefixed" if prefixed else "literal",
            principal=principal,
            permission="deny" if deny else "allow",
            operation=operation,
            host=host,
        )
        for operation in operations
    ]
    with session.client() as client:
        acls.create_acls(client, wanted)
    session.out.rows([_row(each) for each in wanted], _COLUMNS)


@command(
    app, "remove", examples=["ottla acl remove --principal User:ann", "ottla acl remove --resource topic --name orders"]
)
def remove_acls(
    session: Session,
    resource: Resource = None,
    name: Name = None,
    principal: Principal = None,
    operation: Annotated[str | None, typer.Option(help=", ".join(acls.OPERATIONS[2:]))] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove all entries that match; what is left out matches everything."""
    wanted = acls.AclFilter(resource=resource or "any", name=name, principal=principal, operation=operation or "any")
    with session.client() as client:
        found = acls.list_acls(client, wanted)
        if found:
            confirm(f"This removes {plural(len(found), 'entry', 'entries')}.", yes=yes)
            found = acls.delete_acls(client, wanted)
    session.out.rows([_row(each) for each in found], _COLUMNS, empty="There are no such entries.")


def _row(acl: acls.Acl) -> dict[str, Any]:
    return {key: getattr(acl, key) for key in _COLUMNS.values()}
