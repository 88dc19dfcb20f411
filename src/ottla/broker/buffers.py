"""Receive buffers, lent to connections only while they hold the beginning of a frame.

Most connections are idle most of the time, and phase one of a request ends before the next byte is read, so a few
buffers serve thousands of connections. A frame longer than a buffer gets one of its own, which grows as bytes arrive
and never on the word of the length field alone.

`queued.max.request.bytes` bounds both: the long frames, and, by itself, the buffers of the pool that are kept for the
rest of a frame. So whoever has a long frame half received never waits for those who have only begun one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

POOLED_BYTES = 256 * 1024
POOLED_MAX = 16
SPARE_BYTES_MAX = 2 * 1024 * 1024
SPARE_MAX = 4
"""So many buffers for long frames are kept when they come back: fresh memory costs more than what is read into it."""


class ReceiveBuffers:
    """A pool of equal buffers, and the budget (`queued.max.request.bytes`; negative is no limit)."""

    def __init__(self, private_bytes_max: int = -1) -> None:
        self._free: list[bytearray] = []
        self._spare: list[bytearray] = []
        self._private_bytes_max = private_bytes_max
        self._waiting: list[Callable[[], None]] = []
        self._held: set[int] = set()
        """The buffers of the pool, by their identity, that are kept for the rest of a frame."""
        self.is_short = False
        """Are as many of them kept as may be?"""
        self._waiting_to_hold: deque[Callable[[], None]] = deque()
        self._promised: dict[int, int] = {}
        """What each large buffer may grow to, by its identity."""
        self.private_bytes = 0
        """The sum of what was promised: the frames that are on their way, at their full length."""

    def lend(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(POOLED_BYTES)

    def hold(self, buffer: bytearray) -> bool:
        """May a connection keep its buffer until the rest of a frame has come? One that has grown it may."""
        if self._private_bytes_max < 0 or len(buffer) != POOLED_BYTES or id(buffer) in self._held:
            return True
        if self.is_short:
            return False
        self._held.add(id(buffer))
        self._count_held()
        return True

    def _count_held(self) -> None:
        self.is_short = (len(self._held) + 1) * POOLED_BYTES > self._private_bytes_max

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) == POOLED_BYTES:
            if len(self._free) < POOLED_MAX:
                self._free.append(buffer)
            if id(buffer) in self._held:
                self._held.discard(id(buffer))
                self._count_held()
                while self._waiting_to_hold and not self.is_short:
                    self._waiting_to_hold.popleft()()
            return
        self.private_bytes -= self._promised.pop(id(buffer))
        self._keep(buffer)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                retry()

    def grow(self, buffer: bytearray, wanted: int) -> bytearray | None:
        """A larger buffer, on the way to `wanted` bytes, that begins with the whole of `buffer`; none while the budget
        is spent. Who has been given one is given the rest when he needs it: if those who have part of their frame had
        to wait for each other, all would wait for ever."""
        promised = self._promised.pop(id(buffer), 0)
        if not promised and 0 <= self._private_bytes_max < self.private_bytes + wanted:
            return None
        if wanted > promised:
            self.private_bytes += wanted - promised
            promised = wanted
        larger = self._take(min(wanted, 2 * len(buffer)))
        larger[: len(buffer)] = buffer
        self._promised[id(larger)] = promised
        if len(buffer) == POOLED_BYTES:
            self.give_back(buffer)
        else:
            self._keep(buffer)
        return larger

    def _take(self, size: int) -> bytearray:
        """At least `size` bytes; more if there is a spare buffer, so that it need not grow again."""
        for index in range(len(self._spare) - 1, -1, -1):
            if len(self._spare[index]) >= size:
                return self._spare.pop(index)
        # By powers of two, so that what one frame leaves serves others.
        return bytearray(size if size > SPARE_BYTES_MAX else 1 << (size - 1).bit_length())

    def _keep(self, buffer: bytearray) -> None:
        if len(buffer) > SPARE_BYTES_MAX:
            return
        self._spare.append(buffer)
        if len(self._spare) > SPARE_MAX:
            self._spare.remove(min(self._spare, key=len))

    def when_held_by_fewer(self, retry: Callable[[], None]) -> None:
        """Call `retry`, once, when a buffer of the pool may be held again."""
        self._waiting_to_hold.append(retry)

    def when_freed(self, retry: Callable[[], None]) -> None:
        """Call `retry`, once, when some large buffer has come back."""
        self._waiting.append(retry)
