"""A schema registry as the console asks it, Ottla's or Confluent's: at once or not at all. Called from threads.

Schemas never change, so what was found is kept; what was not found is asked for again after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ottla.client.registry import RegistryClient, RegistrySettings, RegistryUnavailable, UnknownSchema
from ottla.console.decoding import Schema, parse_schema
from ottla.runtime.blocking import monotonic_s
from ottla.schemas.avro import InvalidSchema

T = TypeVar("T")

TIMEOUT_S = 10.0
MISSING_S = 30.0
SCHEMAS_MAX = 10_000


class RegistryError(Exception):
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    subject: str
    version: int
    schema_id: int
    type: str
    text: str


class Registry:
    def __init__(self, settings: RegistrySettings) -> None:
        self.address = ", ".join(settings.urls)
        self._client = RegistryClient(settings, attempts=1, timeout_s=TIMEOUT_S)
        self._schemas: dict[int, Schema] = {}
        self._missing_s: dict[int, float] = {}

    def subjects(self) -> list[str]:
        return self._understood(lambda: sorted(self._client.subjects()))

    def versions(self, subject: str) -> list[Version]:
        """All of them, oldest first."""
        return self._understood(lambda: [self._version(subject, number) for number in self._client.versions(subject)])

    def latest(self, subject: str) -> Version:
        return self._understood(lambda: self._version(subject, "latest"))

    def compatibility(self, subject: str) -> str:
        """What a new version must be, as in BACKWARD."""
        return self._understood(lambda: self._client.compatibility(subject))

    def _version(self, subject: str, number: int | str) -> Version:
        each = self._client.version(subject, number)
        return Version(
            subject=subject,
            version=int(each["version"]),
            schema_id=int(each["id"]),
            type=str(each.get("schemaType", "AVRO")),
            text=str(each["schema"]),
        )

    def schema(self, schema_id: int) -> Schema | None:
        """None where there is none, or no registry."""
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        if monotonic_s() - self._missing_s.get(schema_id, float("-inf")) < MISSING_S:
            return None
        if len(self._schemas) + len(self._missing_s) > SCHEMAS_MAX:
            self._schemas.clear()
            self._missing_s.clear()
        try:
            found = self._understood(lambda: self._load(schema_id))
        except (RegistryError, InvalidSchema):
            self._missing_s[schema_id] = monotonic_s()
            return None
        self._schemas[schema_id] = found
        return found

    def _load(self, schema_id: int) -> Schema:
        found = self._client.by_id(schema_id)
        return parse_schema(schema_id, found.kind, found.text, found.references)

    def _understood(self, ask: Callable[[], T]) -> T:
        """What `ask` makes of answers. Raises `RegistryError` where they are not those of a registry."""
        try:
            return ask()
        except (RegistryUnavailable, UnknownSchema) as error:
            raise RegistryError(f"{str(error).rstrip('.')}.") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidSchema):
                raise
            raise RegistryError(f"What answers at {self.address} is no schema registry: {error!r}.") from None
