"""A schema registry, as tools, the console, and Spark's driver and executors ask it: plain HTTP, few modules, and what
an id means is kept.

Any registry with Confluent's API will do. What an id means never changes, so it is asked for once, and thousands of
them are kept. A registry that does not answer is `RegistryUnavailable`, which should fail the task: the records are not
to blame. A login goes to the address that was configured, and after no redirection.
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import Any

from ottla.client.safe_asking import safe_opener
from ottla.runtime.blocking import pause
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.references import Place, Referred, places_in, texts_of

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 30.0
ATTEMPTS = 3
PAUSE_S = 0.5
PAUSE_S_MAX = 30.0
"""Of what a registry that is asked too often (429) may say how long to wait."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
KEPT_MAX = 10_000
"""Schemas whose ids are known. Far more than anybody uses at a time; a console that runs for months meets them all."""
_NOT_THERE = range(40401, 40500)
"""What a registry says of subjects, versions and schemas that it does not have. A plain 404 is of somebody else, or of
a path that is none: then no record is to blame."""


class RegistryUnavailable(Exception):
    """No registry answered as one should; the message is one sentence."""


class NoRegistry(RegistryUnavailable):
    """Nobody answered at all."""


class UnknownSchema(Exception):
    """The registry has no such schema or subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where the registries are, any of which will do, and who we are to them. Plain enough to be sent to executors."""

    urls: tuple[str, ...]
    """Without passwords."""
    user_info: str | None = field(default=None, repr=False)
    """`name:password`, for all of them."""
    own_logins: tuple[str | None, ...] = field(default=(), repr=False)
    """Of each address that has one in it, which is for nobody else; nothing if none has."""

    @classmethod
    def parse(cls, url: str, options: Mapping[str, str] | None = None) -> RegistrySettings:
        """`url` may be several, with commas; `options` have the names that Confluent's clients give them. Who we are is
        `basic.auth.user.info`, or stands in an address: `http://name:password@host:port`."""
        found = [_parted(each) for each in filter(None, map(str.strip, url.split(",")))]
        if not found:
            raise ValueError("There is no address of a schema registry: write http://host:port.")
        logins = tuple(login for _, login in found)
        return cls(
            urls=tuple(address for address, _ in found),
            user_info=(options or {}).get("basic.auth.user.info") or None,
            own_logins=logins if any(logins) else (),
        )

    @property
    def places(self) -> list[tuple[str, str | None]]:
        """Each address, and who we are there."""
        return [(url, self.user_info or own) for url, own in zip_longest(self.urls, self.own_logins)]


def _parted(url: str) -> tuple[str, str | None]:
    """The address by itself, and who it says we are. Raises `ValueError`, which tells no password."""
    try:
        parts = urllib.parse.urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # A port that is no number, or too large a one; brackets without an end.
        known = None
    if not known:
        shown = url.rpartition("@")[2]
        raise ValueError(f"{shown!r} is no address of a schema registry: write http://host:port.")
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    if parts.username is None:
        return address, None
    return address, f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSchema:
    """A schema as the registry has it, with the texts of what it refers to, each after those that it needs."""

    id: int
    kind: str
    text: str
    references: tuple[str, ...]


class RegistryClient:
    def __init__(self, settings: RegistrySettings, *, attempts: int = ATTEMPTS, timeout_s: float = TIMEOUT_S) -> None:
        self._settings = settings
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._by_id: dict[int, FoundSchema] = {}

    def by_id(self, schema_id: int) -> FoundSchema:
        """Raises `UnknownSchema`."""
        known = self._by_id.get(schema_id)
        if known is None:
            answer = self._ask("GET", f"schemas/ids/{schema_id}")
            known = self._found(schema_id, answer)
            if len(self._by_id) >= KEPT_MAX:
                self._by_id = {}  # Not one by one: threads share it.
            self._by_id[schema_id] = known
        return known

    def latest(self, subject: str) -> FoundSchema:
        answer = self._ask("GET", f"subjects/{_quoted(subject)}/versions/latest")
        return self._found(int(answer["id"]), answer)

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of the schema, new or known. Raises `RegistryUnavailable` if the registry refuses it, too."""
        body: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        return int(self._ask("POST", f"subjects/{_quoted(subject)}/versions", body)["id"])

    # What tools ask besides: subjects and their versions.

    def subjects(self) -> list[str]:
        return [str(each) for each in self._ask("GET", "subjects")]

    def versions(self, subject: str) -> list[int]:
        return [int(each) for each in self._ask("GET", f"subjects/{_quoted(subject)}/versions")]

    def version(self, subject: str, version: int | str) -> dict[str, Any]:
        """As the registry describes it: id, version, schema, schemaType, references. `version` may be `latest`."""
        answer: dict[str, Any] = self._ask("GET", f"subjects/{_quoted(subject)}/versions/{version}")
        return answer

    def check(self, subject: str, text: str, kind: str = "AVRO") -> list[str]:
        """Why the registry would not take this as the next version of the subject; nothing if it would."""
        body = {"schema": text, "schemaType": kind}
        path = f"compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
        answer = self._ask("POST", path, body)
        if answer.get("is_compatible"):
            return []
        return [str(each) for each in answer.get("messages") or ()] or ["It is not compatible."]

    def compatibility(self, subject: str) -> str:
        return str(self._ask("GET", f"config/{_quoted(subject)}?defaultToGlobal=true")["compatibilityLevel"])

    def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        """The versions that are gone: one, or all of the subject."""
        place = f"subjects/{_quoted(subject)}" + ("" if version is None else f"/versions/{version}")
        answer = self._ask("DELETE", f"{place}?permanent={'true' if permanent else 'false'}")
        return [int(each) for each in answer] if isinstance(answer, list) else [int(answer)]

    def _found(self, schema_id: int, answer: Mapping[str, Any]) -> FoundSchema:
        try:
            references = texts_of(places_in(answer), self._referred)
        except InvalidSchema as error:
            raise RegistryUnavailable(f"Schema {schema_id} cannot be used: {error}") from None
        return FoundSchema(
            id=schema_id,
            kind=answer.get("schemaType") or "AVRO",
            text=str(answer["schema"]),
            references=references,
        )

    def _referred(self, place: Place) -> Referred:
        subject, version = place
        answer = self._ask("GET", f"subjects/{_quoted(subject)}/versions/{version}?deleted=true")
        return Referred((subject, int(answer.get("version", version))), str(answer["schema"]), places_in(answer))

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        reason = ""
        for attempt in range(self._attempts):
            pause_s = PAUSE_S
            for url, login in self._settings.places:
                try:
                    return self._ask_once(method, f"{url}/{path}", body, login)
                except urllib.error.HTTPError as error:
                    with error:
                        code, message = _told(error)
                    if code in _NOT_THERE:
                        raise UnknownSchema(message) from None
                    if error.code == 429:
                        pause_s = max(pause_s, _wanted_pause_s(error))
                    elif 300 <= error.code < 400:
                        raise RegistryUnavailable(_sent_elsewhere(url, error)) from None
                    elif error.code < 500:
                        raise RegistryUnavailable(f"The schema registry refuses {path}: {message}") from None
                    reason = message
                except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                    reason = str(getattr(error, "reason", error))  # What urllib wraps says it better.
            if attempt + 1 < self._attempts:
                pause(pause_s)
        raise NoRegistry(f"No schema registry answers at {', '.join(self._settings.urls)}: {reason}")

    def _ask_once(self, method: str, url: str, body: object, login: str | None) -> Any:
        headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = CONTENT_TYPE
        if login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        request = urllib.request.Request(url, data, headers, method=method)
        with safe_opener().open(request, timeout=self._timeout_s) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))


def _told(error: urllib.error.HTTPError) -> tuple[int, str]:
    """The registry's own error code and message, or HTTP's where something else has answered."""
    try:
        answer = json.loads(error.read(ANSWER_BYTES_MAX))
        return int(answer["error_code"]), str(answer["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.code, f"HTTP {error.code}"


def _sent_elsewhere(url: str, error: urllib.error.HTTPError) -> str:
    place = error.headers.get("Location") or "another address"
    return f"The schema registry at {url} sends us to {place}: if that is right, write it into schema.registry.url."


def _wanted_pause_s(error: urllib.error.HTTPError) -> float:
    said = error.headers.get("Retry-After") or ""
    return min(float(said), PAUSE_S_MAX) if said.isdigit() else 0.0


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


@cache
def shared_registry(settings: RegistrySettings) -> RegistryClient:
    """One a process, so that all tasks of an executor ask for an id once."""
    return RegistryClient(settings)
