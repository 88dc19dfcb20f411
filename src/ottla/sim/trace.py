"""What happened: a hash of everything that nodes were told, and a story of what mattered."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sim.loop import Scheduler

_RECEIVED = Struct(">dIi").pack


class Trace:
    """Two runs of one seed have the same hash, or something in them depends on more than the seed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._hash = blake2b(digest_size=8)
        self.story: list[tuple[float, str, str]] = []
        """(when, who, what)."""
        self.messages = 0

    def received(self, now: float, connection: int, data: bytes) -> None:
        """Bytes reached the end of a connection."""
        self.messages += 1
        update = self._hash.update
        update(_RECEIVED(now, connection, len(data)))
        update(data)

    def note(self, who: str, what: str) -> None:
        """Something worth telling."""
        now = self._scheduler.now
        self.story.append((now, who, what))
        self._hash.update(f"{now:.9f} {who} {what}".encode())

    @property
    def digest(self) -> str:
        return self._hash.copy().hexdigest()
