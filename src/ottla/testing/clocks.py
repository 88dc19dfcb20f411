"""The clocks of a node whose time a test can move.

Only what grows old is moved: the wall clock, and the time that sessions, transactions and retention wait by
(`Runtime.ageing`). Nodes go on to watch one another, and their connections, by the machine's time: a week that passes
in a moment is no week of silence, and must not cost a broker its session or a follower its place in the ISR.
"""

from __future__ import annotations

from ottla.runtime.clock import SystemClock


class MovedClock:
    """The wall clock is ahead by what it was moved; the monotonic one is the machine's."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self._machine = SystemClock()
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return self._machine.wall_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._machine.monotonic()


class AgeingClock:
    """Both of its times are ahead by what `moved` was."""

    def __init__(self, moved: MovedClock) -> None:
        self._moved = moved

    def wall_ms(self) -> int:
        return self._moved.wall_ms()

    def monotonic(self) -> float:
        return self._moved.monotonic() + self._moved.ahead_ms / 1000
