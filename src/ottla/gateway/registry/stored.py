"""The records of `_schemas`: Confluent's keys and values in JSON. Its own registry can read our topic, and we its.

    key                                                          value, or null: no more of it
    {"keytype":"SCHEMA","subject":s,"version":v,"magic":1}       subject, version, id, schema, deleted, …
    {"keytype":"CONFIG","subject":s,"magic":0}                   {"subject":s,"compatibilityLevel":"FULL", …}
    {"keytype":"MODE","subject":s,"magic":0}                     {"subject":s,"mode":"READONLY"}
    {"keytype":"DELETE_SUBJECT","subject":s,"magic":0}           {"subject":s,"version":v}: softly, up to this version
    {"keytype":"CLEAR_SUBJECT","subject":s,"magic":0}            {"subject":s}
    {"keytype":"CONTEXT","tenant":t,"context":c,"magic":0}       {"tenant":t,"context":c}
    {"keytype":"NOOP","magic":0}                                 the ids given away so far, of each context

Without a subject, CONFIG and MODE are those of the whole registry. A NOOP is skipped by Confluent's registry whatever
its value is; ours keeps there how far ids have come, since the record of the highest may be deleted and compacted away,
and no id is ever given twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.schemas.kinds import SchemaType

TENANT = "default"
_IDS = "ottlaHighestIds"


class Entry(NamedTuple):
    """A record: its key, and its value or None."""

    key: bytes
    value: bytes | None


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    kind: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    """JSON, as is `rule_set`: kept and served, and part of what the schema is."""
    rule_set: str | None = None
    deleted: bool = False
    timestamp_ms: int = 0

    @property
    def identity(self) -> tuple[object, ...]:
        """What two versions share that are one schema, and so one id."""
        return (self.kind, self.text, self.references, self.metadata, self.rule_set)


def schema_key(subject: str, version: int) -> bytes:
    return _dump({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def schema_entry(schema: StoredSchema) -> Entry:
    value: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if schema.kind is not SchemaType.AVRO:
        value["schemaType"] = schema.kind.value
    if schema.references:
        value["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        value["metadata"] = json.loads(schema.metadata)
    if schema.rule_set is not None:
        value["ruleSet"] = json.loads(schema.rule_set)
    value |= {"schema": schema.text, "deleted": schema.deleted}
    return Entry(schema_key(schema.subject, schema.version), _dump(value))


def schema_tombstone(subject: str, version: int) -> Entry:
    return Entry(schema_key(subject, version), None)


def config_entry(subject: str | None, config: Mapping[str, Any] | None) -> Entry:
    value = None if config is None else _dump({**_of(subject), **config})
    return Entry(_dump({"keytype": "CONFIG", "subject": subject, "magic": 0}), value)


def mode_entry(subject: str | None, mode: str | None) -> Entry:
    value = None if mode is None else _dump({**_of(subject), "mode": mode})
    return Entry(_dump({"keytype": "MODE", "subject": subject, "magic": 0}), value)


def delete_subject_entry(subject: str, version: int) -> Entry:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return Entry(_dump(key), _dump({"subject": subject, "version": version}))


def context_entry(context: str) -> Entry:
    key = {"keytype": "CONTEXT", "tenant": TENANT, "context": context, "magic": 0}
    return Entry(_dump(key), _dump({"tenant": TENANT, "context": context}))


def ids_entry(highest: Mapping[str, int]) -> Entry:
    return Entry(_dump({"keytype": "NOOP", "magic": 0}), _dump({_IDS: dict(highest)}))


def read_ids(value: Mapping[str, Any]) -> dict[str, int]:
    found = value.get(_IDS)
    if not isinstance(found, dict):
        return {}
    return {context: highest for context, highest in found.items() if isinstance(highest, int)}


def read_schema(value: Mapping[str, Any], timestamp_ms: int) -> StoredSchema:
    """Raises `KeyError`, `TypeError` or `ValueError` where the record is none of a registry."""
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in value.get("references") or ()
    )
    return StoredSchema(
        subject=str(value["subject"]),
        version=int(value["version"]),
        id=int(value["id"]),
        kind=SchemaType(value.get("schemaType") or SchemaType.AVRO),
        text=str(value["schema"]),
        references=references,
        metadata=opaque(value.get("metadata")),
        rule_set=opaque(value.get("ruleSet")),
        deleted=bool(value.get("deleted", False)),
        timestamp_ms=timestamp_ms,
    )


def opaque(value: object) -> str | None:
    """JSON that is kept as it is, in one order."""
    return None if value is None else json.dumps(value, separators=(",", ":"), sort_keys=True)


def _of(subject: str | None) -> dict[str, Any]:
    return {} if subject is None else {"subject": subject}


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
