"""`with` and `async with` around a cluster: it is there inside, and gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, TypeVar

from ottla.testing.handles import Cluster
from ottla.testing.securing import Security

H = TypeVar("H")


class Embedding(Generic[H]):
    """Enters once, with either. `pick` says what of the cluster the test gets."""

    def __init__(
        self, nodes: int, settings: Mapping[str, str], security: Security, pick: Callable[[Cluster], H]
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._security = security
        self._pick = pick
        self._cluster: Cluster | None = None

    def __enter__(self) -> H:
        assert self._cluster is None, "one with statement for each node"
        self._cluster = Cluster(self._nodes, self._settings, self._security)
        return self._pick(self._cluster)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cluster, self._cluster = self._cluster, None
        assert cluster is not None
        cluster.close()

    async def __aenter__(self) -> H:
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Nobody wants it any more, and nobody else would end it.
            await asyncio.wait([starting])
            if starting.exception() is None:
                await asyncio.to_thread(self.__exit__, None, None, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))


def as_settings(settings: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, str]:
    """Kafka's keys and values as text; in a keyword `_` stands for a dot."""
    named = {**(settings or {}), **{key.replace("_", "."): value for key, value in more.items()}}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in named.items()}
