"""What requests would change: each reads the state, refuses or decides, and returns records and an answer.

Nothing here changes anything: `RegistryState.replay` does, when the records come back through the log. Driven by
`writing.py`, which sees to it that the state is the newest.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla.gateway.http import Refusal
from ottla.gateway.registry import refusals, stored
from ottla.gateway.registry.state import Mode, RegistryState, guid_of
from ottla.gateway.registry.stored import Entry, Reference, StoredSchema
from ottla.gateway.registry.subjects import DEFAULT_CONTEXT, context_of, is_context, prefix_of
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.kinds import KINDS, Earlier, Level, SchemaText, SchemaType, judge
from ottla.schemas.references import Place, Referred, texts_of

LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    entries: Sequence[Entry]
    answer: Any
    """What the API answers, when the entries are committed and replayed."""


Operation = Callable[[RegistryState], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRequest:
    """A schema as a client sends it."""

    kind: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    version: int | None = None
    id: int | None = None


# Schemas.


def with_references(state: RegistryState, subject: str, text: str, references: Sequence[Reference]) -> SchemaText:
    """The text, and the texts that it refers to, each after those that it needs. Raises `InvalidSchema`."""

    def find(place: Place) -> Referred:
        name, version = place
        found = state.latest(name) if version == LATEST else state.version(name, version, deleted=True)
        if found is None:
            raise InvalidSchema(f'There is no schema of subject "{name}" and version {version} to refer to.')
        return Referred((name, found.version), found.text, _places(name, found.references))

    return SchemaText(text=text, references=texts_of(_places(subject, references), find))


def _places(parent: str, references: Sequence[Reference]) -> tuple[Place, ...]:
    return tuple((_qualified(parent, each.subject), each.version) for each in references)


def canonical(state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool) -> SchemaText:
    """The schema as it would be kept. Raises `Refusal`."""
    normalize = normalize or state.config_in_scope(subject).get("normalize") is True
    try:
        given = with_references(state, subject, request.text, request.references)
        return replace(given, text=KINDS[request.kind].canonical(given, normalize))
    except InvalidSchema as error:
        raise refusals.invalid_schema(f"Invalid schema of type {request.kind}, details: {error}") from None


def earlier_versions(state: RegistryState, versions: Sequence[StoredSchema]) -> list[Earlier]:
    return [
        Earlier(
            version=each.version,
            kind=each.kind,
            schema=with_references(state, each.subject, each.text, each.references),
        )
        for each in versions
    ]


def troubles(
    state: RegistryState, subject: str, kind: SchemaType, new: SchemaText, versions: Sequence[StoredSchema]
) -> list[str]:
    """Why `new` must not follow `versions`, at the level that the subject has. Raises `Refusal`."""
    try:
        return judge(state.level(subject), kind, new, earlier_versions(state, versions))
    except InvalidSchema as error:
        raise refusals.invalid_schema(f"Invalid schema, details: {error}") from None


def describe(schema: StoredSchema) -> dict[str, Any]:
    """One version, as the API shows it."""
    shown: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    shown |= describe_text(schema)
    shown["ts"] = schema.timestamp_ms
    if schema.deleted:
        shown["deleted"] = True
    return shown


def describe_text(schema: StoredSchema) -> dict[str, Any]:
    shown: dict[str, Any] = {"guid": guid_of(schema)}
    if schema.kind is not SchemaType.AVRO:
        shown["schemaType"] = schema.kind.value
    if schema.references:
        shown["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        shown["metadata"] = json.loads(schema.metadata)
    if schema.rule_set is not None:
        shown["ruleSet"] = json.loads(schema.rule_set)
    shown["schema"] = schema.text
    return shown


def register(state: RegistryState, subject: str, request: SchemaRequest, *, normalize: bool) -> Outcome:
    mode = state.mode_in_scope(subject)
    importing = mode in (Mode.IMPORT, Mode.FORWARD)
    _check_may_register(subject, mode, importing, request)
    new = canonical(state, subject, request, normalize=normalize)
    context = context_of(subject)
    references = tuple(sorted(request.references)) if normalize else request.references
    schema = StoredSchema(
        subject=subject,
        version=1,
        id=0,
        kind=request.kind,
        text=new.text,
        references=references,
        metadata=request.metadata,
        rule_set=request.rule_set,
    )
    known_id = state.id_of(context, schema.identity)
    if known_id is not None and request.id in (None, known_id) and not request.version:
        for each in reversed(state.versions(subject)):
            if each.id == known_id:
                return Outcome(entries=(), answer=_registered(each))
    if not importing:
        found = troubles(state, subject, request.kind, new, state.versions(subject))
        if found:
            raise refusals.incompatible(subject, f"[{', '.join(found)}]")
    schema = replace(
        schema,
        version=_new_version(state, subject, request.version, importing),
        id=_new_id(state, context, schema, request.id, known_id),
    )
    entries = [] if context in state.contexts else [stored.context_entry(context)]
    # A version of this very schema that was softly deleted makes room, unless others refer to it by its number.
    entries += [
        stored.schema_tombstone(subject, each.version)
        for each in state.versions(subject, deleted=True)
        if each.deleted
        and each.id == schema.id
        and each.version < schema.version
        and not state.referrers(subject, each.version, deleted=True)
    ]
    return Outcome(entries=[*entries, stored.schema_entry(schema)], answer=_registered(schema))


def _registered(schema: StoredSchema) -> dict[str, Any]:
    return {"id": schema.id, "version": schema.version, **describe_text(schema)}


def _check_may_register(subject: str, mode: Mode, importing: bool, request: SchemaRequest) -> None:
    where = f"Subject {subject} in context {context_of(subject)}"
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise refusals.not_permitted(f"{where} is in read-only mode")
    if request.id is not None and not importing:
        raise refusals.not_permitted(f"{where} is not in import mode")
    if request.id is None and importing:
        raise refusals.not_permitted(f"{where} is not in read-write mode")


def _new_version(state: RegistryState, subject: str, wanted: int | None, importing: bool) -> int:
    latest = state.latest(subject, deleted=True)
    following = 1 if latest is None else latest.version + 1
    if not wanted or wanted < 0:
        return following
    if wanted != following and not importing:
        raise refusals.invalid_schema("Version is not one more than previous version")
    return wanted


def _new_id(state: RegistryState, context: str, schema: StoredSchema, wanted: int | None, known: int | None) -> int:
    if wanted is None:
        return state.next_id(context) if known is None else known
    if any(each.identity != schema.identity for each in state.holders(context, wanted)):
        raise refusals.id_does_not_match(wanted)
    return wanted


def delete_version(state: RegistryState, subject: str, version: int, *, permanent: bool) -> Outcome:
    if version == LATEST:
        schema = state.latest(subject, deleted=permanent) or state.latest(subject, deleted=True)
    else:
        schema = state.version(subject, version, deleted=True)
    if schema is None:
        if not state.has_subject(subject, deleted=True):
            raise refusals.subject_not_found(subject)
        raise refusals.version_not_found(version)
    if schema.deleted and not permanent:
        raise refusals.version_soft_deleted(subject, schema.version)
    _check_may_write(state, subject)
    if state.referrers(subject, schema.version, deleted=permanent):
        raise refusals.reference_exists(subject, schema.version)
    if permanent and not schema.deleted:
        raise refusals.version_not_soft_deleted(subject, schema.version)
    if permanent:
        entries = _tombstones(state, subject, [schema])
    else:
        entries = [stored.schema_entry(replace(schema, deleted=True))]
    return Outcome(entries=entries, answer=schema.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Outcome:
    if not state.has_subject(subject, deleted=True):
        raise refusals.subject_not_found(subject)
    if not permanent and not state.has_subject(subject):
        raise refusals.subject_soft_deleted(subject)
    _check_may_write(state, subject)
    versions = state.versions(subject, deleted=permanent)
    for each in versions:
        if any(other.subject != subject for other in state.referrers(subject, each.version, deleted=permanent)):
            raise refusals.reference_exists(subject, each.version)
        if permanent and not each.deleted:
            raise refusals.subject_not_soft_deleted(subject)
    answer = [each.version for each in versions]
    if permanent:
        return Outcome(entries=_tombstones(state, subject, versions), answer=answer)
    return Outcome(entries=[stored.delete_subject_entry(subject, answer[-1])], answer=answer)


def _tombstones(state: RegistryState, subject: str, versions: Sequence[StoredSchema]) -> list[Entry]:
    """The versions are gone for good, newest first, and with the last of them what was set for the subject."""
    entries = [stored.schema_tombstone(subject, each.version) for each in reversed(versions)]
    if len(versions) == len(state.versions(subject, deleted=True)):
        if state.mode(subject) is not None:
            entries.append(stored.mode_entry(subject, None))
        if state.config(subject) is not None:
            entries.append(stored.config_entry(subject, None))
    highest = state.highest_ids
    if any(each.id == highest.get(context_of(subject)) for each in versions):
        entries.append(stored.ids_entry(highest))
    return entries


def _check_may_write(state: RegistryState, subject: str | None) -> None:
    if state.mode_in_scope(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        context = DEFAULT_CONTEXT if subject is None else context_of(subject)
        raise refusals.not_permitted(f"Subject {subject} in context {context} is in read-only mode")


# Levels and modes.


class _Setting(enum.Enum):
    TEXT = str
    FLAG = bool
    OBJECT = dict


_SETTINGS = {
    "alias": _Setting.TEXT,
    "normalize": _Setting.FLAG,
    "validateFields": _Setting.FLAG,
    "validateRules": _Setting.FLAG,
    "compatibilityGroup": _Setting.TEXT,
    "defaultMetadata": _Setting.OBJECT,
    "overrideMetadata": _Setting.OBJECT,
    "defaultRuleSet": _Setting.OBJECT,
    "overrideRuleSet": _Setting.OBJECT,
}
"""What may be set beside the level. All of it is kept and shown; of these, only `normalize` is obeyed."""


def set_config(state: RegistryState, subject: str | None, wanted: Mapping[str, Any]) -> Outcome:
    config = dict(state.config(subject) or {})
    level = wanted.get("compatibility")
    if level is not None:
        if not isinstance(level, str) or level.upper() not in Level.__members__:
            raise refusals.invalid_level()
        config["compatibilityLevel"] = level.upper()
    for name, setting in _SETTINGS.items():
        if name not in wanted:
            continue
        if wanted[name] is None:
            config.pop(name, None)
        elif isinstance(wanted[name], setting.value):
            config[name] = wanted[name]
        else:
            raise refusals.unreadable(f"{name} is not of its type.")
    _check_may_write(state, subject)
    answer = {name: value for name, value in config.items() if name != "compatibilityLevel"}
    if "compatibilityLevel" in config:
        answer["compatibility"] = config["compatibilityLevel"]
    return Outcome(entries=[stored.config_entry(subject, config)], answer=answer)


def delete_config(state: RegistryState, subject: str | None) -> Outcome:
    config = state.config(subject)
    if config is None and subject is not None:
        raise refusals.subject_not_found(subject)
    _check_may_write(state, subject)
    answer = state.config_in_scope(None) if config is None else config
    return Outcome(entries=[] if config is None else [stored.config_entry(subject, None)], answer=answer)


def set_mode(state: RegistryState, subject: str | None, wanted: object, *, force: bool) -> Outcome:
    if not isinstance(wanted, str) or wanted.upper() not in Mode.__members__:
        raise refusals.invalid_mode()
    mode = Mode(wanted.upper())
    if mode in (Mode.FORWARD, Mode.READONLY_OVERRIDE) and subject is not None:
        raise Refusal(42204, f"{mode.capitalize()} mode only supported on global level")
    entries: list[Entry] = []
    if mode is Mode.IMPORT and state.mode_in_scope(subject) is not Mode.IMPORT and not force:
        entries = _cleared(state, subject)
    return Outcome(entries=[*entries, stored.mode_entry(subject, mode.value)], answer={"mode": mode.value})


def _cleared(state: RegistryState, subject: str | None) -> list[Entry]:
    """Versions come with their own numbers and ids now: what was softly deleted must not be in their way."""
    entries: list[Entry] = []
    for each in covered(state, subject):
        if state.has_subject(each):
            raise refusals.not_permitted("Cannot import since found existing subjects")
        versions = state.versions(each, deleted=True)
        for version in versions:
            if state.referrers(each, version.version, deleted=True):
                raise refusals.reference_exists(each, version.version)
        entries += [stored.schema_tombstone(each, version.version) for version in reversed(versions)]
    return [*entries, stored.ids_entry(state.highest_ids)] if entries else []


def covered(state: RegistryState, subject: str | None) -> list[str]:
    """The subjects that a setting of `subject` holds for: all, those of a context, or one."""
    if subject is None:
        return [each for each in state.subjects() if context_of(each) == DEFAULT_CONTEXT]
    if is_context(subject):
        return [each for each in state.subjects() if prefix_of(context_of(each)) == subject]
    return [subject]


def delete_mode(state: RegistryState, subject: str | None) -> Outcome:
    mode = state.mode(subject)
    if mode is None:
        raise refusals.subject_not_found(subject)
    return Outcome(entries=[stored.mode_entry(subject, None)], answer={"mode": mode.value})


def _qualified(parent: str, subject: str) -> str:
    """A reference without a context means the context of whoever refers."""
    if subject.startswith(":") or context_of(parent) == DEFAULT_CONTEXT:
        return subject
    return f"{prefix_of(context_of(parent))}{subject}"
