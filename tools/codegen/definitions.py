"""Kafka's message definitions as they lie in its jars: JSON with comments, one file a message."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

JARS = {
    "kafka-clients": "clients",
    "kafka-metadata": "metadata",
    "kafka-raft": "raft",
    "kafka-group-coordinator": "group",
    "kafka-transaction-coordinator": "transaction",
    "kafka-share-coordinator": "share",
    "kafka-storage": "storage",
}
"""The jars that hold definitions, and the name by which each origin goes here."""

_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: str
    """Kafka's type without the `[]` of arrays; a name that begins with a capital is a struct."""
    is_array: bool
    versions: str
    nullable: str | None
    default: str
    tag: int | None
    tagged: str | None
    ignorable: bool
    inflexible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    name: str
    kind: str
    """request, response, header, data, metadata, coordinator-key or coordinator-value."""
    origin: str
    api_key: int | None
    first_version: int
    last_version: int
    last_stable_version: int
    flexible_from: int | None
    listeners: tuple[str, ...]
    fields: tuple[Field, ...]
    structs: tuple[Struct, ...]
    """Every struct inside, each after the structs that it uses."""

    @property
    def module(self) -> str:
        return snake_case(self.name)


def snake_case(name: str) -> str:
    return _WORD_BOUNDARY.sub("_", name.replace("KRaft", "Kraft")).lower()


def load(directory: Path) -> tuple[str, list[Definition]]:
    """Kafka's version, and every definition that has at least one version, sorted by name."""
    definitions: dict[str, Definition] = {}
    releases = set()
    for stem, origin in JARS.items():
        (jar,) = (path for path in directory.glob(f"{stem}-[0-9]*.jar"))
        releases.add(jar.stem.removeprefix(f"{stem}-"))
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
                    definition = _parse(archive.read(name).decode(), origin)
                    if definition is not None:
                        assert definition.name not in definitions, definition.name
                        definitions[definition.name] = definition
    (release,) = releases
    return release, [definitions[name] for name in sorted(definitions)]


def _parse(text: str, origin: str) -> Definition | None:
    raw = json.loads(_STRING_OR_COMMENT.sub(lambda match: match[1] or "", text))
    if raw["validVersions"] == "none":
        return None
    first, _, last = raw["validVersions"].partition("-")
    structs: dict[str, Struct] = {}
    shared = {struct["name"]: struct for struct in raw.get("commonStructs", ())}

    def parse_fields(raws: list[dict[str, object]]) -> tuple[Field, ...]:
        return tuple(parse_field(item) for item in raws)

    def add_struct(name: str, raws: list[dict[str, object]]) -> None:
        if name not in structs:
            fields = parse_fields(raws)
            structs[name] = Struct(name=name, fields=fields)

    def parse_field(item: dict[str, object]) -> Field:
        kind = str(item["type"])
        element = kind.removeprefix("[]")
        if element[0].isupper():
            inner = item.get("fields")
            if isinstance(inner, list):
                add_struct(element, inner)
            else:
                add_struct(element, shared[element]["fields"])
        tag = item.get("tag")
        tagged = item.get("taggedVersions")
        nullable = item.get("nullableVersions")
        return Field(
            name=snake_case(str(item["name"])),
            type=element,
            is_array=kind.startswith("[]"),
            versions=str(item.get("versions", tagged)),  # One tagged field leaves its versions out.
            nullable=str(nullable) if nullable else None,
            default=_default(item.get("default"), element),
            tag=tag if isinstance(tag, int) else None,
            tagged=str(tagged) if tagged else None,
            ignorable=item.get("ignorable") is True,
            inflexible=item.get("flexibleVersions") == "none",
        )

    fields = parse_fields(raw.get("fields", []))
    flexible = raw["flexibleVersions"]
    last_version = int(last or first)
    api_key = raw.get("apiKey")
    return Definition(
        name=raw["name"],
        kind=raw["type"],
        origin=origin,
        api_key=api_key if isinstance(api_key, int) else None,
        first_version=int(first),
        last_version=last_version,
        last_stable_version=last_version - 1 if raw.get("latestVersionUnstable") is True else last_version,
        flexible_from=None if flexible == "none" else int(flexible.removesuffix("+")),
        listeners=tuple(raw.get("listeners", ())),
        fields=fields,
        structs=tuple(structs.values()),
    )


def _default(raw: object, kind: str) -> str:
    """The default as the schema text has it. A JSON null is no default at all, as in Kafka's own generator."""
    if raw is None:
        return ""
    text = str(raw)
    if kind == "bool":
        return text.lower()
    if text in ("", "null"):
        return text
    return str(int(text, 0))
