"""How a record is printed: kcat's format strings, and one JSON object.

    %s value   %S its length   %k key   %K its length   %h headers   %T timestamp (ms)   %t topic   %p partition
    %o offset  %% a percent sign   \\n \\r \\t \\0 \\\\ \\xNN bytes
A length is -1 where there is none.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.errors import UsageError

_TOKEN = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Part = Callable[[Record], bytes]

_PARTS: dict[str, Part] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"NULL") for name, value in record.headers),
    "T": lambda record: b"%d" % record.timestamp_ms,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "%": lambda record: b"%",
}


def parse_format(text: str) -> Callable[[Record], bytes]:
    """A function that prints a record. Raises `UsageError`."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UsageError(f"--format ends with a lone {text[-1]!r}: write {text[-1] * 2} for one.")
        at = found.end()
        token, escape, plain = found.groups()
        if token is not None:
            if token not in _PARTS:
                raise UsageError(f"--format has no token %{token}: choose of %{' %'.join(_PARTS)}.")
            parts.append(_PARTS[token])
        elif escape is not None:
            parts.append(_constant(_escaped(escape)))
        else:
            parts.append(_constant(os.fsencode(plain)))
    return lambda record: b"".join(part(record) for part in parts)


def unescape(text: str) -> bytes:
    """A separator as it is typed: `\\t` is a tab."""
    return re.sub(rb"\\(x[0-9A-Fa-f]{2}|[nrt0\\])", lambda found: _escaped(found[1].decode()), os.fsencode(text))


def record_json(record: Record, key: Any, value: Any) -> dict[str, Any]:
    """The names are part of `consume --json`, and `produce --from-json` reads them. Bytes that are no text are told as
    text as far as they go, and beside it as they are."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        **_exactly("key", record.key, key),
        "value": value,
        **_exactly("value", record.value, value),
        "headers": [
            {"name": name, "value": (shown := text_of(content)), **_exactly("value", content, shown)}
            for name, content in record.headers
        ],
    }


def _exactly(name: str, data: bytes | None, shown: Any) -> dict[str, str]:
    """What `shown` has lost, if it is `data` as text; what a schema has decoded is whole."""
    if data is None or shown != text_of(data) or shown.encode() == data:
        return {}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", errors="replace")


def json_bytes(value: Any, separators: tuple[str, str] | None = None) -> bytes:
    """On one line, in UTF-8. Half a character, which UTF-8 has not, is told by its number."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=separators).encode()


def _escaped(escape: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    return _ESCAPES.get(escape, escape.encode())


def _constant(data: bytes) -> Part:
    return lambda record: data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)
