"""What a follower's fetch session remembers besides: which of its partitions have anything to say.

A follower copies hundreds of partitions over one session, and most of them are quiet most of the time. So a session is
told what moves (`on_append`, `on_watermark`), and a request looks only at that and at what it names itself: it costs
what has changed, not what there is. That a request came tells of every quiet partition that its follower is still
there; the leader's machines read that from one clock that they share (`Heard`).

Its invariant: a partition that is not in `stale` was read to its end without an error, by a follower that is in sync,
and its follower's progress goes by `heard`. Driven by the replica manager and `api/fetch`.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.fetching.fetch_sessions import FetchPartition, FetchSession
from ottla.broker.hosted import HostedPartition
from ottla.partition import Heard
from ottla.wire.fetch_codec import NO_WATERMARK, PartitionKey, Wanted


class WaitingFetch(Protocol):
    """A follower's request that waits for something to move (`api/fetch`)."""

    def look_again(self) -> None:
        """Something moved. If that is enough, answer."""
        ...

    def finish(self) -> None:
        """Answer with what there is."""
        ...


class FollowerSession(FetchSession):
    """One follower's session, or that of a single request without one (`session_id` is 0)."""

    PRIVILEGED = True

    __slots__ = ("_attached", "_waiting", "heard", "stale", "wants_watermark")

    def __init__(self, session_id: int, *, by_id: bool, replica_id: int, now_ms: int) -> None:
        super().__init__(session_id, by_id=by_id, replica_id=replica_id, now_ms=now_ms)
        self.heard = Heard()
        self.stale: dict[FetchPartition, None] = {}
        """To be looked at by the next request, in order."""
        self.wants_watermark = False
        """Is the follower to hear of a higher watermark at once (KIP-1166)?"""
        self._attached: dict[HostedPartition, FetchPartition] = {}
        self._waiting: WaitingFetch | None = None

    # Requests.

    def update(self, wanted: list[Wanted], forgotten: list[PartitionKey]) -> int:
        for key in forgotten:
            remembered = self.partitions.get(key)
            if remembered is not None:
                self._let_go(remembered)
        grown = super().update(wanted, forgotten)
        for each in wanted:
            remembered = self.partitions.get((each.topic, each.partition))
            if remembered is not None:
                self.stale[remembered] = None
            if each.high_watermark != NO_WATERMARK:
                self.wants_watermark = True
        return grown

    def take_stale(self) -> list[FetchPartition]:
        """What there is to look at. Whatever is not read to its end comes back by `keep`."""
        stale, self.stale = self.stale, {}
        return list(stale)

    def on_request(self, now_ms: int) -> list[FetchPartition]:
        """A request came, and tells of all partitions that are quiet that they are still copied.

        One that waits is answered first: the follower wants something else by now, and the answers leave in order.
        """
        if self._waiting is not None:
            self._waiting.finish()
        stale = self.take_stale()
        for remembered in stale:
            self._settle(remembered)
        self.heard.ms = now_ms
        return stale

    def keep(self, remembered: FetchPartition) -> None:
        self.stale[remembered] = None

    def attach(self, remembered: FetchPartition, hosted: HostedPartition | None) -> None:
        """`remembered` is this partition, if it is here at all: hear from now on when it moves."""
        before = remembered.hosted
        if before is not hosted:
            remembered.hosted = hosted
            if before is not None and self._attached.pop(before, None) is not None:
                before.replica_readers.pop(self, None)
            if hosted is not None:
                self._attached[hosted] = remembered
                hosted.replica_readers[self] = None

    @property
    def hears_of_any(self) -> bool:
        return bool(self._attached)

    def _let_go(self, remembered: FetchPartition) -> None:
        self._settle(remembered)
        self.stale.pop(remembered, None)
        self.attach(remembered, None)

    def _settle(self, remembered: FetchPartition) -> None:
        """From here on the partition does not count as quiet, and what comes after tells nothing of it."""
        if remembered.progress is not None:
            remembered.progress.settle()
            remembered.progress = None

    def close(self) -> None:
        """The session is over."""
        for hosted in self._attached:
            hosted.replica_readers.pop(self, None)
        self._attached.clear()
        self._waiting = None

    # What moves.

    def on_append(self, partition: HostedPartition) -> bool:
        self.stale[self._attached[partition]] = None
        return self._waiting is not None

    def on_watermark(self, partition: HostedPartition) -> bool:
        self.stale[self._attached[partition]] = None
        return self.wants_watermark and self._waiting is not None

    def wait(self, waiting: WaitingFetch) -> None:
        assert self._waiting is None
        self._waiting = waiting

    def stop_waiting(self, waiting: WaitingFetch) -> None:
        if self._waiting is waiting:
            self._waiting = None

    def wake(self) -> None:
        if self._waiting is not None:
            self._waiting.look_again()
