"""The leader's view of one partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.errors import ErrorCode, KafkaError
from ottla.partition.effects import Effect, HighWatermarkAdvanced, IsrMember, ProposeIsr
from ottla.partition.replica import FollowerProgress, Heard, LiveBroker

_NOTHING: tuple[Effect, ...] = ()

_NOT_APPLIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The controller is up to date and says that it did nothing, and will not: the committed state stands. It gave the
partition a new epoch with its refusal, so that no copy of the proposal that is still on its way can be accepted
(`controller/alter_partition.py`)."""

_AWAIT_METADATA = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The partition has moved on, with our proposal or without it, and the metadata will say where to. Until then the
proposal stays in flight: to roll it back could leave a member of the in-sync set out of the count (KIP-497)."""


@dataclass(slots=True, kw_only=True)
class PartitionLeader:
    """Who is in sync, and how far they all are.

    Pure: facts come in as arguments, consequences go out as effects. Driven by `broker/replica_manager`. One instance
    lives for one leader epoch, so that nothing of an earlier one can let a follower into the in-sync set.

    The high watermark rises to the least log end among the *maximal* in-sync set, which is the committed one and
    whoever is about to join it, and of those who are caught up and may join; it never falls while the epoch lasts. It
    is frozen while fewer than the effective minimum are in sync (KIP-966).

    The in-sync set moves between two states:

        committed ── a follower caught up, or fell behind ──▶ in flight (`pending`)
        in flight ── refused for good, or the metadata has news ──▶ committed
        in flight ── agreed to ──▶ in flight, until the metadata has it
        in flight ── the controller cannot say ──▶ in flight, proposed again

    Only the metadata brings another set. The controller's answer says the same and often says it earlier, but not what
    else was decided before: a leader that took a set from the answer, and had not heard that `min.insync.replicas` was
    raised, would commit with too few, past eligible leaders that are not in the set (A2).
    """

    replica_id: int
    leader_epoch: int
    partition_epoch: int
    start_offset: int
    """Our log end when we took the epoch. Offsets before it were written under earlier leaders."""
    replicas: tuple[int, ...]
    isr: frozenset[int]
    """As the controller last committed it."""
    min_isr: int
    high_watermark: int
    now_ms: int
    """When the epoch was taken, in monotonic milliseconds: those in sync count as caught up from there."""
    lag_ms_max: int = 30_000
    """`replica.lag.time.max.ms`."""
    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)

    log_end: int = field(init=False)
    """Our own, as far as it counts (`flush.messages`)."""
    followers: dict[int, FollowerProgress] = field(init=False)
    """All replicas but ourselves, in the order of the assignment."""
    pending: ProposeIsr | None = field(init=False, default=None)
    """The change that the controller has been asked for. One at a time."""
    maximal_isr: frozenset[int] = field(init=False)
    """Derived: the committed in-sync set, and the replicas that a change in flight adds. What it removes still counts,
    since the controller may refuse."""
    has_min_isr: bool = field(init=False)
    """Derived, and kept because every produce request asks: are enough replicas in sync to commit anything?"""
    alone: bool = field(init=False)
    """Derived: there are no other replicas, so that what we hold is committed."""

    def __post_init__(self) -> None:
        assert self.replica_id in self.replicas
        assert self.isr <= set(self.replicas)
        self.log_end = self.start_offset
        self.followers = {
            replica: FollowerProgress(caught_up_ms=self.now_ms) if replica in self.isr else FollowerProgress()
            for replica in self.replicas
            if replica != self.replica_id
        }
        self._derive()

    @property
    def effective_min_isr(self) -> int:
        """A minimum above the number of replicas could never be met; Kafka lowers it to that number."""
        return min(self.min_isr, len(self.replicas))

    # Appends and fetches.

    def on_log_end(self, offset: int, now_ms: int) -> Sequence[Effect]:
        """We now hold everything before `offset`."""
        self.log_end = offset
        return self._advance(now_ms)

    def on_log_end_alone(self, offset: int) -> bool:
        """The same where there are no followers, and so no time that matters: True if the watermark is `offset` now.
        Every append of an unreplicated partition comes this way, so that not even an effect is made for it."""
        self.log_end = offset
        if offset > self.high_watermark and self.has_min_isr:
            self.high_watermark = offset
            return True
        return False

    def check_follower(self, replica: int, broker_epoch: int, *, knows_epoch: bool) -> None:
        """Turn away a fetch that must not count, before anything is read: from a stranger, or from an incarnation of a
        follower that has been followed by another."""
        follower = self.followers.get(replica)
        if follower is None:
            # One that named our epoch may know of an assignment that we have not heard of yet, and is to try again.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker_epoch >= 0:
            broker = self.brokers.get(replica)
            registered = -1 if broker is None else broker.epoch
            if broker_epoch < registered or (
                follower.broker_epoch is not None and broker_epoch < follower.broker_epoch
            ):
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)

    def on_fetch(
        self,
        replica: int,
        broker_epoch: int,
        fetch_offset: int,
        log_end_at_read: int,
        now_ms: int,
        *,
        log_start: int = -1,
        heard: Heard | None = None,
    ) -> Sequence[Effect]:
        """A follower asked for what comes at `fetch_offset`, and the read succeeded: it holds everything before that.

        `log_end_at_read` is our log end as it was before the read. If that is where the follower is, it counts as
        caught up for as long as `heard` is moved on.
        """
        follower = self.followers[replica]  # `check_follower` turned strangers away.
        moved = fetch_offset != follower.log_end
        follower.on_fetch(fetch_offset, log_start, broker_epoch, log_end_at_read, now_ms, heard)
        proposed = self._maybe_grow(replica, follower)
        if not moved:
            return proposed
        advanced = self._advance(now_ms)
        return (*proposed, *advanced) if proposed else advanced

    def on_tick(self, now_ms: int) -> Sequence[Effect]:
        """Time has passed: whoever has not been caught up for too long leaves the in-sync set.

        Whoever is caught up joins it, which matters where nobody writes: the fetches of a follower at our log's end do
        not name the partition any more (KIP-227), and below the minimum in sync nobody can write.
        """
        proposed: tuple[Effect, ...] = _NOTHING
        if self.pending is None:
            behind = tuple(
                replica
                for replica, follower in self.followers.items()
                if replica in self.isr and not self._is_caught_up(follower, now_ms)
            )
            if behind:
                proposed = (self._propose(self.isr - set(behind), leaving=behind),)
            else:
                proposed = self._grow_again(now_ms)
        return (*proposed, *self._advance(now_ms))

    # What the controller decides.

    def on_alter_partition_result(self, proposal: ProposeIsr, error: ErrorCode, now_ms: int) -> Sequence[Effect]:
        """The controller's answer to `proposal`, or what became of the request."""
        if proposal is not self.pending or error in _AWAIT_METADATA:
            return _NOTHING
        if error in _NOT_APPLIED:
            self._commit(self.isr)
            return self._advance(now_ms)
        # Whoever was asked may have acted, may act yet, or was nobody to ask. To ask again is safe in any case: only
        # one proposal of a partition epoch can ever be accepted.
        return (proposal,)

    def on_partition(
        self, partition_epoch: int, replicas: tuple[int, ...], isr: frozenset[int], min_isr: int, now_ms: int
    ) -> Sequence[Effect]:
        """The metadata has the partition in this leader epoch so, and this minimum with it. The two are heard together:
        an in-sync set under the minimum of another time may be a pair that never was, and that is enough to commit."""
        assert partition_epoch >= self.partition_epoch, "the metadata does not go back"
        self.min_isr = min_isr
        if replicas != self.replicas:
            known = self.followers
            self.replicas = replicas
            self.followers = {
                replica: known.get(replica) or FollowerProgress() for replica in replicas if replica != self.replica_id
            }
        proposed: tuple[Effect, ...] = _NOTHING
        if partition_epoch > self.partition_epoch:
            # What is in flight names an older partition epoch, so that it was this very change or will be refused.
            was_pending = self.pending
            self.partition_epoch = partition_epoch
            self._commit(isr)
            if was_pending is not None and isr.issuperset(was_pending.joining):
                proposed = self._grow_again(now_ms)
        else:
            self._derive()
        return (*proposed, *self._advance(now_ms))

    def on_brokers(self, brokers: Mapping[int, LiveBroker], now_ms: int) -> Sequence[Effect]:
        """Brokers came, went or were fenced: who can join now does, who cannot any more holds nothing back."""
        self.brokers = brokers
        return (*self._grow_again(now_ms), *self._advance(now_ms))

    def on_min_isr(self, min_isr: int, now_ms: int) -> Sequence[Effect]:
        """The topic's `min.insync.replicas` changed, and the partition did not; lowering it may thaw the high
        watermark."""
        self.min_isr = min_isr
        self._derive()
        return self._advance(now_ms)

    # What others ask.

    def low_watermark(self, log_start: int) -> int:
        """The least log start of all live replicas, where ours is `log_start`; -1 while one has not said."""
        for replica, follower in self.followers.items():
            if follower.log_start < log_start and replica in self.brokers:
                log_start = follower.log_start
        return log_start

    def readable_replicas(self, offset: int) -> list[tuple[int, FollowerProgress]]:
        """Followers in sync that hold `offset`, from which a consumer might read it (KIP-392)."""
        return [
            (replica, follower)
            for replica, follower in self.followers.items()
            if replica in self.isr and follower.log_start <= offset <= follower.log_end
        ]

    # The in-sync set.

    def _maybe_grow(self, replica: int, follower: FollowerProgress) -> tuple[Effect, ...]:
        """A follower joins when it has all that is committed, also by earlier leaders: they may have committed what
        lies between our high watermark and the start of our epoch."""
        if (
            self.pending is not None
            or replica in self.isr
            or follower.log_end < self.high_watermark
            or follower.log_end < self.start_offset
            or not follower.is_eligible(self.brokers.get(replica))
        ):
            return _NOTHING
        return (self._propose(self.isr | {replica}, joining=(replica,)),)

    def _grow_again(self, now_ms: int) -> tuple[Effect, ...]:
        """What kept a follower out may be gone: a change in flight, its fence. One that has nothing to fetch says
        nothing new by which it could be noticed, so that its last fetch counts, as long as it makes it caught up."""
        for replica, follower in self.followers.items():
            if replica not in self.isr and self._is_caught_up(follower, now_ms):
                proposed = self._maybe_grow(replica, follower)
                if proposed:
                    return proposed
        return _NOTHING

    def _propose(
        self, isr: frozenset[int], *, joining: tuple[int, ...] = (), leaving: tuple[int, ...] = ()
    ) -> ProposeIsr:
        self.pending = ProposeIsr(
            self.leader_epoch,
            self.partition_epoch,
            tuple(IsrMember(replica, self._broker_epoch(replica)) for replica in self.replicas if replica in isr),
            joining,
            leaving,
        )
        self._derive()
        return self.pending

    def _broker_epoch(self, replica: int) -> int:
        follower = self.followers.get(replica)
        return -1 if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def _commit(self, isr: frozenset[int]) -> None:
        self.isr = isr
        self.pending = None
        self._derive()

    def _derive(self) -> None:
        self.maximal_isr = self.isr if self.pending is None else self.isr.union(self.pending.joining)
        self.has_min_isr = len(self.isr) >= self.effective_min_isr
        self.alone = not self.followers

    def _is_caught_up(self, follower: FollowerProgress, now_ms: int) -> bool:
        return follower.log_end >= self.log_end or now_ms - follower.caught_up_ms <= self.lag_ms_max

    # The high watermark.

    def _advance(self, now_ms: int) -> tuple[Effect, ...]:
        if not self.has_min_isr:
            return _NOTHING
        offset = self.log_end
        high_watermark = self.high_watermark
        if offset <= high_watermark:
            return _NOTHING
        for replica, follower in self.followers.items():
            # A caught-up follower is waited for before it has joined, else it might run after the watermark for ever.
            if follower.log_end < offset and (
                replica in self.maximal_isr
                or (
                    now_ms - follower.caught_up_ms <= self.lag_ms_max
                    and follower.is_eligible(self.brokers.get(replica))
                )
            ):
                offset = follower.log_end
                if offset <= high_watermark:
                    return _NOTHING
        self.high_watermark = offset
        return (HighWatermarkAdvanced(offset),)
