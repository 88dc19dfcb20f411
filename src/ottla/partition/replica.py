"""What a leader knows of one follower, all of it from the follower's own fetches in this leader epoch."""

from __future__ import annotations

from typing import NamedTuple

NEVER = -(1 << 62)


class LiveBroker(NamedTuple):
    """A registered broker that is not fenced, as the metadata has it."""

    epoch: int
    shutting_down: bool = False


class Heard:
    """When a follower was last heard of, for all partitions that it copies with one fetch session.

    A session's request need not name a partition of which there is nothing new to say (KIP-227), and yet tells that the
    follower is where it was. Whoever keeps the session moves `ms`, and settles those of which it does not hold.
    """

    __slots__ = ("ms",)

    def __init__(self) -> None:
        self.ms = NEVER


class FollowerProgress:
    """Owned by `PartitionLeader`, but for the time at which its follower was heard last (`Heard`): a session that names
    thousands of partitions sets that once, and `settle`s each when it looks. Times are monotonic milliseconds."""

    __slots__ = ("_caught_up_ms", "_heard", "broker_epoch", "fetched_ms", "leader_end_at_fetch", "log_end", "log_start")

    def __init__(self, *, caught_up_ms: int = NEVER) -> None:
        self.log_end = -1
        """Everything before it is in the follower's log; -1 until it fetches."""
        self.log_start = -1
        self.broker_epoch: int | None = None
        """The incarnation that sent the last fetch: -1 if its version has no such field, None before the first."""
        self.fetched_ms = NEVER
        self.leader_end_at_fetch = -1
        self._caught_up_ms = caught_up_ms
        self._heard: Heard | None = None
        """Moves on with each request, while the follower is where the leader's log ended at its last fetch."""

    @property
    def caught_up_ms(self) -> int:
        """The last moment at which it is known to have held all that the leader held."""
        heard = self._heard
        return self._caught_up_ms if heard is None else max(self._caught_up_ms, heard.ms)

    def settle(self) -> None:
        """What is heard of the follower from now on is not about this partition, unless it names it."""
        if self._heard is not None:
            self._caught_up_ms = self.caught_up_ms
            self.fetched_ms = max(self.fetched_ms, self._heard.ms)
            self._heard = None

    def on_fetch(
        self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int, heard: Heard | None = None
    ) -> None:
        """`leader_end` is the leader's log end before the read: what is appended meanwhile is not held against it.

        A follower that now has what the leader had at its last fetch was caught up then. So one that is always a little
        behind, because the leader appends all the time, counts as in sync.
        """
        self.settle()
        if offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
            self._heard = heard
        elif offset >= self.leader_end_at_fetch:
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.log_end = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_at_fetch = max(self.leader_end_at_fetch, leader_end)

    def is_eligible(self, broker: LiveBroker | None) -> bool:
        """May it join the in-sync set: alive, here to stay (KIP-841), and the same incarnation that fetched (KIP-903)?

        A fetch of a version without broker epochs is taken at its word, as in Kafka.
        """
        if broker is None or broker.shutting_down or self.broker_epoch is None:
            return False
        return self.broker_epoch in (-1, broker.epoch)
