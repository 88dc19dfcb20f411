"""Blocking work without threads: it runs in place, later, and takes as long as the disk says it took.

As with a pool of threads, work starts in the order in which it was handed in, at most so many at once, and may end in
another order. What it does, it does at one moment between the two; before that a crash finds nothing of it done, and
after it, until the answer comes, everything.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

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

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        if self._free:
            self._free -= 1
            self._begin(work, future)
        else:
            self._queue.append((work, future))
        return future

    def close(self) -> None:
        pass

    def on_sync(self, seconds: float) -> None:
        """The disk is busy: a thread waits, or the loop itself."""
        if self.working:
            self._took_s += seconds
        else:
            self._loop.stall(seconds)

    def _begin(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        loop = self._loop
        loop.at(loop.scheduler.now + START_S * self._random.random(), self._work, work, future)

    def _work(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
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
        loop.at(loop.scheduler.now + self._took_s, self._finish, future, result, failure)

    def _finish(self, future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
        if not future.done():
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
        if self._queue:
            self._begin(*self._queue.popleft())
        else:
            self._free += 1
