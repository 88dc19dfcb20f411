"""Which request asks for what: method and path to a question about the state, or an operation on it.

A path is cut at its slashes before its parts are decoded, so that a subject may have a slash in its name (`%2F`).
Bodies and queries come from anybody: what is not as it should be is refused here, with the API's own codes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from ottla.gateway.http import Query, Refusal, not_found
from ottla.gateway.registry import answers, operations, refusals
from ottla.gateway.registry.answers import Deleted, Page, Raw
from ottla.gateway.registry.operations import LATEST, Operation, SchemaRequest
from ottla.gateway.registry.state import RegistryState
from ottla.gateway.registry.stored import Reference, opaque
from ottla.gateway.registry.subjects import CONTEXT_WILDCARD, check, context_of, normalize
from ottla.schemas.kinds import SchemaType
from ottla.schemas.references import REFERENCES_MAX

INT_MAX = (1 << 31) - 1
LEVELS_MAX = 50
"""Of objects and lists in a body; the schema itself is a text in it."""

Question = Callable[[RegistryState], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """To be answered from the state as it is known here."""

    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """To be decided on the newest state, and answered when it is committed."""

    operation: Operation


Target = Ask | Change


class RegistryQuery(Query):
    @property
    def page(self) -> Page:
        return Page(max(0, self.number("offset", 0)), self.number("limit", -1))

    @property
    def deleted(self) -> Deleted:
        return Deleted(self.flag("deleted"), self.flag("deletedOnly") or self.flag("deleted_only"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: the parts of its path that the route leaves open, its query and its body."""

    parts: tuple[str, ...]
    query: RegistryQuery
    body: bytes

    @property
    def subject(self) -> str:
        return check(self.parts[0])

    @property
    def scope(self) -> str | None:
        """A subject, a context, or None for the whole registry."""
        subject = check(self.parts[0], may_be_context=True)
        return subject or None

    @property
    def context(self) -> str:
        """Of the subject that a query may name."""
        return context_of(normalize(self.query.text("subject")))

    def version(self, at: int = 1) -> int:
        text = self.parts[at]
        if text in ("latest", "-1"):
            return LATEST
        if not (text.isascii() and text.isdigit()) or len(text) > 10 or not 1 <= int(text) <= INT_MAX:
            raise refusals.invalid_version(text[:100])
        return int(text)

    @property
    def id(self) -> int:
        text = self.parts[0]
        if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > INT_MAX:
            raise not_found()
        return int(text)

    def object(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            raise Refusal(400, "The body is no JSON.") from None
        if not isinstance(value, dict):
            raise refusals.unreadable("The body is no object.")
        if not _is_plain(value):
            raise refusals.unreadable(f"The body has more than {LEVELS_MAX} levels, or a number that is too large.")
        return value

    def schema(self) -> SchemaRequest:
        return read_schema_request(self.object())


def _is_plain(value: object, levels: int = LEVELS_MAX) -> bool:
    """Can it be kept in a record, and read again by whoever reads JSON?"""
    match value:
        case dict():
            return levels > 0 and all(_is_plain(each, levels - 1) for each in value.values())
        case list():
            return levels > 0 and all(_is_plain(each, levels - 1) for each in value)
        case float():
            return math.isfinite(value)
    return True


def read_schema_request(value: Mapping[str, Any]) -> SchemaRequest:
    text = value.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise refusals.invalid_schema("Empty schema")
    kind = value.get("schemaType") or SchemaType.AVRO.value
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise refusals.invalid_schema(f"Invalid schema type {str(kind)[:100]}")
    for name in ("metadata", "ruleSet"):
        if not isinstance(value.get(name), dict | None):
            raise refusals.unreadable(f"{name} is no object.")
    return SchemaRequest(
        kind=SchemaType(kind),
        text=text,
        references=_references(value.get("references") or []),
        metadata=opaque(value.get("metadata")),
        rule_set=opaque(value.get("ruleSet")),
        version=_number(value, "version"),
        id=_number(value, "id"),
    )


def _references(value: object) -> tuple[Reference, ...]:
    if not isinstance(value, list) or len(value) > REFERENCES_MAX:
        raise refusals.unreadable(f"references is no list of at most {REFERENCES_MAX}.")
    found = []
    for each in value:
        match each:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                found.append(Reference(name, normalize(subject), version))
            case _:
                raise refusals.unreadable("A reference has a name, a subject and a version.")
    return tuple(found)


def _number(value: Mapping[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is None or found == -1:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= INT_MAX:
        raise refusals.unreadable(f"{name} is no number.")
    return found


# What each route asks for.


def _root(request: Request) -> Target:
    return Ask(question=lambda state: {})


def _types(request: Request) -> Target:
    return Ask(question=lambda state: [kind.value for kind in (SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.AVRO)])


def _contexts(request: Request) -> Target:
    page = request.query.page
    return Ask(question=lambda state: page.of(state.contexts))


def _schemas(request: Request) -> Target:
    query = request.query
    return Ask(
        question=partial(
            answers.schemas,
            prefix=query.text("subjectPrefix"),
            page=query.page,
            deleted=query.flag("deleted"),
            latest_only=query.flag("latestOnly"),
        )
    )


def _by_id(request: Request) -> Target:
    highest = request.query.flag("fetchMaxId")
    return Ask(question=partial(answers.by_id, context=request.context, schema_id=request.id, with_highest=highest))


def _text_by_id(request: Request) -> Target:
    context, schema_id = request.context, request.id
    return Ask(question=lambda state: Raw(answers.find_by_id(state, context, schema_id).text))


def _subjects_of_id(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.subjects_of_id,
            context=request.context,
            schema_id=request.id,
            page=request.query.page,
            deleted=request.query.flag("deleted"),
        )
    )


def _places_of_id(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.places_of_id,
            context=request.context,
            schema_id=request.id,
            page=request.query.page,
            deleted=request.query.flag("deleted"),
        )
    )


def _by_guid(request: Request) -> Target:
    return Ask(question=partial(answers.by_guid, guid=request.parts[0]))


def _subjects(request: Request) -> Target:
    prefix = request.query.text("subjectPrefix", CONTEXT_WILDCARD)
    return Ask(
        question=partial(answers.subjects, prefix=prefix, deleted=request.query.deleted, page=request.query.page)
    )


def _lookup(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.lookup,
            subject=request.subject,
            request=request.schema(),
            normalize=request.query.flag("normalize"),
            deleted=request.query.flag("deleted"),
        )
    )


def _with_metadata(request: Request) -> Target:
    wanted = dict(zip(request.query.texts("key"), request.query.texts("value"), strict=False))
    deleted = request.query.flag("deleted")
    return Ask(question=partial(answers.with_metadata, subject=request.subject, wanted=wanted, deleted=deleted))


def _delete_subject(request: Request) -> Target:
    permanent = request.query.flag("permanent")
    return Change(operation=partial(operations.delete_subject, subject=request.subject, permanent=permanent))


def _versions(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.versions, subject=request.subject, deleted=request.query.deleted, page=request.query.page
        )
    )


def _register(request: Request) -> Target:
    return Change(
        operation=partial(
            operations.register,
            subject=request.subject,
            request=request.schema(),
            normalize=request.query.flag("normalize"),
        )
    )


def _version(request: Request) -> Target:
    subject, version, deleted = request.subject, request.version(), request.query.flag("deleted")
    return Ask(
        question=lambda state: operations.describe(answers.find_version(state, subject, version, deleted=deleted))
    )


def _version_text(request: Request) -> Target:
    subject, version, deleted = request.subject, request.version(), request.query.flag("deleted")
    return Ask(question=lambda state: Raw(answers.find_version(state, subject, version, deleted=deleted).text))


def _referenced_by(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.referenced_by,
            subject=request.subject,
            version=request.version(),
            page=request.query.page,
            deleted=request.query.flag("deleted"),
        )
    )


def _delete_version(request: Request) -> Target:
    return Change(
        operation=partial(
            operations.delete_version,
            subject=request.subject,
            version=request.version(),
            permanent=request.query.flag("permanent"),
        )
    )


def _compatible(request: Request) -> Target:
    return Ask(
        question=partial(
            answers.compatible,
            subject=request.subject,
            version=request.version() if len(request.parts) > 1 else None,
            request=request.schema(),
            normalize=request.query.flag("normalize"),
            verbose=request.query.flag("verbose"),
        )
    )


def _config(request: Request) -> Target:
    scope = request.scope if request.parts else None
    to_global = request.query.flag("defaultToGlobal")
    return Ask(question=partial(answers.config, subject=scope, default_to_global=to_global))


def _set_config(request: Request) -> Target:
    scope = request.scope if request.parts else None
    return Change(operation=partial(operations.set_config, subject=scope, wanted=request.object()))


def _delete_config(request: Request) -> Target:
    scope = request.scope if request.parts else None
    return Change(operation=partial(operations.delete_config, subject=scope))


def _mode(request: Request) -> Target:
    scope = request.scope if request.parts else None
    to_global = request.query.flag("defaultToGlobal")
    return Ask(question=partial(answers.mode, subject=scope, default_to_global=to_global))


def _set_mode(request: Request) -> Target:
    scope = request.scope if request.parts else None
    wanted, force = request.object().get("mode"), request.query.flag("force")
    return Change(operation=partial(operations.set_mode, subject=scope, wanted=wanted, force=force))


def _delete_mode(request: Request) -> Target:
    scope = request.scope if request.parts else None
    return Change(operation=partial(operations.delete_mode, subject=scope))


ROUTES: dict[str, dict[str, Callable[[Request], Target]]] = {
    "": {"GET": _root, "POST": _root},
    "schemas": {"GET": _schemas},
    "schemas/types": {"GET": _types},
    "schemas/ids/*": {"GET": _by_id},
    "schemas/ids/*/schema": {"GET": _text_by_id},
    "schemas/ids/*/subjects": {"GET": _subjects_of_id},
    "schemas/ids/*/versions": {"GET": _places_of_id},
    "schemas/guids/*": {"GET": _by_guid},
    "contexts": {"GET": _contexts},
    "subjects": {"GET": _subjects},
    "subjects/*": {"POST": _lookup, "DELETE": _delete_subject},
    "subjects/*/metadata": {"GET": _with_metadata},
    "subjects/*/versions": {"GET": _versions, "POST": _register},
    "subjects/*/versions/*": {"GET": _version, "DELETE": _delete_version},
    "subjects/*/versions/*/schema": {"GET": _version_text},
    "subjects/*/versions/*/referencedby": {"GET": _referenced_by},
    "compatibility/subjects/*/versions": {"POST": _compatible},
    "compatibility/subjects/*/versions/*": {"POST": _compatible},
    "config": {"GET": _config, "PUT": _set_config, "DELETE": _delete_config},
    "config/*": {"GET": _config, "PUT": _set_config, "DELETE": _delete_config},
    "mode": {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode},
    "mode/*": {"GET": _mode, "PUT": _set_mode, "DELETE": _delete_mode},
}
"""A star stands for one part of the path."""

_PATTERNS = {tuple(path.split("/") if path else ()): methods for path, methods in ROUTES.items()}


def resolve(method: str, path: str, query: str, body: bytes) -> Target:
    """What the request asks for. `path` is as it came, not decoded. Raises `Refusal`."""
    parts = tuple(path.strip("/").split("/")) if path.strip("/") else ()
    pattern = next((each for each in _PATTERNS if _fits(each, parts)), None)
    if pattern is None:
        raise not_found()
    methods = _PATTERNS[pattern]
    if method not in methods:
        raise Refusal(405, "HTTP 405 Method Not Allowed")
    open_parts = tuple(_decode(part) for p, part in zip(pattern, parts, strict=True) if p == "*")
    return methods[method](Request(parts=open_parts, query=RegistryQuery(query), body=body))


def _fits(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    return len(pattern) == len(parts) and all(p in ("*", part) for p, part in zip(pattern, parts, strict=True))


def _decode(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise not_found() from None
