"""Requests about records: a path and a query to what is asked of the cluster, and back.

Everything that waits does so in a thread with a `Lane` of its own, of which there are `LANES_MAX` (`gateway/pool`);
tails have theirs (`tail`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ottla.admin.offsets import EARLIEST, LATEST
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.gateway.http import Query, Refusal, not_found
from ottla.gateway.pool import ClientPool
from ottla.gateway.rest import openapi
from ottla.gateway.rest.cluster import Lane, Place
from ottla.gateway.rest.paths import match
from ottla.gateway.rest.records import (
    NewRecord,
    Part,
    Shape,
    documents,
    parse_record,
    parse_time,
    show_record,
    show_time,
)
from ottla.gateway.rest.tail import TAILS_MAX, Tail
from ottla.runtime.offload import SystemOffload

T = TypeVar("T")

LANES_MAX = 8
PATIENT_MAX = 6
"""Of them, so many may wait for records: whoever writes always finds one."""
JSON = "application/json"
RECORDS_SHOWN = 100
RECORDS_SHOWN_MAX = 10_000
READ_BYTES = 1024 * 1024
READ_BYTES_MAX = 8 * 1024 * 1024
WAIT_MS_MAX = 30_000
OFFSET_DIGITS_MAX = 19
ANY_CLUSTER = "-"
"""Stands for the cluster where its id is asked for."""

_MISSING = 40403
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FORBIDDEN = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON


class Asked(NamedTuple):
    """One request, its path matched."""

    parts: tuple[str, ...]
    query: Query
    body: bytes
    headers: Mapping[str, str]


class RestApi:
    """One a process; `close` it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._lanes = ClientPool(lambda: Lane(settings), LANES_MAX, answers=(KafkaError, Refusal))
        self._tail_offload = SystemOffload(TAILS_MAX)
        self._patient = asyncio.Semaphore(PATIENT_MAX)
        self._cluster_id = ""
        self._tails = 0
        self._routes: dict[str, dict[str, Callable[[Asked], Awaitable[Answer | Tail]]]] = {
            "v3/clusters": {"GET": self._clusters},
            "v3/clusters/*": {"GET": self._cluster},
            "v3/clusters/*/topics": {"GET": self._topics},
            "v3/clusters/*/topics/*": {"GET": self._topic},
            "v3/clusters/*/topics/*/partitions": {"GET": self._partitions},
            "v3/clusters/*/topics/*/records": {"POST": self._produce},
            "v3/clusters/*/topics/*/partitions/*/records": {"GET": self._consume},
            "topics/*/stream": {"GET": self._stream},
            "openapi.json": {"GET": self._openapi},
            "docs": {"GET": self._docs},
        }

    @staticmethod
    def serves(path: str) -> bool:
        """Is this a path of records, and not one of schemas?"""
        return path.lstrip("/").partition("/")[0] in ("v3", "topics", "openapi.json", "docs")

    async def close(self) -> None:
        await self._lanes.close()
        self._tail_offload.close()

    async def answer(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer | Tail:
        """Raises `Refusal`."""
        methods, parts = match(self._routes, path)
        if method not in methods:
            raise Refusal(405, "HTTP 405 Method Not Allowed")
        if body and not _is_json(headers):
            raise Refusal(415, "HTTP 415 Unsupported Media Type: send application/json.")
        try:
            return await methods[method](Asked(parts, Query(query), body, headers))
        except KafkaError as error:
            raise refusal_of(error) from None

    # Descriptions.

    async def _openapi(self, asked: Asked) -> Answer:
        return Answer(200, json.dumps(openapi.document(), indent=1).encode())

    async def _docs(self, asked: Asked) -> Answer:
        return Answer(200, openapi.page().encode(), "text/html; charset=utf-8")

    # The cluster and its topics.

    async def _clusters(self, asked: Asked) -> Answer:
        return _list("KafkaClusterList", [_cluster(await self._known_cluster())])

    async def _cluster(self, asked: Asked) -> Answer:
        return _json(200, _cluster(await self._check_cluster(asked.parts[0])))

    async def _topics(self, asked: Asked) -> Answer:
        cluster_id = await self._check_cluster(asked.parts[0])
        topics = await self._lanes.ask(lambda lane: lane.topics())
        return _list(
            "KafkaTopicList",
            [_topic(cluster_id, name, len(topic.partitions)) for name, topic in sorted(topics.items())],
        )

    async def _topic(self, asked: Asked) -> Answer:
        cluster_id, name = await self._check_cluster(asked.parts[0]), asked.parts[1]
        topic = await self._lanes.ask(lambda lane: lane.topic(name))
        return _json(200, _topic(cluster_id, name, len(topic.partitions)))

    async def _partitions(self, asked: Asked) -> Answer:
        """Confluent's answer, and beside it the offsets that can be read."""
        cluster_id, name = await self._check_cluster(asked.parts[0]), asked.parts[1]

        def look(lane: Lane) -> list[dict[str, Any]]:
            topic = lane.topic(name)
            first, end = (lane.offsets(name, list(topic.partitions), when) for when in (EARLIEST, LATEST))
            return [
                {
                    "kind": "KafkaPartition",
                    "cluster_id": cluster_id,
                    "topic_name": name,
                    "partition_id": partition,
                    "leader_id": found.leader,
                    "first_offset": first[partition],
                    "end_offset": end[partition],
                }
                for partition, found in topic.partitions.items()
            ]

        return _list("KafkaPartitionList", await self._lanes.ask(look))

    # Records.

    async def _produce(self, asked: Asked) -> Answer:
        cluster_id, topic = await self._check_cluster(asked.parts[0]), asked.parts[1]
        records: list[NewRecord] = []
        refused: Refusal | None = None
        try:
            for document in documents(asked.body):
                records.append(parse_record(document))
        except Refusal as refusal:
            # As with Confluent's, those before it are written; a body of one that is refused is refused as a whole.
            if not records:
                raise
            refused = refusal
        if not records:
            raise Refusal(400, "The body has no record.")
        outcomes = await self._lanes.ask(lambda lane: lane.produce(topic, records))
        lines = [
            _produced(cluster_id, topic, record, outcome) for record, outcome in zip(records, outcomes, strict=True)
        ]
        if refused is not None:
            lines.append(_error(refused))
        if len(lines) == 1:
            code = lines[0]["error_code"]
            return _json(code if code < 1000 else code // 100, lines[0])
        return Answer(200, b"".join(_encode(line) + b"\r\n" for line in lines))

    async def _consume(self, asked: Asked) -> Answer:
        await self._check_cluster(asked.parts[0])
        topic, partition = asked.parts[1], _partition(asked.parts[2])
        query = asked.query
        count = _number(query, "max_records", RECORDS_SHOWN, RECORDS_SHOWN_MAX)
        bytes_max = _number(query, "max_bytes", READ_BYTES, READ_BYTES_MAX)
        wait_ms = _number(query, "wait_ms", 0, WAIT_MS_MAX)
        start, shape = parse_start(query.text("from", "beginning")), _shape(query)

        def read(lane: Lane) -> tuple[list[dict[str, Any]], int]:
            if partition not in lane.topic(topic).partitions:
                raise Refusal(_MISSING, f"The topic {topic} has no partition {partition}.")
            offset = start.offsets(lane, topic, [partition])[partition]
            found = lane.read(topic, partition, offset, bytes_max=bytes_max, wait_ms=wait_ms)
            shown = found.records[:count]
            next_offset = found.next_offset if len(shown) == len(found.records) else shown[-1].offset + 1
            return [dict(show_record(topic, partition, each, shape)) for each in shown], next_offset

        async with self._patient if wait_ms else contextlib.nullcontext():
            records, next_offset = await self._lanes.ask(read)
        return _list("KafkaRecordList", records, next_offset=next_offset)

    async def _stream(self, asked: Asked) -> Tail:
        topic, query = asked.parts[0], asked.query
        start, shape = parse_start(query.text("from", "end")), _shape(query)
        partition = _partition(query.text("partition")) if query.text("partition") else None
        resumed = parse_positions(asked.headers.get("last-event-id", ""))
        if self._tails >= TAILS_MAX:
            raise Refusal(503, f"{TAILS_MAX} streams are open already: close one, or read with a consumer.")
        self._tails += 1
        tail = Tail(Lane(self._settings), self._tail_offload, topic, shape, on_closed=self._on_tail_closed)
        try:
            await tail.begin(start, partition, resumed)
        except BaseException:
            await tail.close()
            raise
        return tail

    def _on_tail_closed(self) -> None:
        self._tails -= 1

    # Lanes.

    async def _known_cluster(self) -> str:
        if not self._cluster_id:
            self._cluster_id = await self._lanes.ask(lambda lane: lane.cluster_id())
        return self._cluster_id

    async def _check_cluster(self, wanted: str) -> str:
        known = await self._known_cluster()
        if wanted not in (known, ANY_CLUSTER):
            raise Refusal(404, f"The cluster is {known}, and no other can be reached from here.")
        return known


class Start(NamedTuple):
    """Where to begin: at an offset, so many records before the end, or at a time, as ListOffsets takes it."""

    offset: int | None = None
    before_end: int | None = None
    when: int = EARLIEST

    def offsets(self, lane: Lane, topic: str, partitions: list[int]) -> dict[int, int]:
        if self.offset is not None:
            return dict.fromkeys(partitions, self.offset)
        if self.before_end is None:
            return lane.offsets(topic, partitions, self.when)
        first, end = (lane.offsets(topic, partitions, when) for when in (EARLIEST, LATEST))
        return {partition: max(first[partition], end[partition] - self.before_end) for partition in partitions}


def parse_start(text: str) -> Start:
    """`beginning`, `end`, an offset, `-N` for the last N, `@` and a time. Raises `Refusal`."""
    if text in ("beginning", "earliest"):
        return Start()
    if text in ("end", "latest"):
        return Start(when=LATEST)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < OFFSET_DIGITS_MAX:
        return Start(before_end=int(digits)) if text.startswith("-") else Start(offset=int(text))
    if text.startswith("@"):
        moment = text[1:]
        plain = moment.isascii() and moment.isdigit() and len(moment) < OFFSET_DIGITS_MAX
        when = int(moment) if plain else parse_time(moment.replace(" ", "+"))
        if when is not None and when >= 0:
            return Start(when=when)
    raise Refusal(400, "from is beginning, end, an offset, -N for the last N, or @ and a time: @2026-01-31T12:00:00Z.")


def parse_positions(text: str) -> dict[int, int]:
    """What `Tail` gave as the id of an event: where each partition goes on. Empty if it is nothing of the kind."""
    positions: dict[int, int] = {}
    for each in text.split(",") if text else ():
        partition, colon, offset = each.partition(":")
        if not colon or not partition.isdecimal() or not offset.isdecimal() or len(each) > 2 * OFFSET_DIGITS_MAX:
            return {}
        positions[int(partition)] = int(offset)
    return positions


def refusal_of(error: KafkaError) -> Refusal:
    """HTTP's words for what the cluster says."""
    message = error.message or error.code.name
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return Refusal(_MISSING, error.message or "This server does not host this topic-partition.")
    if error.code in _FORBIDDEN:
        return Refusal(40301, message)
    if error.code in _TOO_LARGE:
        return Refusal(413, f"The cluster takes no record of this size: {message}")
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Refusal(40002, "The partition has no such offset: its partitions' page says which there are.")
    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        return Refusal(504, message)
    return Refusal(503 if error.code.retriable else 40002, message)


def _is_json(headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))


def _shape(query: Query) -> Shape:
    try:
        return Shape(query.text("format", Shape.AUTO))
    except ValueError:
        raise Refusal(400, f"format is one of {', '.join(Shape)}.") from None


def _number(query: Query, name: str, default: int, most: int) -> int:
    text = query.text(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise Refusal(400, f"{name} is a number up to {most}.")
    return min(int(text), most)


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise not_found()
    return int(text)


# Answers.


def _cluster(cluster_id: str) -> dict[str, Any]:
    return {"kind": "KafkaCluster", "metadata": {"self": f"/v3/clusters/{cluster_id}"}, "cluster_id": cluster_id}


def _topic(cluster_id: str, name: str, partitions: int) -> dict[str, Any]:
    return {
        "kind": "KafkaTopic",
        "metadata": {"self": f"/v3/clusters/{cluster_id}/topics/{quote(name, safe='')}"},
        "cluster_id": cluster_id,
        "topic_name": name,
        "partitions_count": partitions,
    }


def _produced(cluster_id: str, topic: str, record: NewRecord, outcome: Place | KafkaError) -> dict[str, Any]:
    if isinstance(outcome, KafkaError):
        return _error(refusal_of(outcome))
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": outcome.partition,
        "offset": outcome.offset,
        "timestamp": show_time(outcome.timestamp_ms),
        "key": _size(record.key),
        "value": _size(record.value),
    }


def _size(part: Part | None) -> dict[str, Any] | None:
    return None if part is None else {"type": part.type, "size": len(part.data)}


def _error(refusal: Refusal) -> dict[str, Any]:
    return {"error_code": refusal.code, "message": refusal.message}


def _list(kind: str, data: list[dict[str, Any]], **more: Any) -> Answer:
    return _json(200, {"kind": kind, "data": data, **more})


def _json(status: int, value: Any) -> Answer:
    return Answer(status, _encode(value))


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
