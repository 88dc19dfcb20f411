"""A schema registry, asked over HTTP: Ottla's or Confluent's. Called from threads.

Schemas never change, so what was found is kept; what was not found is asked for again after a while.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from ottla.console.decoding import Schema, parse_schema
from ottla.runtime.blocking import monotonic_s
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.references import Place, Referred, places_in, texts_of

T = TypeVar("T")

TIMEOUT_S = 10.0
BODY_BYTES_MAX = 16 * 1024 * 1024
MISSING_S = 30.0
SCHEMAS_MAX = 10_000
REFERENCES_MAX = 100


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
    def __init__(self, url: str) -> None:
        """`http://[name:password@]host:port[/path]`."""
        self._parts = urlsplit(url)
        try:
            known = self._parts.scheme in ("http", "https") and self._parts.hostname and self._parts.port != 0
        except ValueError:  # A port that is no number, or too large a one.
            known = False
        if not known:
            raise ValueError(f"{url} is no address of a registry: write http://host:port.")
        self._schemas: dict[int, Schema | None] = {}
        self._missing_s: dict[int, float] = {}

    @property
    def address(self) -> str:
        """Without a password."""
        port = f":{self._parts.port}" if self._parts.port else ""
        return f"{self._parts.scheme}://{self._parts.hostname}{port}{self._parts.path}"

    def subjects(self) -> list[str]:
        return self._understood(lambda: sorted(str(each) for each in self._get("/subjects")))

    def versions(self, subject: str) -> list[Version]:
        """All of them, oldest first."""

        def ask() -> list[Version]:
            numbers = self._get(f"/subjects/{quote(subject, safe='')}/versions")
            return [self._version(subject, str(int(number))) for number in numbers]

        return self._understood(ask)

    def latest(self, subject: str) -> Version:
        return self._understood(lambda: self._version(subject, "latest"))

    def compatibility(self, subject: str) -> str:
        """What a new version must be, as in BACKWARD."""
        path = f"/config/{quote(subject, safe='')}?defaultToGlobal=true"
        return self._understood(lambda: str(self._get(path)["compatibilityLevel"]))

    def _version(self, subject: str, number: str) -> Version:
        each = self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}")
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
        answer = self._get(f"/schemas/ids/{schema_id}")
        kind = str(answer.get("schemaType", "AVRO"))
        references = texts_of(places_in(answer), self._referred, most=REFERENCES_MAX)
        return parse_schema(schema_id, kind, str(answer["schema"]), references)

    def _referred(self, place: Place) -> Referred:
        subject, version = place
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true")
        return Referred((subject, int(answer.get("version", version))), str(answer["schema"]), places_in(answer))

    def _understood(self, ask: Callable[[], T]) -> T:
        """What `ask` makes of answers. Raises `RegistryError` where they are not those of a registry."""
        try:
            return ask()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidSchema):
                raise
            raise RegistryError(f"What answers at {self.address} is no schema registry: {error!r}.") from None

    def _get(self, path: str) -> Any:
        parts = self._parts
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            body = json.loads(answer.read(BODY_BYTES_MAX))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise RegistryError(f"The registry at {self.address} does not answer: {error}.") from None
        finally:
            connection.close()
        if answer.status != 200:
            message = body.get("message") if isinstance(body, dict) else None
            raise RegistryError(f"The registry refused: {str(message or answer.status).rstrip('.')}.")
        return body
