"""Threads that ask the cluster, so that the event loop of the pages never waits: each has a client of its own.

A `BlockingClient` belongs to one thread, so it lives as long as its thread does. Work that fails with something else
than an answer of the cluster takes its client along: nobody knows what is left on its connections.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.errors import KafkaError

T = TypeVar("T")

THREADS_MAX = 6


class Workers:
    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="console")
        self._own = threading.local()
        self._clients: list[BlockingClient] = []

    async def ask(self, work: Callable[[BlockingClient], T]) -> T:
        """What `work` returns. Raises what it raises, `KafkaError` above all."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, work)

    async def run(self, work: Callable[[], T]) -> T:
        """The same for work that needs no cluster, but blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for client in self._clients:
            client.close()

    def _run(self, work: Callable[[BlockingClient], T]) -> T:
        client: BlockingClient | None = getattr(self._own, "client", None)
        if client is None:
            client = self._own.client = BlockingClient(self.settings)
            self._clients.append(client)
        try:
            return work(client)
        except KafkaError:
            raise
        except BaseException:
            client.close()
            self._clients.remove(client)
            self._own.client = None
            raise
