"""An event loop whose clock jumps: when nothing is ready it goes to the next timer, and seconds cost none.

For whatever has its disk, its network and its clock in memory. A test on it does not depend on how busy the machine is:
time passes only when nobody has anything left to do.
"""

from __future__ import annotations

import asyncio
import selectors


class _JumpingSelector(selectors.DefaultSelector):
    """Does not sleep: the time that it would have slept has passed at once."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen again"
            self.now_s += max(0.0, timeout)
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s
