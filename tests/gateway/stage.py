"""A registry on a log in memory, asked over its own HTTP application, without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from ottla.gateway.app import App
from ottla.gateway.door import Door
from ottla.gateway.registry.stored import Entry
from ottla.gateway.registry.topic import Fenced, LogRecord, Portion, Unsure
from ottla.gateway.registry.writing import Registry
from ottla.model import Uuid
from ottla.runtime.offload import SystemOffload

T = TypeVar("T")

TOPIC_ID = Uuid(b"schemas-in-memory"[:16])


class MemoryLog:
    """What a partition and a transaction coordinator do for the registry, and the faults that a test asks for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.records: list[LogRecord] = []
        self.epoch = 0
        self.topic_id = TOPIC_ID
        self.before_append: Callable[[], None] = lambda: None
        self.lose_commit: bool | None = None
        """The next commit's answer is lost: was it carried out all the same?"""

    def append(self, key: bytes | None, value: bytes | None) -> int:
        with self.changed:
            offset = len(self.records)
            self.records.append(LogRecord(offset, 1_000 + offset, key, value))
            self.changed.notify_all()
            return offset

    def compacted(self) -> MemoryLog:
        """A log with the last record of each key, as after compaction; deleted ones are gone."""
        latest = {each.key: each for each in self.records}
        other = MemoryLog()
        other.records = [
            each if latest[each.key] is each and each.value is not None else LogRecord(each.offset, 0, None, None)
            for each in self.records
        ]
        return other


class MemoryReader:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def ensure_topic(self) -> None:
        pass

    def earliest_offset(self) -> int:
        return 0

    def end_offset(self) -> int:
        return len(self._log.records)

    def read(self, offset: int, max_wait_ms: int) -> Portion:
        with self._log.changed:
            self._log.changed.wait_for(lambda: len(self._log.records) > offset, 0.05)
            found = self._log.records[offset:]
        records = [each for each in found if each.key is not None]
        return Portion(records=records, next_offset=offset + len(found), topic_id=self._log.topic_id)

    def close(self) -> None:
        pass


class MemoryWriter:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._epoch = 0
        self.takeovers = 0

    @property
    def is_writer(self) -> bool:
        return self._epoch > 0

    def end_offset(self) -> int:
        return len(self._log.records)

    def take_over(self) -> None:
        with self._log.changed:
            self._log.epoch += 1
            self._epoch = self._log.epoch
        self.takeovers += 1

    def append(self, entries: list[Entry]) -> int:
        self._log.before_append()
        with self._log.changed:
            if self._epoch != self._log.epoch:
                self._epoch = 0
                raise Fenced
            lost, self._log.lose_commit = self._log.lose_commit, None
            first = len(self._log.records)
            if lost is not False:
                for key, value in entries:
                    self._log.append(key, value)
            else:
                self._log.append(None, None)  # Taken back: a hole that nobody sees.
            if lost is not None:
                self._epoch = 0
                raise Unsure(first)
            return first + len(entries)

    def close(self) -> None:
        pass


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Client:
    """Asks the application as a web server would."""

    def __init__(self, app: App, registry: Registry) -> None:
        self._app = app
        self.registry = registry

    async def get(self, path: str) -> Any:
        return (await self.ask("GET", path)).body

    async def ask(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"host": "localhost:8081", "content-type": "application/json", **(headers or {})}
        raw_path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
        }
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        text = sent[1]["body"].decode()
        names = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], json.loads(text) if text else None, names)

    async def register(self, subject: str, schema: object, **more: object) -> Answer:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return await self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **more})


@asynccontextmanager
async def registry_on(log: MemoryLog, door: Door | None = None) -> AsyncIterator[Client]:
    offload = SystemOffload()
    registry = Registry(MemoryReader(log), MemoryWriter(log), offload)
    registry.start()
    try:
        yield Client(App(registry, door or Door(loopback=True)), registry)
    finally:
        await registry.close()
        offload.close()


def play(story: Callable[[Client], Awaitable[None]], log: MemoryLog | None = None, door: Door | None = None) -> None:
    async def run() -> None:
        async with registry_on(log or MemoryLog(), door) as client:
            await story(client)

    asyncio.run(run())
