"""Threads for work that blocks but releases the interpreter (fsync, cold reads, big compressions, key derivation), and
a process for what would take the processor away from the loop (compaction)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ottla.runtime.seams import Apart

T = TypeVar("T")


class SystemOffload:
    """Runs blocking work on a few threads, which start when first needed, and long work in a process that lives as
    long as the work does."""

    def __init__(self, threads_max: int = 4) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None
        self._stop_apart: Callable[[], None] | None = None

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="ottla-offload")
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_apart(
        self, work: Callable[[Apart], T], *, bytes_per_second: float, on_report: Callable[[Any], None]
    ) -> T:
        from ottla.runtime.apart import WorkerProcess

        assert self._stop_apart is None, "one work at a time is done apart"
        loop = asyncio.get_running_loop()

        def pass_on(fact: Any) -> None:
            loop.call_soon_threadsafe(on_report, fact)

        worker = WorkerProcess(work, bytes_per_second)
        self._stop_apart = worker.stop
        # A thread of its own waits for the process: it may take long, and the others have better things to do.
        with ThreadPoolExecutor(1, thread_name_prefix="ottla-apart") as waiting:
            try:
                result: T = await loop.run_in_executor(waiting, worker.follow, pass_on)
                return result
            finally:
                worker.stop()
                self._stop_apart = None

    def stop_apart(self) -> None:
        if self._stop_apart is not None:
            self._stop_apart()

    def close(self) -> None:
        self.stop_apart()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
