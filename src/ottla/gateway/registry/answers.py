"""What is read: each answer is a function of the state. Refusals are raised."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.gateway.http import Refusal
from ottla.gateway.registry import refusals
from ottla.gateway.registry.operations import (
    LATEST,
    SchemaRequest,
    canonical,
    describe,
    describe_text,
    troubles,
)
from ottla.gateway.registry.state import Mode, RegistryState
from ottla.gateway.registry.stored import StoredSchema
from ottla.gateway.registry.subjects import CONTEXT_WILDCARD, context_of, normalize, prefix_of

T = TypeVar("T")


class Raw(NamedTuple):
    """Text that is answered as it is."""

    text: str


class Page(NamedTuple):
    """Which part of a list is wanted."""

    offset: int = 0
    limit: int = -1

    def of(self, found: Sequence[T]) -> list[T]:
        end = None if self.limit < 0 else self.offset + self.limit
        return list(found[self.offset : end])


class Deleted(NamedTuple):
    """Of what was softly deleted: is it wanted too, or alone?"""

    too: bool = False
    only: bool = False

    def wants(self, schema: StoredSchema) -> bool:
        return schema.deleted if self.only else self.too or not schema.deleted


# Subjects and versions.


def subjects(state: RegistryState, prefix: str, deleted: Deleted, page: Page) -> list[str]:
    found = []
    for subject in state.subjects():
        versions = state.versions(subject, deleted=True)
        live = any(not each.deleted for each in versions)
        wanted = not live if deleted.only else live or deleted.too
        if wanted and _has_prefix(subject, prefix):
            found.append(subject)
    return page.of(found)


def _has_prefix(subject: str, prefix: str) -> bool:
    if prefix.startswith(CONTEXT_WILDCARD):
        own = prefix_of(context_of(subject))
        return subject[len(own) :].startswith(prefix[len(CONTEXT_WILDCARD) :])
    prefix = normalize(prefix)
    return subject.startswith(prefix) and (prefix.startswith(":") or not subject.startswith(":"))


def versions(state: RegistryState, subject: str, deleted: Deleted, page: Page) -> list[int]:
    if not state.has_subject(subject, deleted=deleted.too or deleted.only):
        raise refusals.subject_not_found(subject)
    return page.of([each.version for each in state.versions(subject, deleted=True) if deleted.wants(each)])


def find_version(state: RegistryState, subject: str, version: int, *, deleted: bool) -> StoredSchema:
    found = (
        state.latest(subject, deleted=deleted)
        if version == LATEST
        else state.version(subject, version, deleted=deleted)
    )
    if found is None:
        if not state.has_subject(subject, deleted=deleted):
            raise refusals.subject_not_found(subject)
        raise refusals.version_not_found(version)
    return found


def referenced_by(state: RegistryState, subject: str, version: int, page: Page, *, deleted: bool) -> list[int]:
    schema = find_version(state, subject, version, deleted=deleted)
    found = state.referrers(schema.subject, schema.version, deleted=deleted)
    return page.of(sorted({each.id for each in found}))


def lookup(
    state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool
) -> dict[str, Any]:
    """Is this schema a version of the subject?"""
    if not state.has_subject(subject, deleted=deleted):
        raise refusals.subject_not_found(subject)
    text = canonical(state, subject, request, normalize=normalize).text
    references = tuple(sorted(request.references)) if normalize else request.references
    wanted = (request.kind, text, references, request.metadata, request.rule_set)
    for each in reversed(state.versions(subject, deleted=deleted)):
        if each.identity == wanted:
            return describe(each)
    raise refusals.schema_not_found()


def with_metadata(state: RegistryState, subject: str, wanted: Mapping[str, str], *, deleted: bool) -> dict[str, Any]:
    """The newest version that has these properties in its metadata."""
    for each in reversed(state.versions(subject, deleted=deleted)):
        properties = (json.loads(each.metadata) if each.metadata else {}).get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            return describe(each)
    if not state.has_subject(subject, deleted=deleted):
        raise refusals.subject_not_found(subject)
    raise refusals.schema_not_found()


# Schemas by their ids.


def find_by_id(state: RegistryState, context: str, schema_id: int) -> StoredSchema:
    found = state.holders(context, schema_id)
    if not found:
        raise refusals.schema_not_found(schema_id)
    return next((each for each in found if not each.deleted), found[0])


def by_id(state: RegistryState, context: str, schema_id: int, *, with_highest: bool) -> dict[str, Any]:
    found = find_by_id(state, context, schema_id)
    shown: dict[str, Any] = {"subject": found.subject, "version": found.version, **describe_text(found)}
    if with_highest:
        shown["maxId"] = state.highest_ids[context]
    return shown


def by_guid(state: RegistryState, guid: str) -> dict[str, Any]:
    found = state.by_guid(guid)
    if not found:
        raise refusals.schema_not_found(guid)
    return describe_text(found[0])


def places_of_id(
    state: RegistryState, context: str, schema_id: int, page: Page, *, deleted: bool
) -> list[dict[str, Any]]:
    find_by_id(state, context, schema_id)
    found = [each for each in state.holders(context, schema_id) if deleted or not each.deleted]
    return page.of([{"subject": each.subject, "version": each.version} for each in found])


def subjects_of_id(state: RegistryState, context: str, schema_id: int, page: Page, *, deleted: bool) -> list[str]:
    places = places_of_id(state, context, schema_id, Page(), deleted=deleted)
    return page.of(list(dict.fromkeys(str(each["subject"]) for each in places)))


def schemas(state: RegistryState, prefix: str, page: Page, *, deleted: bool, latest_only: bool) -> list[dict[str, Any]]:
    found: list[StoredSchema] = []
    for subject in state.subjects():
        if _has_prefix(subject, prefix):
            of_subject = state.versions(subject, deleted=deleted)
            found += of_subject[-1:] if latest_only else of_subject
    return [describe(each) for each in page.of(found)]


# Levels and modes.


def compatible(
    state: RegistryState, subject: str, version: int | None, request: SchemaRequest, *, normalize: bool, verbose: bool
) -> dict[str, Any]:
    """Could this schema follow the version, or all of them?"""
    if version is None:
        others = state.versions(subject)
    else:
        found = state.latest(subject) if version == LATEST else state.version(subject, version)
        if found is None and version != LATEST:
            raise refusals.version_not_found(version)
        others = [] if found is None else [found]
    try:
        new = canonical(state, subject, request, normalize=normalize)
        messages = troubles(state, subject, request.kind, new, others)
    except Refusal as error:
        if not verbose:
            raise
        messages = [error.message]
    answer: dict[str, Any] = {"is_compatible": not messages}
    if verbose:
        answer["messages"] = messages
    return answer


def config(state: RegistryState, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
    if subject is None or default_to_global:
        return state.config_in_scope(subject)
    found = state.config(subject)
    if found is None:
        raise refusals.level_not_configured(subject)
    return found


def mode(state: RegistryState, subject: str | None, *, default_to_global: bool) -> dict[str, str]:
    found = state.mode(subject)
    if found is None and (subject is None or default_to_global):
        found = state.mode_in_scope(subject)
    if found is None:
        assert subject is not None
        raise refusals.mode_not_configured(subject)
    return {"mode": Mode(found).value}
