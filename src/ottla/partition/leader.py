"""The leader's view of one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.partition.effects import Effect, HighWatermarkAdvanced

_NOTHING: tuple[Effect, ...] = ()


@dataclass(slots=True, kw_only=True)
class PartitionLeader:
    """Who is in sync, and how far they all are.

    Pure: facts come in as arguments, consequences go out as effects. Driven by `broker/replica_manager`. One instance
    lives for one leader epoch. The high watermark rises to the least log end among the in-sync replicas and never falls
    while the epoch lasts; it is frozen while fewer than the effective minimum are in sync (KIP-966).
    """

    replica_id: int
    leader_epoch: int
    partition_epoch: int
    start_offset: int
    """Our log end when we took the epoch. Offsets before it were written under earlier leaders."""
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int
    high_watermark: int
    end_offsets: dict[int, int] = field(default_factory=dict)
    """The log end of each replica as far as we know it; a follower is unknown until it fetches in this epoch."""

    has_min_isr: bool = field(init=False)
    """Derived, and kept because every produce request asks: are enough replicas in sync to commit anything?"""

    def __post_init__(self) -> None:
        assert self.replica_id in self.replicas
        assert self.isr <= set(self.replicas)
        self.end_offsets.setdefault(self.replica_id, self.start_offset)
        self._count()

    @property
    def effective_min_isr(self) -> int:
        """A minimum above the number of replicas could never be met; Kafka lowers it to that number."""
        return min(self.min_isr, len(self.replicas))

    def on_log_end(self, replica: int, offset: int) -> Sequence[Effect]:
        """`replica` (a follower, or ourselves) now holds everything before `offset`."""
        assert replica in self.replicas  # The fetch handler turned strangers away.
        self.end_offsets[replica] = offset
        if len(self.isr) == 1 and replica == self.replica_id and self.has_min_isr and offset > self.high_watermark:
            # Alone in sync: what we hold is committed. Every append of an unreplicated partition comes this way.
            self.high_watermark = offset
            return (HighWatermarkAdvanced(offset),)
        return self._advance()

    def on_partition(self, partition_epoch: int, replicas: tuple[int, ...], isr: frozenset[int]) -> Sequence[Effect]:
        """The controller changed the partition but not its leadership."""
        assert partition_epoch >= self.partition_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self.end_offsets = {replica: end for replica, end in self.end_offsets.items() if replica in replicas}
        self._count()
        return self._advance()

    def on_min_isr(self, min_isr: int) -> Sequence[Effect]:
        """The topic's `min.insync.replicas` changed; lowering it may thaw the high watermark."""
        self.min_isr = min_isr
        self._count()
        return self._advance()

    def _count(self) -> None:
        self.has_min_isr = len(self.isr) >= self.effective_min_isr

    def _advance(self) -> Sequence[Effect]:
        if not self.has_min_isr:
            return _NOTHING
        ends = self.end_offsets
        if len(self.isr) == 1:
            offset = ends[self.replica_id]
        else:
            # A member whose log end is not known yet holds the watermark where it is.
            offset = min(ends.get(replica, self.high_watermark) for replica in self.isr)
        if offset <= self.high_watermark:
            return _NOTHING
        self.high_watermark = offset
        return (HighWatermarkAdvanced(offset),)
