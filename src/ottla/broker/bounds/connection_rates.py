"""How many peers a second are let in: `max.connection.creation.rate`, of the node and of each listener (KIP-612).

Nobody is refused. A listener over its rate stops accepting for a while, and its peers wait in the backlog. Owns one
bucket for all broker listeners, one for all controller listeners (which Kafka has in a server of their own), and one
for each listener. Driven by `Connections`, which tells of every peer, and by the node, which hands in the listeners.

As in Kafka, the rate is meant over a window, so a node that was quiet takes a burst first; and one pause is never
longer than a sample of that window. The listener between brokers does not wait for the clients of the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.runtime import Clock, Listener
from ottla.runtime.timers import TimerWheel

UNLIMITED = 2**31 - 1


class TokenBucket:
    """Fills by `rate` tokens a second up to `burst`. Whoever takes one too many learns how long to wait for it."""

    __slots__ = ("_burst", "_filled_s", "_rate", "_tokens")

    def __init__(self, now_s: float) -> None:
        self._rate = self._burst = self._tokens = 0.0
        self._filled_s = now_s

    def set_rate(self, rate: float, burst: float, now_s: float) -> None:
        """A larger burst is there at once; a debt stays, and is paid at the new rate."""
        self._fill(now_s)
        self._tokens = min(self._tokens + max(0.0, burst - self._burst), burst)
        self._rate, self._burst = rate, burst

    def take(self, now_s: float, wait_s_max: float) -> float:
        """Take one token; the seconds until the bucket is out of debt, 0 if it is not in debt."""
        self._fill(now_s)
        self._tokens -= 1
        if self._tokens >= 0:
            return 0.0
        wait_s = min(-self._tokens / self._rate, wait_s_max) if self._rate else wait_s_max
        # What the longest wait does not pay is forgiven, so that a burst cannot keep peers out for minutes.
        self._tokens = -wait_s * self._rate
        return wait_s

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._tokens + (now_s - self._filled_s) * self._rate, self._burst)
        self._filled_s = now_s


class ConnectionRates:
    """One instance a node."""

    def __init__(self, clock: Clock, timers: TimerWheel) -> None:
        self._clock = clock
        self._timers = timers
        self._listeners: dict[str, Listener] = {}
        self._server_of: dict[str, str] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._exempt = ""
        self._wait_s_max = 1.0
        self._limited = False

    def watch(self, name: str, listener: Listener, *, on_controller: bool) -> None:
        self._listeners[name] = listener
        self._server_of[name] = "controller" if on_controller else "broker"

    def set_limits(
        self, *, node_rate: int, listener_rates: Mapping[str, int], exempt: str, window_s: int, samples: int
    ) -> None:
        """From now on. The rates are over `samples` samples of `window_s` seconds, of which the newest is unfinished;
        `exempt` names the listener that only its own rate holds back."""
        self._limited = node_rate < UNLIMITED or any(rate < UNLIMITED for rate in listener_rates.values())
        if not self._limited:
            return
        self._exempt = exempt
        self._wait_s_max = float(window_s)
        now_s = self._clock.monotonic()
        wanted = {"broker": node_rate, "controller": node_rate}
        wanted |= {f"listener {name}": rate for name, rate in listener_rates.items()}
        for name, rate in wanted.items():
            bucket = self._buckets.get(name)
            if bucket is None:
                bucket = self._buckets[name] = TokenBucket(now_s)
            bucket.set_rate(rate, rate * max(1, samples - 1) * window_s, now_s)

    def on_accepted(self, name: str) -> None:
        """A peer came to the listener `name`: close its door for a while if that was one too many."""
        if not self._limited:
            return
        listener = self._listeners.get(name)
        if listener is None:
            return
        now_s = self._clock.monotonic()
        wait_s = 0.0
        if bucket := self._buckets.get(f"listener {name}"):
            wait_s = bucket.take(now_s, self._wait_s_max)
        server = self._server_of[name]
        alone = sum(other == server for other in self._server_of.values()) == 1
        if name != self._exempt or alone:
            wait_s = max(wait_s, self._buckets[server].take(now_s, self._wait_s_max))
        if wait_s > 0:
            listener.pause()
            self._timers.after(wait_s * 1000, listener.start)
