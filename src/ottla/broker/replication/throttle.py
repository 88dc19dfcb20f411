"""How fast replicas may be copied: Kafka's replication throttle (KIP-73), on either side.

`ReplicationThrottle` is arithmetic alone: bytes go in with their time, and it says whether the rate is exceeded. The
rate is taken over a window of samples that slides, `replication.quota.window.num` of
`replication.quota.window.size.seconds` each, and at least one sample long, so that a quiet spell lets no more than a
sample's worth through at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

UNLIMITED = (1 << 63) - 1


class ReplicationThrottle:
    """Times are monotonic milliseconds."""

    __slots__ = ("_samples", "_samples_max", "_total", "_window_ms", "rate")

    def __init__(self, rate: int = UNLIMITED, *, samples: int = 11, window_ms: int = 1000) -> None:
        self.rate = rate
        """The most bytes a second."""
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: deque[list[int]] = deque()
        """When each began, and how many bytes it has seen."""
        self._total = 0

    @property
    def is_limited(self) -> bool:
        return self.rate != UNLIMITED

    def record(self, size: int, now_ms: int) -> None:
        """`size` bytes of throttled replicas have passed. They are counted even beyond the rate."""
        samples = self._samples
        self._purge(now_ms)
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size
        self._total += size

    def measured(self, now_ms: int) -> float:
        """Bytes a second over the window."""
        self._purge(now_ms)
        return self._total * 1000 / self._span_ms(now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self.is_limited and self.measured(now_ms) > self.rate

    def allowance(self, now_ms: int) -> int:
        """How many bytes may pass now without exceeding the rate."""
        if not self.is_limited:
            return UNLIMITED
        self._purge(now_ms)
        return max(0, self.rate * self._span_ms(now_ms) // 1000 - self._total)

    def wait_ms(self, now_ms: int) -> int:
        """When to look again if the rate is exceeded: not before it can have fallen below, nor much later."""
        if not self.is_limited:
            return 0
        self._purge(now_ms)
        if self.rate == 0:
            return self._window_ms
        below_ms = self._total * 1000 // self.rate - self._span_ms(now_ms) + 1
        return min(max(below_ms, 1), self._window_ms)

    def _span_ms(self, now_ms: int) -> int:
        return max(now_ms - self._samples[0][0], self._window_ms) if self._samples else self._window_ms

    def _purge(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._samples_max * self._window_ms
        while samples and samples[0][0] <= oldest_ms:
            self._total -= samples.popleft()[1]


def is_throttled(listed: Iterable[str], index: int, replica: int) -> bool:
    """Is the partition's replica in a topic's list of throttled ones (`partition:broker`, or `*` for all)?"""
    return any(entry == "*" or entry == f"{index}:{replica}" for entry in listed)
