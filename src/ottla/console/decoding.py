"""What the bytes of a key or a value mean: null, Avro, Protobuf, JSON, text, or else hex; and bytes of what was typed.

`Decoder` is handed the way to a schema by its id (`schema_of`), which may ask a registry and block; everything else is
pure. Bytes that name a schema nobody knows are shown as what they look like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.schemas import avro, avro_values, protobuf_values
from ottla.schemas.avro import Json
from ottla.schemas.framing import MAGIC, PREFIX, PREFIX_BYTES, prefix

HEX_BYTES_MAX = 4096
"""Of longer ones the beginning is shown."""

MODES = ("auto", "json", "text", "hex")

_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """As a registry keeps it: its type (AVRO, JSON, PROTOBUF), and what it says, which of JSON is nothing."""

    schema_id: int
    type: str
    as_avro: avro.Schema | None = None
    as_protobuf: protobuf_values.Schema | None = None


def parse_schema(schema_id: int, kind: str, text: str, references: Sequence[str]) -> Schema:
    """Raises `InvalidSchema`."""
    if kind == "AVRO":
        return Schema(schema_id=schema_id, type=kind, as_avro=avro.parse(text, references, strict=False))
    if kind == "PROTOBUF":
        return Schema(schema_id=schema_id, type=kind, as_protobuf=protobuf_values.Schema(text, references))
    return Schema(schema_id=schema_id, type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    kind: str
    """How it was read: null, empty, avro, protobuf, json, text or hex; with the schema's id where it names one."""
    text: str
    value: Json = None
    """Of JSON and Avro: what filters look into."""

    @property
    def is_structured(self) -> bool:
        return self.value is not None


class Decoder:
    def __init__(self, schema_of: Callable[[int], Schema | None], mode: str = "auto") -> None:
        self._schema_of = schema_of
        self._mode = mode if mode in MODES else "auto"

    def decode(self, data: bytes | None) -> Decoded:
        if data is None:
            return Decoded(kind="null", text="")
        if not data:
            return Decoded(kind="empty", text="")
        if self._mode == "hex":
            return _hex(data)
        if self._mode == "text":
            return Decoded(kind="text", text=data.decode("utf-8", "replace"))
        if self._mode == "auto" and data[0] == MAGIC and len(data) >= PREFIX_BYTES:
            found = self._framed(data)
            if found is not None:
                return found
        return _json(data) or _text(data) or _hex(data)

    def _framed(self, data: bytes) -> Decoded | None:
        schema = self._schema_of(PREFIX.unpack_from(data)[1])
        if schema is None:
            return None
        body = data[PREFIX_BYTES:]
        try:
            if schema.as_avro is not None:
                value = avro_values.decode(schema.as_avro, body)
                return Decoded(kind=f"avro, schema {schema.schema_id}", text=_pretty(value), value=value)
            if schema.as_protobuf is not None:
                value = schema.as_protobuf.decode(body)
                return Decoded(kind=f"protobuf, schema {schema.schema_id}", text=_pretty(value), value=value)
        except avro_values.BadValue:
            return None
        if schema.type == "JSON":
            found = _json(body)
            if found is not None:
                return Decoded(kind=f"json, schema {schema.schema_id}", text=found.text, value=found.value)
        shown = _hex(body)
        return Decoded(kind=f"{schema.type.lower()}, schema {schema.schema_id}, hex", text=shown.text)


def encode(schema: Schema, text: str) -> bytes:
    """JSON that somebody typed, as a record holds it. Raises `ValueError` with one sentence."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"With a schema, write JSON: {error}.") from None
    if schema.as_avro is not None:
        body = avro_values.encode(schema.as_avro, value)
    elif schema.as_protobuf is not None:
        body = schema.as_protobuf.encode(value)
    elif schema.type == "JSON":
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    else:
        raise ValueError(f"A schema of type {schema.type} cannot be written by hand.")
    return prefix(schema.schema_id) + body


def _json(data: bytes) -> Decoded | None:
    """Only objects and lists: a number or a word is text to whoever looks at it."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return Decoded(kind="json", text=_pretty(value), value=value)


def _text(data: bytes) -> Decoded | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(ord(each) < 32 and each not in "\t\n\r" for each in text):
        return None
    return Decoded(kind="text", text=text)


def _hex(data: bytes) -> Decoded:
    shown = data[:HEX_BYTES_MAX].hex(" ")
    if len(data) > HEX_BYTES_MAX:
        shown += f" … {len(data) - HEX_BYTES_MAX} bytes more"
    return Decoded(kind="hex", text=shown)


def _pretty(value: Json) -> str:
    return _readable(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def indented(value: Json) -> str:
    """The same over several lines."""
    return _readable(json.dumps(value, ensure_ascii=False, indent=2))


def _readable(text: str) -> str:
    """Half a character, which no page can show, is written as JSON writes it."""
    return _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
