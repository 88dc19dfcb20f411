"""Whoever talks to a coordinator, be it of a group or of a transactional id: how it is found, asked and found again."""

from __future__ import annotations

from typing import TypeVar

from ottla.errors import ErrorCode, Malformed
from ottla.model import TopicPartition
from ottla.sim.client import Lost, SimClient
from ottla.sim.history import History
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)

GROUP, TRANSACTION = 0, 1
"""The kinds of coordinator."""

ANOTHER_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

AGAIN = ANOTHER_COORDINATOR | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
}
"""What a coordinator says to whoever may ask the same again."""


class CoordinatorClient:
    """One who belongs to the coordinator of `key`, and may ask others, too."""

    def __init__(
        self,
        client: SimClient,
        key: str,
        kind: int,
        places: list[TopicPartition],
        history: History,
        request_timeout_s: float,
    ) -> None:
        self.client = client
        self.places = places
        """The partitions of the one topic that it works on."""
        self.history = history
        self._key = key
        self._kind = kind
        self._request_timeout_s = request_timeout_s

    async def ask(
        self, request: Message, response: type[M], timeout_s: float | None = None, *, version: int | None = None
    ) -> M | None:
        """Our coordinator's answer, if one comes; in the newest version, if none is asked for."""
        return await self.ask_of(self._key, self._kind, request, response, timeout_s, version=version)

    async def ask_of(
        self,
        key: str,
        kind: int,
        request: Message,
        response: type[M],
        timeout_s: float | None = None,
        *,
        version: int | None = None,
    ) -> M | None:
        client = self.client
        wire = await client.coordinator(key, kind)
        if wire is None:
            return None
        try:
            answer = await wire.call(request, response, timeout_s=timeout_s or self._request_timeout_s, version=version)
        except (Lost, Malformed):
            client.forget_coordinator(key, kind)
            return None
        if getattr(answer, "error_code", 0) in ANOTHER_COORDINATOR:
            client.forget_coordinator(key, kind)
        return answer

    async def pause(self) -> None:
        await self.client.sleep(0.02 + 0.2 * self.client.random.random())

    def complain(self, what: str, code: int) -> None:
        """Nobody should ever hear that."""
        self.history.unexpected.append(f"{what} by {self.client.name} ({self._key}): {ErrorCode(code).name}")
