"""Waiting until this node's metadata says something. Told of every publication, after it was acted upon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.metadata.images import MetadataImage
from ottla.runtime.timers import TimerWheel

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta

Holds = Callable[[MetadataImage], bool]


class ImageWatch:
    def __init__(self, timers: TimerWheel) -> None:
        self._timers = timers
        self._waiting: dict[asyncio.Future[bool], Holds] = {}

    async def until(self, holds: Holds, image: MetadataImage, timeout_ms: int) -> bool:
        """Does `holds` become true of the metadata in time? `image` is the newest that has been acted upon."""
        if holds(image):
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[future] = holds
        timer = self._timers.after(timeout_ms, lambda: _settle(future, False))
        try:
            return await future
        finally:
            timer.cancel()
            del self._waiting[future]

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        for future, holds in self._waiting.items():
            if not future.done() and holds(image):
                _settle(future, True)


def _settle(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)
