"""`ottla schema`: the schemas of a registry, Ottla's or any other with Confluent's API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ottla.cli.schemas import DEFAULT_URL, RegistryUrl, asking_registry, read_schema, registry_of
from ottla.cli.session import Session, command, confirm, group
from ottla.client.registry import RegistryClient

app = group("Schemas of a registry.")

Subject = Annotated[str, typer.Argument(help="The subject, as in orders-value.", show_default=False)]
File = Annotated[str, typer.Argument(help="The schema: .avsc, .json or .proto.", show_default=False)]
Kind = Annotated[str | None, typer.Option("--type", help="AVRO, JSON or PROTOBUF, if the file's name does not say.")]
Version = Annotated[str, typer.Option("--version", "-v", help="A number, or latest.")]


@command(app, "list", examples=["ottla schema list", "ottla schema list --schema-registry http://host:8081 --json"])
def list_subjects(session: Session, schema_registry: RegistryUrl = None) -> None:
    """List subjects with their versions and what they demand of new ones."""
    registry = _registry(session, schema_registry)
    rows = []
    with asking_registry():
        for subject in registry.subjects():
            latest = registry.version(subject, "latest")
            rows.append(
                {
                    "subject": subject,
                    "versions": registry.versions(subject),
                    "type": latest.get("schemaType") or "AVRO",
                    "id": latest["id"],
                    "compatibility": registry.compatibility(subject),
                }
            )
    columns = {"SUBJECT": "subject", "VERSIONS": "versions", "TYPE": "type", "ID": "id"}
    session.out.rows(rows, columns | {"COMPATIBILITY": "compatibility"}, empty="There are no schemas.")


@command(app, "get", examples=["ottla schema get orders-value", "ottla schema get orders-value -v 2 > order.avsc"])
def get(session: Session, subject: Subject, version: Version = "latest", schema_registry: RegistryUrl = None) -> None:
    """Print a schema."""
    with asking_registry():
        found = _registry(session, schema_registry).version(subject, version)
    item: dict[str, Any] = {
        "subject": subject,
        "version": found["version"],
        "id": found["id"],
        "type": found.get("schemaType") or "AVRO",
        "schema": found["schema"],
    }
    session.out.item(item, str(found["schema"]))


@command(app, "register", examples=["ottla schema register orders-value order.avsc"])
def register(
    session: Session, subject: Subject, file: File, type_: Kind = None, schema_registry: RegistryUrl = None
) -> None:
    """Register a schema as the next version of a subject."""
    text, kind = read_schema(file, type_)
    with asking_registry():
        schema_id = _registry(session, schema_registry).register(subject, text, kind)
    session.out.item({"subject": subject, "id": schema_id, "type": kind}, f"{subject} has schema {schema_id}")


@command(app, "check", examples=["ottla schema check orders-value order.avsc"])
def check(
    session: Session, subject: Subject, file: File, type_: Kind = None, schema_registry: RegistryUrl = None
) -> None:
    """Say whether a schema could be the next version, and if not, why. Status 1 if not."""
    text, kind = read_schema(file, type_)
    with asking_registry():
        troubles = _registry(session, schema_registry).check(subject, text, kind)
    said = "compatible" if not troubles else "\n".join(["not compatible:", *(f"  {each}" for each in troubles)])
    session.out.item({"subject": subject, "compatible": not troubles, "messages": troubles}, said)
    if troubles:
        raise typer.Exit(1)


@command(
    app, "delete", examples=["ottla schema delete orders-value", "ottla schema delete orders-value -v 1 --permanent"]
)
def delete(
    session: Session,
    subject: Subject,
    version: Annotated[str | None, typer.Option("--version", "-v", help="Only this one.")] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="For good; it must be deleted already.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    schema_registry: RegistryUrl = None,
) -> None:
    """Delete a subject, or one version of it."""
    confirm(f"This deletes {subject}{'' if version is None else f', version {version}'}.", yes=yes)
    with asking_registry():
        gone = _registry(session, schema_registry).delete(subject, version, permanent=permanent)
    session.out.item({"subject": subject, "deleted": gone}, f"{subject}: deleted {', '.join(map(str, gone))}")


def _registry(session: Session, url: str | None) -> RegistryClient:
    found = registry_of(session, url, default=DEFAULT_URL)
    assert found is not None  # There is a default.
    return found
