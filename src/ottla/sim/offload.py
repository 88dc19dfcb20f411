"""Blocking work without threads: it runs in place, later, and takes as long as the disk says it took.

As with a pool of threads, work starts in the order in which it was handed in, at most so many at once, and may end in
another order. What it does, it does at one moment between the two; before that a crash finds nothing of it done, and
after it, until the answer comes, everything. The same holds for work that is done apart, which has a place of its own.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from ottla.runtime.seams import Apart, WorkStopped
from ottla.sim.loop import NodeDied, SimLoop

T = TypeVar("T")

START_S = 0.0001
"""How long a free thread takes to begin, at most."""


class SimOffload:
    def __init__(self, loop: SimLoop, random: Random, threads_max: int = 4) -> None:
        self._loop = loop
        self._random = random
        self._free = threads_max
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self.working = False
        """Does the code that runs now run in a thread?"""
        self._took_s = 0.0
        self._apart: asyncio.Future[Any] | None = None

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if self._free:
            self._free -= 1
            self._begin(work, future)
        else:
            self._queue.append((work, future))
        return future

    def run_apart(
        self, work: Callable[[Apart], T], *, bytes_per_second: float, on_report: Callable[[Any], None]
    ) -> Awaitable[T]:
        assert self._apart is None or self._apart.done(), "one work at a time is done apart"
        future: asyncio.Future[T] = self._loop.create_future()
        self._apart = future
        apart = _SimApart(self, bytes_per_second)

        def begin() -> T | None:
            return None if future.done() else work(apart)

        def answer(result: T | None, failure: Exception | None) -> None:
            for fact in apart.facts:
                if not future.done():
                    on_report(fact)
            self._settle(future, result, failure)

        loop = self._loop
        delay_s = START_S * self._random.random()
        loop.at(loop.scheduler.now + delay_s, self._work, begin, answer)
        return future

    def stop_apart(self) -> None:
        if self._apart is not None and not self._apart.done():
            self._apart.set_exception(WorkStopped("stopped"))

    def close(self) -> None:
        self.stop_apart()

    def on_sync(self, seconds: float) -> None:
        """The disk is busy: a thread waits, or the loop itself."""
        if self.working:
            self._took_s += seconds
        else:
            self._loop.stall(seconds)

    def _begin(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        loop = self._loop

        def answer(result: Any, failure: Exception | None) -> None:
            self._settle(future, result, failure)
            if self._queue:
                self._begin(*self._queue.popleft())
            else:
                self._free += 1

        loop.at(loop.scheduler.now + START_S * self._random.random(), self._work, work, answer)

    def _work(self, work: Callable[[], Any], answer: Callable[[Any, Exception | None], None]) -> None:
        loop = self._loop
        self.working = True
        self._took_s = 0.0
        events._set_running_loop(None)  # A thread has none.
        result: Any = None
        failure: Exception | None = None
        try:
            result = work()
        except NodeDied:
            raise
        except Exception as error:
            failure = error
        finally:
            self.working = False
            events._set_running_loop(loop)
        loop.at(loop.scheduler.now + self._took_s, answer, result, failure)

    def take(self, seconds: float) -> None:
        """The work that runs now takes that much longer."""
        self._took_s += seconds

    def _settle(self, future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
        if not future.done():
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)


class _SimApart:
    def __init__(self, offload: SimOffload, bytes_per_second: float) -> None:
        self._offload = offload
        self._bytes_per_second = bytes_per_second
        self.facts: list[object] = []

    def report(self, fact: object) -> None:
        self.facts.append(fact)

    def spent(self, size: int) -> None:
        self._offload.take(size / self._bytes_per_second)
