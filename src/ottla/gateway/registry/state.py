"""What the records of `_schemas` say, replayed in their order: subjects and versions, ids, levels, modes.

Pure, and changed by `replay` alone. Driven by `writing.py`, which feeds it every record of the topic, its own included.
A record that no registry would write is passed over, as Confluent's does: one bad record must not take all schemas
away.
"""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ottla.gateway.registry.stored import StoredSchema, read_ids, read_schema
from ottla.gateway.registry.subjects import DEFAULT_CONTEXT, context_of, prefix_of
from ottla.schemas.kinds import Level

_log = logging.getLogger(__name__)

FIRST_ID = 1


class Mode(enum.StrEnum):
    """What may be done to a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Of the whole registry, and stronger than any subject's."""
    IMPORT = "IMPORT"
    """Versions come with the ids that they had elsewhere."""
    FORWARD = "FORWARD"


class RegistryState:
    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        """Subjects and versions that have an id, by context and id."""
        self._ids: dict[tuple[str, tuple[object, ...]], int] = {}
        """Ids by context and what the schema is."""
        self._guids: dict[str, tuple[str, int]] = {}
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], None]] = {}
        self._highest: dict[str, int] = {}
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, Mode] = {}
        self._contexts: dict[str, None] = {DEFAULT_CONTEXT: None}

    # Replay.

    def replay(self, key: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        try:
            self._replay(json.loads(key or b""), None if value is None else json.loads(value), timestamp_ms)
        except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
            _log.warning("A record of the schemas' topic cannot be read and is passed over: %r", error)

    def _replay(self, key: dict[str, Any], value: dict[str, Any] | None, timestamp_ms: int) -> None:
        subject: str | None = key.get("subject")  # Of the whole registry, if there is none.
        match key["keytype"]:
            case "SCHEMA":
                self._remove(str(key["subject"]), int(key["version"]))
                if value is not None:
                    self._add(read_schema(value, timestamp_ms))
            case "CONFIG":
                if value is None:
                    self._configs.pop(subject, None)
                else:
                    self._configs[subject] = {name: each for name, each in value.items() if name != "subject"}
            case "MODE":
                if value is None:
                    self._modes.pop(subject, None)
                else:
                    self._modes[subject] = Mode(value["mode"])
            case "DELETE_SUBJECT" if value is not None and subject is not None:
                versions = self._subjects.get(subject, {})
                for version, schema in versions.items():
                    if version <= int(value["version"]):
                        versions[version] = replace(schema, deleted=True)
            case "CONTEXT" if value is not None:
                self._contexts[str(value["context"])] = None
            case "NOOP" if value is not None:
                for context, highest in read_ids(value).items():
                    self._highest[context] = max(highest, self._highest.get(context, 0))

    def _add(self, schema: StoredSchema) -> None:
        context, place = context_of(schema.subject), (schema.subject, schema.version)
        versions = self._subjects.setdefault(schema.subject, {})
        versions[schema.version] = schema
        if len(versions) > 1:
            self._subjects[schema.subject] = dict(sorted(versions.items()))
        self._by_id.setdefault((context, schema.id), {})[place] = None
        self._ids.setdefault((context, schema.identity), schema.id)
        self._guids[guid_of(schema)] = (context, schema.id)
        self._highest[context] = max(schema.id, self._highest.get(context, 0))
        self._contexts[context] = None
        for reference in schema.references:
            self._referrers.setdefault((reference.subject, reference.version), {})[place] = None

    def _remove(self, subject: str, version: int) -> None:
        schema = self._subjects.get(subject, {}).pop(version, None)
        if schema is None:
            return
        context, place = context_of(subject), (subject, version)
        if not self._subjects[subject]:
            del self._subjects[subject]
        holders = self._by_id[context, schema.id]
        del holders[place]
        if not holders:
            del self._by_id[context, schema.id]
            self._ids.pop((context, schema.identity), None)
            if self._guids.get(guid_of(schema)) == (context, schema.id):
                del self._guids[guid_of(schema)]
        for reference in schema.references:
            self._referrers.get((reference.subject, reference.version), {}).pop(place, None)

    # What is asked.

    def subjects(self) -> Iterator[str]:
        return iter(sorted(self._subjects))

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return any(deleted or not each.deleted for each in self._subjects.get(subject, {}).values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """Oldest first; those that were softly deleted too, if so asked."""
        return [each for each in self._subjects.get(subject, {}).values() if deleted or not each.deleted]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> StoredSchema | None:
        found = self._subjects.get(subject, {}).get(version)
        return None if found is None or (found.deleted and not deleted) else found

    def latest(self, subject: str, *, deleted: bool = False) -> StoredSchema | None:
        found = self.versions(subject, deleted=deleted)
        return found[-1] if found else None

    def id_of(self, context: str, identity: tuple[object, ...]) -> int | None:
        return self._ids.get((context, identity))

    def holders(self, context: str, schema_id: int) -> list[StoredSchema]:
        """All versions, of any subject, that have this id."""
        return [self._subjects[subject][version] for subject, version in self._by_id.get((context, schema_id), {})]

    def by_guid(self, guid: str) -> list[StoredSchema]:
        context, schema_id = self._guids.get(guid, (DEFAULT_CONTEXT, 0))
        return self.holders(context, schema_id)

    def referrers(self, subject: str, version: int, *, deleted: bool = False) -> list[StoredSchema]:
        found = (self._subjects.get(name, {}).get(each) for name, each in self._referrers.get((subject, version), {}))
        return [each for each in found if each is not None and (deleted or not each.deleted)]

    def next_id(self, context: str) -> int:
        return self._highest.get(context, FIRST_ID - 1) + 1

    @property
    def highest_ids(self) -> dict[str, int]:
        return dict(self._highest)

    @property
    def contexts(self) -> list[str]:
        return sorted(self._contexts)

    # Levels and modes: a subject's own, its context's, the registry's.

    def config(self, subject: str | None) -> dict[str, Any] | None:
        return self._configs.get(subject)

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        merged: dict[str, Any] = {"compatibilityLevel": Level.BACKWARD.value}
        for scope in reversed(_scopes(subject)):
            merged |= self._configs.get(scope, {})
        return merged

    def level(self, subject: str) -> Level:
        try:
            return Level(self.config_in_scope(subject)["compatibilityLevel"])
        except ValueError:
            return Level.BACKWARD

    def mode(self, subject: str | None) -> Mode | None:
        return self._modes.get(subject)

    def mode_in_scope(self, subject: str | None) -> Mode:
        if self._modes.get(None) is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        for scope in _scopes(subject):
            if (found := self._modes.get(scope)) is not None:
                return found
        return Mode.READWRITE


def _scopes(subject: str | None) -> list[str | None]:
    """Where to look for what holds for a subject, nearest first."""
    if subject is None:
        return [None]
    context = context_of(subject)
    return [subject, None] if context == DEFAULT_CONTEXT else [subject, prefix_of(context), None]


def guid_of(schema: StoredSchema) -> str:
    """A name for the schema that is the same in every registry."""
    text = "\0".join(
        (schema.kind.value, schema.text, repr(schema.references), repr((schema.metadata, schema.rule_set)))
    )
    return str(uuid.UUID(bytes=hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()))
