"""The registry at work: it follows the log, answers from what it has read, and writes when it is its turn.

    loading ──► serving ──► closed        a log that began anew (the topic was deleted) ──► loading

What is asked is answered from the state as it is known here, which may be a moment behind; an answer that something
does not exist is given only after the newest of the log was read. Before something is changed, the state is brought up
to the end of the log; the operation decides on it, and its records are appended as one transaction by whoever is the
writer. The answer leaves when the records have come back through the log, so that whoever changed
something sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.gateway.http import Refusal
from ottla.gateway.registry import refusals
from ottla.gateway.registry.operations import Operation, Outcome
from ottla.gateway.registry.routes import Ask, Target
from ottla.gateway.registry.state import RegistryState
from ottla.gateway.registry.stored import Entry
from ottla.gateway.registry.topic import SCHEMAS_TOPIC, Fenced, Portion, SchemaReader, SchemaWriter, Unsure
from ottla.model import Uuid
from ottla.runtime.seams import Offload

T = TypeVar("T")

_log = logging.getLogger(__name__)

READ_WAIT_MS = 500
PAUSE_S = 0.2
ANSWER_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 3.0
TAKEOVERS_MAX = 20
"""Registries that all write take the pen from each other; nobody loses it so often by chance."""


class Reader(Protocol):
    def ensure_topic(self) -> None: ...
    def earliest_offset(self) -> int: ...
    def end_offset(self) -> int: ...
    def read(self, offset: int, max_wait_ms: int) -> Portion: ...
    def close(self) -> None: ...


class Writer(Protocol):
    @property
    def is_writer(self) -> bool: ...
    def end_offset(self) -> int: ...
    def take_over(self) -> None: ...
    def append(self, entries: list[Entry]) -> int: ...
    def close(self) -> None: ...


class Registry:
    """One a process. `start`, then `answer` as often as one likes, then `close`."""

    def __init__(self, reader: Reader, writer: Writer, offload: Offload) -> None:
        self._reader = reader
        self._writer = writer
        self._offload = offload
        self._state = RegistryState()
        self._position = 0
        self._topic_id: Uuid | None = None
        self._moved = asyncio.Event()
        self._writing = asyncio.Lock()
        self._watched: dict[int, bool] = {}
        """Offsets whose fate is asked about: were they read as committed?"""
        self._loaded = False
        self._beginnings = 0
        """How often the log was begun, so that nobody waits for an offset of another one."""
        self._failure: Exception | None = None
        self._closing = False
        self._following: asyncio.Task[None] | None = None

    @classmethod
    def over(cls, settings: ClientSettings, offload: Offload, topic: str = SCHEMAS_TOPIC) -> Registry:
        return cls(SchemaReader(settings, topic), SchemaWriter(settings, topic), offload)

    def start(self) -> None:
        self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        self._closing = True
        if self._following is not None:
            # A read that is under way ends by itself, soon.
            _, waiting = await asyncio.wait([self._following], timeout=CLOSE_TIMEOUT_S)
            for task in waiting:
                task.cancel()
        await self._offload.run(self._reader.close)
        await self._offload.run(self._writer.close)

    # Answering.

    async def answer(self, target: Target) -> Any:
        """Raises `Refusal`."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._until(lambda: self._loaded)
                if isinstance(target, Ask):
                    return await self._ask(target)
                # It goes on if nobody waits any more: what has been begun at the log is ended there.
                return await asyncio.shield(asyncio.ensure_future(self._change(target.operation)))
        except TimeoutError:
            raise refusals.timed_out("The schemas' topic did not answer in time: is the cluster up?") from None
        except KafkaError as error:
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                raise refusals.schema_too_large() from None
            raise refusals.store_failed(
                f"The schemas' topic cannot be used: {error.message or error.code.name}"
            ) from None

    async def _ask(self, target: Ask) -> Any:
        try:
            return target.question(self._state)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
        # It may have been registered elsewhere a moment ago.
        await asyncio.shield(asyncio.ensure_future(self._refresh()))
        return target.question(self._state)

    async def _refresh(self) -> None:
        async with self._writing:
            await self._catch_up()

    async def _change(self, operation: Operation) -> Any:
        with contextlib.suppress(Refusal):
            known = operation(self._state)
            if not known.entries:
                return known.answer
        async with self._writing:
            for _ in range(TAKEOVERS_MAX):
                outcome = await self._decide(operation)
                if not outcome.entries or await self._append(outcome):
                    return outcome.answer
        raise refusals.store_failed("Other registries write without a pause: try again.")

    async def _decide(self, operation: Operation) -> Outcome:
        """What the newest state makes of it. If there is something to write, we are the writer."""
        await self._catch_up()
        outcome = operation(self._state)
        if outcome.entries and not self._writer.is_writer:
            await self._offload.run(self._writer.take_over)
            # Only now can nobody else write any more: what was decided before is decided again.
            await self._catch_up()
            outcome = operation(self._state)
        return outcome

    async def _append(self, outcome: Outcome) -> bool:
        """Is it in the log, and read?"""
        try:
            end_offset = await self._offload.run(partial(self._writer.append, list(outcome.entries)))
        except Fenced:
            return False
        except Unsure as unsure:
            self._watched[unsure.offset] = False
            try:
                # Once we are the writer again, the transaction has ended one way or the other.
                await self._offload.run(self._writer.take_over)
                await self._catch_up()
                return self._watched[unsure.offset]
            finally:
                del self._watched[unsure.offset]
        await self._until(lambda: self._position >= end_offset)
        return True

    async def _catch_up(self) -> None:
        end_offset = await self._offload.run(self._writer.end_offset)
        await self._until(lambda: self._position >= end_offset)

    async def _until(self, reached: Callable[[], bool]) -> None:
        beginnings = self._beginnings
        while not reached():
            if self._failure is not None or (self._loaded and beginnings != self._beginnings):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The schemas' topic cannot be followed.")
            await self._moved.wait()

    # Following the log.

    async def _follow(self) -> None:
        try:
            while not self._closing:
                try:
                    if not self._loaded:
                        await self._load()
                    await self._read()
                except (KafkaError, Malformed) as error:
                    if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._begin_anew()
                    _log.info("The schemas' topic cannot be read just now: %r", error)
                    await asyncio.sleep(PAUSE_S)
        except Exception as error:
            _log.exception("The schemas' topic is not followed any more")
            self._failure = error
            self._wake()

    async def _read(self) -> None:
        self._take(await self._offload.run(partial(self._reader.read, self._position, READ_WAIT_MS)))

    async def _load(self) -> None:
        await self._offload.run(self._reader.ensure_topic)
        self._position = await self._offload.run(self._reader.earliest_offset)
        end_offset = await self._offload.run(self._reader.end_offset)
        while self._position < end_offset and not self._closing:
            await self._read()
        self._loaded = True
        self._wake()

    def _take(self, portion: Portion) -> None:
        if self._topic_id is not None and portion.topic_id != self._topic_id:
            # A topic of the same name, and none of the records that we know.
            self._begin_anew()
            return
        self._topic_id = portion.topic_id
        for record in portion.records:
            if record.offset in self._watched:
                self._watched[record.offset] = True
            self._state.replay(record.key, record.value, record.timestamp_ms)
        if portion.next_offset > self._position:
            self._position = portion.next_offset
            self._wake()

    def _begin_anew(self) -> None:
        self._state, self._topic_id, self._loaded = RegistryState(), None, False
        self._beginnings += 1

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
