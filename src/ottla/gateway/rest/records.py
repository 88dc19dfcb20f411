"""Records in JSON, both ways: what a produce request says, and how a record is shown.

A key or a value is `{"type": …, "data": …}`: STRING is text, JSON any JSON, BINARY base64. A missing or null one is
none: as a value, a tombstone. Bodies come from anybody: what is not as it should be is a `Refusal`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ottla.gateway.http import Refusal
from ottla.records.records import Record

RECORDS_MAX = 10_000
"""Of one request."""
HEADERS_MAX = 100
INT_MAX = (1 << 31) - 1
TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: what is later has no date."""

UNPROCESSABLE = 42200
"""Confluent's code for a body that is JSON, and not what is wanted."""


class DataType(StrEnum):
    BINARY = "BINARY"
    STRING = "STRING"
    JSON = "JSON"


class Shape(StrEnum):
    """How keys and values are shown."""

    AUTO = "auto"
    """As text where they are, else in base64."""
    JSON = "json"
    """As JSON where they are, else as `AUTO`."""
    BINARY = "binary"
    """In base64."""


class Part(NamedTuple):
    """A key or a value to be written."""

    type: DataType
    data: bytes


class NewRecord(NamedTuple):
    partition: int | None
    key: Part | None
    value: Part | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


# Reading.


def documents(body: bytes) -> Iterator[Any]:
    """The JSON documents that stand in `body`, one after the other. Raises `Refusal`."""
    try:
        text = body.decode()
        decoder = json.JSONDecoder(parse_constant=_no_constant)
        position, count = _skip_space(text, 0), 0
        while position < len(text):
            document, position = decoder.raw_decode(text, position)
            position = _skip_space(text, position)
            count += 1
            if count > RECORDS_MAX:
                raise Refusal(413, f"A request may have {RECORDS_MAX} records.")
            yield document
    except (ValueError, RecursionError):
        raise Refusal(400, "The body is not JSON in UTF-8.") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def parse_record(document: Any) -> NewRecord:
    """Raises `Refusal`."""
    if not isinstance(document, dict):
        raise _unfit("A record is an object, with key, value, headers, partition_id and timestamp.")
    partition = document.get("partition_id")
    if partition is not None and (type(partition) is not int or not 0 <= partition <= INT_MAX):
        raise _unfit("partition_id is the number of a partition.")
    return NewRecord(
        partition,
        _part("key", document.get("key")),
        _part("value", document.get("value")),
        _headers(document.get("headers")),
        _timestamp(document.get("timestamp")),
    )


def _part(name: str, document: Any) -> Part | None:
    if document is None:
        return None
    if not isinstance(document, dict) or "data" not in document:
        raise _unfit(f'{name} is an object with "type" and "data", or null.')
    kind, data = document.get("type", DataType.JSON), document["data"]
    if data is None:
        return None
    if kind == DataType.JSON:
        try:
            return Part(DataType.JSON, json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
        except UnicodeEncodeError:
            raise _unfit(f"The data of {name} holds half a surrogate pair.") from None
    if kind == DataType.STRING and isinstance(data, str):
        return Part(DataType.STRING, _utf8(name, data))
    if kind == DataType.BINARY and isinstance(data, str):
        return Part(DataType.BINARY, _from_base64(name, data))
    raise _unfit(f"The type of {name} is BINARY with base64, STRING with text, or JSON: schemas belong to serializers.")


def _headers(document: Any) -> tuple[tuple[str, bytes | None], ...]:
    if document is None:
        return ()
    if not isinstance(document, list) or len(document) > HEADERS_MAX:
        raise _unfit(f"headers is a list of {HEADERS_MAX} at most.")
    found: list[tuple[str, bytes | None]] = []
    for each in document:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise _unfit('A header is an object with "name" and "value", which is base64.')
        name, value = each["name"], each.get("value")
        _utf8("a header's name", name)
        if value is not None and not isinstance(value, str):
            raise _unfit("The value of a header is base64, or null.")
        found.append((name, None if value is None else _from_base64(f"the header {name[:50]}", value)))
    return tuple(found)


def _timestamp(document: Any) -> int | None:
    if document is None:
        return None
    found = parse_time(document) if isinstance(document, str) else document
    if type(found) is not int or not 0 <= found <= TIMESTAMP_MS_MAX:
        raise _unfit("timestamp is a date and time such as 2026-01-31T12:00:00Z, or milliseconds since 1970.")
    return found


def parse_time(text: str) -> int | None:
    """Milliseconds since 1970 of a date and time, taken for UTC if it does not say; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _unfit(f"{name} holds half a surrogate pair.") from None


def _from_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _unfit(f"The data of {name} is not base64.") from None


def _unfit(message: str) -> Refusal:
    return Refusal(UNPROCESSABLE, message)


# Showing.


def show_time(timestamp_ms: int) -> str | None:
    """None for a time that has no date."""
    if not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        return None
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{timestamp_ms % 1000:03d}Z"


def show_record(topic: str, partition: int, record: Record, shape: Shape) -> Mapping[str, Any]:
    return {
        "topic_name": topic,
        "partition_id": partition,
        "offset": record.offset,
        "timestamp": show_time(record.timestamp),
        "key": _shown(record.key, shape),
        "value": _shown(record.value, shape),
        "headers": [
            {"name": name, "value": None if value is None else base64.b64encode(value).decode()}
            for name, value in record.headers
        ],
    }


def _shown(data: bytes | None, shape: Shape) -> Mapping[str, Any] | None:
    if data is None:
        return None
    if shape is not Shape.BINARY:
        try:
            text = data.decode()
            if shape is Shape.JSON:
                try:
                    return {"type": DataType.JSON, "data": json.loads(text, parse_constant=_no_constant)}
                except (ValueError, RecursionError):
                    pass
            return {"type": DataType.STRING, "data": text}
        except UnicodeDecodeError:
            pass
    return {"type": DataType.BINARY, "data": base64.b64encode(data).decode()}
