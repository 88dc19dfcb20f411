"""The schema registry of a command: where it is, and its refusals as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ottla.cli.session import Session
from ottla.client.registry import (
    FoundSchema,
    NoRegistry,
    RegistryClient,
    RegistrySettings,
    RegistryUnavailable,
    UnknownSchema,
)
from ottla.errors import StartupError

DEFAULT_URL = "http://127.0.0.1:8081"

RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry", metavar="URL", help="Where schemas are, if the profile's schema.registry.url does not say."
    ),
]


def registry_of(session: Session, url: str | None, *, default: str | None = None) -> RegistryClient | None:
    """The registry that was named, by option or by the profile; or none."""
    settings = registry_settings(session, url, default=default)
    return None if settings is None else RegistryClient(settings)


def registry_settings(session: Session, url: str | None, *, default: str | None = None) -> RegistrySettings | None:
    """Where it is, and how to log in there."""
    wanted = url or session.properties.get("schema.registry.url") or default
    if wanted is None:
        return None
    try:
        return RegistrySettings.parse(wanted, session.properties)
    except ValueError as error:
        raise StartupError(str(error)) from None


@contextmanager
def asking_registry() -> Iterator[None]:
    """What the registry says no to, and what it does not know, is one sentence."""
    try:
        yield
    except NoRegistry as error:
        said = f"{str(error).rstrip('.')}; name another with --schema-registry, or start one with `ottla up`."
        raise StartupError(said) from None
    except RegistryUnavailable as error:
        raise StartupError(f"{str(error).rstrip('.')}.") from None
    except UnknownSchema as error:
        raise StartupError(
            f"The schema registry does not know it: {str(error).rstrip('.')}; see `ottla schema list`."
        ) from None


def split_message(wanted: str) -> tuple[str, str | None]:
    """`latest:Order`, `7:shop.Order` and `@shop.proto:Order` name one message of a Protobuf schema besides."""
    schema, colon, message = wanted.rpartition(":")
    if not colon or not re.fullmatch(r"latest|[0-9]+|@.*\.proto", schema):
        return wanted, None
    return schema, message


def find_schema(registry: RegistryClient, subject: str, wanted: str) -> FoundSchema:
    """`latest`, an id, or `@file` with a schema that is registered first if it is new."""
    with asking_registry():
        if wanted == "latest":
            return registry.latest(subject)
        if wanted.isdecimal():
            return registry.by_id(int(wanted))
        if wanted.startswith("@"):
            text, kind = read_schema(wanted[1:])
            return registry.by_id(registry.register(subject, text, kind))
    raise StartupError(f"{wanted!r} is no schema: write latest, an id, or @FILE.")


def read_schema(path: str, kind: str | None = None) -> tuple[str, str]:
    """A file's text, and the kind that its name tells."""
    kinds = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
    found = kind or next((each for ending, each in kinds.items() if path.endswith(ending)), "AVRO")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(), found.upper()
    except UnicodeDecodeError:
        raise StartupError(f"{path} cannot be read: it is not text in UTF-8.") from None
    except OSError as error:
        raise StartupError(f"{path} cannot be read: {error.strerror}.") from None
