"""A topic as server-sent events: what `curl -N` and a browser's EventSource follow.

    id: 0:17,1:4                      where each partition goes on, for who comes back with Last-Event-ID
    data: {"topic_name":"orders",…}   a record, in JSON on one line

A comment is sent when nothing has come for a while, so that a peer that is gone is noticed. Each tail waits in a thread
of its own with a `Lane` of its own, so there are few of them; consumers in numbers speak Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.admin.offsets import EARLIEST, LATEST
from ottla.gateway.http import Refusal
from ottla.gateway.rest.cluster import Found, Lane
from ottla.gateway.rest.records import Shape, show_record
from ottla.runtime.seams import Offload

if TYPE_CHECKING:
    from ottla.gateway.rest.api import Start

T = TypeVar("T")

TAILS_MAX = 32
CONTENT_TYPE = "text/event-stream; charset=utf-8"
WAIT_MS = 1_000
"""For new records, before the cluster is asked again."""
QUIET_READS_MAX = 10
"""So many times nothing, and a comment is sent."""
READ_BYTES = 1024 * 1024
PARTITIONS_MAX = 200
_COMMENT = b": nothing new\n\n"


class Tail:
    """`begin`, then `chunk` again and again, then `close`."""

    def __init__(
        self, lane: Lane, offload: Offload, topic: str, shape: Shape, *, on_closed: Callable[[], None]
    ) -> None:
        self._lane = lane
        self._offload = offload
        self._topic = topic
        self._shape = shape
        self._on_closed = on_closed
        self._positions: dict[int, int] = {}
        self._reading: asyncio.Future[Any] | None = None

    async def begin(self, start: Start, partition: int | None, resumed: Mapping[int, int]) -> None:
        """Find out where to begin. Raises `KafkaError` or `Refusal`."""

        def look() -> dict[int, int]:
            partitions = list(self._lane.topic(self._topic).partitions)
            if partition is not None:
                if partition not in partitions:
                    raise Refusal(40403, f"The topic {self._topic} has no partition {partition}.")
                partitions = [partition]
            if len(partitions) > PARTITIONS_MAX:
                raise Refusal(400, f"The topic has more than {PARTITIONS_MAX} partitions: name one with partition=N.")
            fresh = [each for each in partitions if each not in resumed]
            found = start.offsets(self._lane, self._topic, fresh) if fresh else {}
            back = [each for each in partitions if each in resumed]
            first, end = (self._lane.offsets(self._topic, back, when) for when in (EARLIEST, LATEST))
            # Retention may have passed by whoever was away for long, and the topic may be another by the same name.
            return found | {each: min(max(resumed[each], first[each]), end[each]) for each in back}

        self._positions = await self._run(look)

    async def chunk(self) -> bytes:
        """The next events, waited for; a comment if there are none for long."""
        for _ in range(QUIET_READS_MAX):
            found = await self._run(
                lambda: self._lane.follow(self._topic, self._positions, bytes_max=READ_BYTES, wait_ms=WAIT_MS)
            )
            if events := b"".join(self._events(found)):
                return events
        return _COMMENT

    def _events(self, found: Mapping[int, Found]) -> list[bytes]:
        events: list[bytes] = []
        for partition, (records, next_offset) in found.items():
            for record in records:
                self._positions[partition] = record.offset + 1
                position = ",".join(f"{each}:{offset}" for each, offset in sorted(self._positions.items()))
                shown = json.dumps(show_record(self._topic, partition, record, self._shape), separators=(",", ":"))
                events.append(f"id: {position}\ndata: {shown}\n\n".encode())
            self._positions[partition] = next_offset
        return events

    async def _run(self, work: Callable[[], T]) -> T:
        """In the tail's thread; whoever is called off does not take the lane from under it."""
        reading = asyncio.ensure_future(_awaited(self._offload.run(work)))
        self._reading = reading
        return await asyncio.shield(reading)

    async def close(self) -> None:
        if self._reading is not None:
            with contextlib.suppress(Exception):
                await self._reading
        await self._offload.run(self._lane.close)
        self._on_closed()


async def _awaited(work: Awaitable[T]) -> T:
    return await work
