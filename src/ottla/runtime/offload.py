"""Threads for work that blocks but releases the interpreter: fsync, cold reads, big compressions, key derivation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadOffload:
    """Runs blocking work on a few threads, which start when first needed."""

    def __init__(self, threads_max: int = 4) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="ottla-offload")
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
