"""What can be saved to a file: one key or value as it is, and the records of a page as JSON lines."""

from __future__ import annotations

import base64
import json

from fastapi import FastAPI, Request, Response

from ottla.admin.topics import list_topics
from ottla.client.blocking import BlockingClient
from ottla.console.browsing import BadQuery, Query
from ottla.console.console import Console
from ottla.console.decoding import Decoded, Decoder
from ottla.console.filters import BadFilter
from ottla.console.pages.frame import query_of, sentence
from ottla.console.reading import Page, SeenRecord, read_one
from ottla.errors import KafkaError


def register(console: Console, app: FastAPI) -> None:
    @app.get("/topics/{name}/records/{partition}/{offset}/{part}")
    async def part(name: str, partition: int, offset: int, part: str) -> Response:
        if part not in ("key", "value"):
            return _refused("There are the key and the value.")
        try:
            console.check_may_read()
            record = await console.workers.ask(lambda client: read_one(client, name, partition, offset))
        except KafkaError as error:
            return _refused(sentence(error))
        data = None if record is None else record.key if part == "key" else record.value
        if data is None:
            return _refused("There is nothing at this place any more.")
        return _file(data, f"{name}-{partition}-{offset}.{part}.bin", "application/octet-stream")

    @app.get("/topics/{name}/records.jsonl")
    async def lines(request: Request, name: str) -> Response:
        try:
            console.check_may_read()
            wanted = Query.parse(query_of(request))
            decoder = console.decoder(wanted.decode)

            def work(client: BlockingClient) -> Page:
                (topic,) = list_topics(client, [name])
                return wanted.run(client, name, [each.partition for each in topic.partitions], decoder)

            page = await console.workers.ask(work)
        except (KafkaError, BadQuery, BadFilter) as error:
            return _refused(sentence(error))
        text = "".join(f"{json.dumps(line(each, decoder), ensure_ascii=False)}\n" for each in page.records)
        return _file(text.encode("utf-8", "replace"), f"{name}.jsonl", "application/x-ndjson")


def line(seen: SeenRecord, decoder: Decoder) -> dict[str, object]:
    record = seen.record
    return {
        "partition": seen.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _value(decoder.decode(record.key), record.key),
        "value": _value(decoder.decode(record.value), record.value),
        "headers": [[name, None if data is None else data.decode("utf-8", "replace")] for name, data in record.headers],
    }


def _value(decoded: Decoded, data: bytes | None) -> object:
    """Structured values as they are, texts as texts; other bytes as base64, said so."""
    if data is None:
        return None
    if decoded.is_structured:
        return decoded.value
    if decoded.kind in ("text", "empty"):
        return decoded.text
    return {"base64": base64.b64encode(data).decode()}


def _file(data: bytes, name: str, kind: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(data, media_type=kind, headers=headers)


def _refused(text: str) -> Response:
    return Response(f"{text}\n", status_code=400, media_type="text/plain")
