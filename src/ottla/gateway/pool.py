"""Clients that block, each lent to one piece of work at a time, in a thread: the event loop never waits for a cluster.

What the gateway and the console have in common. A client is made when none is idle, and used again by the next work;
one whose work failed with something else than an answer is given up, since nobody knows what is left on its
connections. Work that nobody waits for any more is ended all the same: its client is in use until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ottla.runtime.offload import SystemOffload


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
T = TypeVar("T")


class ClientPool(Generic[C]):
    """One a process; `close` it."""

    def __init__(self, make: Callable[[], C], most: int, *, answers: tuple[type[Exception], ...]) -> None:
        """So many clients at most. `answers` are the errors that are answers: their client is as good as before."""
        self._make = make
        self._answers = answers
        self._offload = SystemOffload(most)
        self._free = asyncio.Semaphore(most)
        self._idle: list[C] = []

    async def ask(self, work: Callable[[C], T]) -> T:
        """What `work` returns. Raises what it raises, `KafkaError` above all."""
        return await asyncio.shield(asyncio.ensure_future(self._lend(work)))

    async def run(self, work: Callable[[], T]) -> T:
        """The same for work that needs no client, but blocks."""
        return await self._offload.run(work)

    async def close(self) -> None:
        for client in self._idle:
            await self._offload.run(client.close)
        self._offload.close()

    async def _lend(self, work: Callable[[C], T]) -> T:
        async with self._free:
            client = self._idle.pop() if self._idle else self._make()
            try:
                result = await self._offload.run(lambda: work(client))
            except self._answers:
                self._idle.append(client)
                raise
            except BaseException:
                await self._offload.run(client.close)
                raise
            self._idle.append(client)
            return result
