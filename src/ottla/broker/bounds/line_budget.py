"""How much of the log belongs to strangers: what anybody can cause as often as he likes is told so often a second.

The rest is counted, and the count is told when there is room again. Asked by the audit log, by the connections that are
closed and by the logins that fail.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime import Clock


class LineBudget:
    def __init__(self, clock: Clock, lines_per_second_max: int, tell_left_out: Callable[[int], None]) -> None:
        self._clock = clock
        self._lines_max = lines_per_second_max
        self._tell_left_out = tell_left_out
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def may_tell(self) -> bool:
        """Is there room for one more line now? If not, it is counted as left out."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                self._tell_left_out(left_out)
        self._lines += 1
        if self._lines <= self._lines_max:
            return True
        self._left_out += 1
        return False
