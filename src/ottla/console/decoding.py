"""What the bytes of a key or a value mean: null, Avro, JSON, text, or else hex.

`Decoder` is handed the way to a schema by its id (`schema_of`), which may ask a registry and block; everything else is
pure. Bytes that name a schema nobody knows are shown as what they look like.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ottla.schemas import avro, avro_values
from ottla.schemas.avro import Json
from ottla.schemas.framing import MAGIC, PREFIX, PREFIX_BYTES

HEX_BYTES_MAX = 4096
"""Of longer ones the beginning is shown."""

MODES = ("auto", "json", "text", "hex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """As a registry keeps it: its type (AVRO, JSON, PROTOBUF), and the parsed schema of an Avro one."""

    schema_id: int
    type: str
    parsed: avro.Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    kind: str
    """How it was read: null, empty, avro, json, text or hex; with the schema's id where it names one."""
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
        if schema.parsed is not None:
            try:
                value = avro_values.decode(schema.parsed, body)
            except avro_values.BadValue:
                return None
            return Decoded(kind=f"avro, schema {schema.schema_id}", text=_pretty(value), value=value)
        if schema.type == "JSON":
            found = _json(body)
            if found is not None:
                return Decoded(kind=f"json, schema {schema.schema_id}", text=found.text, value=found.value)
        shown = _hex(body)
        return Decoded(kind=f"{schema.type.lower()}, schema {schema.schema_id}, hex", text=shown.text)


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
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def indented(value: Json) -> str:
    """The same over several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)
