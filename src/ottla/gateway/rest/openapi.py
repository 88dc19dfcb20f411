"""The description of the API: as OpenAPI for programs (`/openapi.json`), and as a page for people (`/docs`).

One table of operations, from which both are made.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any, NamedTuple

import ottla

_CLUSTER = ("cluster_id", "path", "string", "The cluster's id, or `-` for the one that there is.")
_TOPIC = ("topic_name", "path", "string", "The topic.")
_PARTITION = ("partition_id", "path", "integer", "The partition's number.")
_FORMAT = (
    "format",
    "query",
    "string",
    "How keys and values are shown: `auto` (text where they are, else base64), `json` or `binary` (base64).",
)
_FROM = (
    "from",
    "query",
    "string",
    "`beginning`, `end`, an offset, `-N` for the last N records, or `@` and a time: `@2026-01-31T12:00:00Z`.",
)

Parameter = tuple[str, str, str, str]
"""Name, place, type, description."""


class Operation(NamedTuple):
    method: str
    path: str
    summary: str
    parameters: tuple[Parameter, ...]
    answer: str
    """The schema of what is answered."""
    example: str


OPERATIONS = (
    Operation("get", "/v3/clusters", "The cluster", (), "ClusterList", "curl {host}/v3/clusters"),
    Operation("get", "/v3/clusters/{cluster_id}", "The cluster", (_CLUSTER,), "Cluster", "curl {host}/v3/clusters/-"),
    Operation(
        "get",
        "/v3/clusters/{cluster_id}/topics",
        "All topics",
        (_CLUSTER,),
        "TopicList",
        "curl {host}/v3/clusters/-/topics",
    ),
    Operation(
        "get",
        "/v3/clusters/{cluster_id}/topics/{topic_name}",
        "One topic",
        (_CLUSTER, _TOPIC),
        "Topic",
        "curl {host}/v3/clusters/-/topics/orders",
    ),
    Operation(
        "get",
        "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions",
        "The partitions of a topic, their leaders and the offsets that can be read",
        (_CLUSTER, _TOPIC),
        "PartitionList",
        "curl {host}/v3/clusters/-/topics/orders/partitions",
    ),
    Operation(
        "post",
        "/v3/clusters/{cluster_id}/topics/{topic_name}/records",
        "Write records: one JSON object each, one after the other; each is answered in order",
        (_CLUSTER, _TOPIC),
        "Produced",
        "curl -H 'Content-Type: application/json' {host}/v3/clusters/-/topics/orders/records "
        '-d \'{"key": {"type": "STRING", "data": "42"}, "value": {"type": "JSON", "data": {"total": 9.5}}}\'',
    ),
    Operation(
        "get",
        "/v3/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/records",
        "Read committed records of a partition",
        (
            _CLUSTER,
            _TOPIC,
            _PARTITION,
            _FROM,
            ("max_records", "query", "integer", "At most so many records: 100 if not said, 10000 at most."),
            ("max_bytes", "query", "integer", "About so many bytes, though one batch at least."),
            ("wait_ms", "query", "integer", "How long to wait for records, if there are none."),
            _FORMAT,
        ),
        "RecordList",
        "curl '{host}/v3/clusters/-/topics/orders/partitions/0/records?from=-10&format=json'",
    ),
    Operation(
        "get",
        "/topics/{topic_name}/stream",
        "Follow a topic, as server-sent events",
        (
            _TOPIC,
            _FROM,
            ("partition", "query", "integer", "One partition; all, if not given."),
            _FORMAT,
            ("Last-Event-ID", "header", "string", "Go on behind the event with this id."),
        ),
        "Event",
        "curl -N '{host}/topics/orders/stream?from=end'",
    ),
)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _text(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(name: str, **more: Any) -> dict[str, Any]:
    return _object(kind=_text(), data={"type": "array", "items": _ref(name)}, **more)


_INTEGER = {"type": "integer"}
_HEADERS = {"type": "array", "items": _object(name=_text(), value=_text("Base64."))}
_DATA = {
    "oneOf": [
        {
            **_object(
                type={"type": "string", "enum": ["BINARY", "STRING", "JSON"]},
                data={"description": "Base64, text, or any JSON."},
            ),
            "required": ["data"],
        },
        {"type": "null"},
    ]
}
_SIZE = _object(type=_text(), size=_INTEGER)

_SCHEMAS: dict[str, Any] = {
    "Cluster": _object(kind=_text(), cluster_id=_text()),
    "ClusterList": _list_of("Cluster"),
    "Topic": _object(kind=_text(), cluster_id=_text(), topic_name=_text(), partitions_count=_INTEGER),
    "TopicList": _list_of("Topic"),
    "Partition": _object(
        kind=_text(),
        cluster_id=_text(),
        topic_name=_text(),
        partition_id=_INTEGER,
        leader_id=_INTEGER,
        first_offset=_INTEGER,
        end_offset=_INTEGER,
    ),
    "PartitionList": _list_of("Partition"),
    "NewRecord": _object(
        partition_id=_INTEGER,
        key=_DATA,
        value=_DATA,
        headers=_HEADERS,
        timestamp={"oneOf": [_text("Date and time, ISO 8601."), {"type": "integer", "description": "Milliseconds."}]},
    ),
    "Produced": _object(
        error_code=_INTEGER,
        cluster_id=_text(),
        topic_name=_text(),
        partition_id=_INTEGER,
        offset=_INTEGER,
        timestamp=_text(),
        key=_SIZE,
        value=_SIZE,
    ),
    "Record": _object(
        topic_name=_text(),
        partition_id=_INTEGER,
        offset=_INTEGER,
        timestamp=_text(),
        key=_DATA,
        value=_DATA,
        headers=_HEADERS,
    ),
    "RecordList": _list_of("Record", next_offset=_INTEGER),
    "Event": _text("`id:` and `data:` lines; the data is a Record."),
    "Error": _object(error_code=_INTEGER, message=_text()),
}


def _parameter(name: str, place: str, kind: str, description: str) -> dict[str, Any]:
    required = place == "path"
    return {"name": name, "in": place, "required": required, "description": description, "schema": {"type": kind}}


@cache
def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        kind = "text/event-stream" if each.answer == "Event" else "application/json"
        described: dict[str, Any] = {
            "summary": each.summary,
            "parameters": [_parameter(*parameter) for parameter in each.parameters],
            "responses": {
                "200": {"description": "Done.", "content": {kind: {"schema": _ref(each.answer)}}},
                "default": {
                    "description": "It was refused.",
                    "content": {"application/json": {"schema": _ref("Error")}},
                },
            },
        }
        if each.method == "post":
            described["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": _ref("NewRecord")}},
            }
        paths.setdefault(each.path, {})[each.method] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla: records over HTTP",
            "version": ottla.__version__,
            "description": "Produce, consume and follow topics. Paths under /v3 are those of Confluent's REST Proxy.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "body{color:#222;background:#fff}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f3f3f3;padding:.6rem;overflow:auto}"
    "table{border-collapse:collapse}td{padding:.15rem .8rem .15rem 0;vertical-align:top}b{color:#0a5}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}pre{background:#222}}"
)


@cache
def page() -> str:
    """Without scripts, and without anything that is not here."""
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Records over HTTP</title><style>{_STYLE}</style>'
        '<h1>Records over HTTP</h1><p>As OpenAPI: <a href="/openapi.json">/openapi.json</a></p>'
    ]
    for each in OPERATIONS:
        parts.append(f"<h2><b>{each.method.upper()}</b> <code>{escape(each.path)}</code></h2><p>{each.summary}.</p>")
        rows = "".join(
            f"<tr><td><code>{name}</code><td>{place}<td>{_marked(about)}" for name, place, _, about in each.parameters
        )
        example = each.example.replace("{host}", "http://127.0.0.1:8081")
        parts.append(f"<table>{rows}</table><pre>{escape(example, quote=False)}</pre>")
    return "\n".join(parts)


def _marked(text: str) -> str:
    """Backquotes to code."""
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(escape(text).split("`")))
