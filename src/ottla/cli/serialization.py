"""Values of records as people read and write them: text, or Avro, JSON and Protobuf by way of a schema registry.

A record that names its schema (`ottla.schemas.framing`) is decoded with it, if a registry was given; any other is text.
What is written is encoded with the newest schema of the topic's subject, or with the one that was named.
"""

from __future__ import annotations

import json
from typing import Any

from ottla.cli.formats import json_bytes, text_of
from ottla.client.registry import FoundSchema, RegistryClient
from ottla.errors import StartupError
from ottla.schemas import avro, avro_values, protobuf_values
from ottla.schemas.avro import InvalidSchema
from ottla.schemas.avro_values import BadValue
from ottla.schemas.framing import MAGIC, PREFIX, PREFIX_BYTES, prefix

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_NAMES = {AVRO: "Avro", JSON: "JSON", PROTOBUF: "Protobuf"}


class Undecodable(Exception):
    """The bytes are not what their schema says; the message is one sentence."""


class Decoder:
    """Bytes to what JSON can say. Schemas are asked for once."""

    def __init__(self, registry: RegistryClient | None) -> None:
        self._registry = registry
        self._schemas: dict[int, tuple[FoundSchema, Any]] = {}

    def decode(self, data: bytes | None) -> Any:
        """The value, or its text. Raises `Undecodable`."""
        if data is None:
            return None
        if self._registry is None or len(data) < PREFIX_BYTES or data[0] != MAGIC:
            return text_of(data)
        _, schema_id = PREFIX.unpack_from(data)
        schema, parsed = self._schema(schema_id)
        body = data[PREFIX_BYTES:]
        try:
            if schema.kind == AVRO:
                return avro_values.decode(parsed, body)
            if schema.kind == JSON:
                return json.loads(body)
            if schema.kind == PROTOBUF:
                return parsed.decode(body)
        except (ValueError, RecursionError) as error:
            reason = str(error).rstrip(".")
            raise Undecodable(
                f"A record says that it is {_NAMES[schema.kind]} of schema {schema_id}, and is not: {reason}."
            ) from None
        raise Undecodable(f"Schema {schema_id} is of the kind {schema.kind}, which cannot be shown.")

    def _schema(self, schema_id: int) -> tuple[FoundSchema, Any]:
        known = self._schemas.get(schema_id)
        if known is None:
            assert self._registry is not None  # Nobody asks for a schema without one.
            found = self._registry.by_id(schema_id)
            known = self._schemas[schema_id] = (found, _parse(found))
        return known


class Encoder:
    """Text to bytes that name their schema. `message` is the name of a Protobuf message, the first if not given."""

    def __init__(self, schema: FoundSchema, message: str | None = None) -> None:
        if schema.kind not in (AVRO, JSON, PROTOBUF):
            known = "only AVRO, JSON and PROTOBUF can be written"
            raise StartupError(f"Schema {schema.id} is of the kind {schema.kind}: {known}.")
        if message is not None and schema.kind != PROTOBUF:
            raise StartupError(
                f"Schema {schema.id} is of the kind {schema.kind} and has no messages: leave :{message} out."
            )
        self._schema = schema
        self._message = message
        self._parsed = _parse(schema)
        self._prefix = prefix(schema.id)

    def encode(self, text: bytes) -> bytes:
        """Raises `StartupError` for what is not JSON, or not of the schema."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            shown = text[:80].decode(errors="replace")
            raise StartupError(f"{shown!r} is not JSON ({error}): with a schema each record is a JSON value.") from None
        try:
            if self._schema.kind == AVRO:
                return self._prefix + avro_values.encode(self._parsed, value)
            if self._schema.kind == PROTOBUF:
                return self._prefix + bytes(self._parsed.encode(value, self._message))
        except BadValue as error:
            raise StartupError(f"A record does not fit schema {self._schema.id}: {error}") from None
        return self._prefix + json_bytes(value, (",", ":"))


def _parse(schema: FoundSchema) -> Any:
    """What values are read and written with; none for JSON, which says all by itself."""
    try:
        if schema.kind == AVRO:
            return avro.parse(schema.text, schema.references, strict=False)
        if schema.kind == PROTOBUF:
            return protobuf_values.Schema(schema.text, schema.references)
    except InvalidSchema as error:
        raise StartupError(f"Schema {schema.id} is no {_NAMES[schema.kind]} schema: {error}") from None
    return None
