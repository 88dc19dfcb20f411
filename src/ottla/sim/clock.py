"""A node's two clocks: a wall clock that may be stepped, and a monotonic one that may run fast or slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.sim.loop import Scheduler


class SimClock:
    """Lives as long as the machine: a restarted process finds the clocks where they are, a rebooted one keeps the wall
    clock."""

    __slots__ = ("_anchor", "_base", "_highest_ms", "_scheduler", "_wall_offset_ms", "rate", "steps")

    def __init__(self, scheduler: Scheduler, *, wall_ms: int, uptime_s: float = 1000.0, rate: float = 1.0) -> None:
        self._scheduler = scheduler
        self._anchor = scheduler.now
        self._base = uptime_s
        self.rate = rate
        """Seconds of this clock in a second of the simulation."""
        self._wall_offset_ms = wall_ms - uptime_s * 1000
        self._highest_ms = wall_ms
        self.steps = 0
        """How often the wall clock was set."""

    def monotonic(self) -> float:
        return self._base + (self._scheduler.now - self._anchor) * self.rate

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000 + self._wall_offset_ms)

    @property
    def highest_wall_ms(self) -> int:
        """The latest that it has ever been, by the wall clock."""
        return max(self._highest_ms, self.wall_ms())

    def step(self, milliseconds: float) -> None:
        """Somebody set the wall clock."""
        self._highest_ms = self.highest_wall_ms
        self.steps += 1
        self._wall_offset_ms += milliseconds

    def drift(self, rate: float) -> None:
        """From now on both clocks run at `rate`."""
        self._base = self.monotonic()
        self._anchor = self._scheduler.now
        self.rate = rate
