"""Producer ids, handed out one by one from blocks that the controller allocates (KIP-730).

A block is used up in memory only: what a node had left of it when it died is skipped, never given twice. Where the
controller gives none, whatever its reason, producers are not told that reason but to come again: as in Kafka, they hear
COORDINATOR_LOAD_IN_PROGRESS, which every client understands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ottla.errors import KafkaError

_log = logging.getLogger(__name__)

BlockSource = Callable[[], Awaitable[range]]


class ProducerIds:
    def __init__(self, next_block: BlockSource) -> None:
        self._next_block = next_block
        self._block = range(0)
        self._allocating = asyncio.Lock()

    @property
    def has_spare(self) -> bool:
        return bool(self._block)

    def take(self) -> int | None:
        """The next id, or none if a block must be asked for first."""
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def refill(self) -> None:
        """Ask for a block, unless there are ids left. Afterwards there may still be none to take."""
        async with self._allocating:  # Many producers may arrive at once; one block serves them.
            if not self._block:
                try:
                    self._block = await self._next_block()
                except KafkaError as error:
                    _log.warning("the controller gives no producer ids: %s", error)
