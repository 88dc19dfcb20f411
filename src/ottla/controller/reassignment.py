"""The arithmetic of moving a partition's replicas.

A reassignment takes three steps. It begins: the replicas to add join the list, in front, and those to remove stay at
its end. It runs: the leader votes the new ones into the ISR as they catch up, as it would any follower. It completes,
in the very record that makes the ISR hold all of the new replicas: those to remove leave the list and the ISR. No step
puts a replica into the ISR, and none takes it below what the topic asks for (A24).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.metadata.images import PartitionImage


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @classmethod
    def of(cls, partition: PartitionImage) -> Reassignment:
        return cls(partition.replicas, partition.adding_replicas, partition.removing_replicas)

    @classmethod
    def towards(cls, partition: PartitionImage, target: tuple[int, ...]) -> Reassignment:
        """From where the partition is, which may be the middle of another reassignment, to `target`.

        What the other one was adding and this one does not want is removed at the end of this one: it may be what
        holds the ISR together. What was there before either of them is where a cancel goes back to.
        """
        original = cls.of(partition).original
        removing = tuple(sorted(replica for replica in partition.replicas if replica not in target))
        adding = tuple(sorted(replica for replica in target if replica not in original))
        return cls(target + removing, adding, removing)

    @property
    def in_progress(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without those being added: where a cancelled reassignment goes back to."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def completed_isr(self, isr: tuple[int, ...], min_isr: int) -> tuple[int, ...] | None:
        """The ISR with which the reassignment is complete now that `isr` is in sync, or None if it is not yet.

        Whoever is added must be in sync. One that was there and stays need not be: a dead broker does not hold up the
        move of another; only where there will be fewer replicas than before must all of them be. And it waits while
        without those that are to go the topic would have fewer in sync than it asks for, though now it has enough.
        """
        target = self.target
        after = tuple(replica for replica in isr if replica not in self.removing)
        needed = self.adding if len(self.adding) >= len(self.removing) else target
        if not self.in_progress or not after or not all(replica in after for replica in needed):
            return None
        return after if len(after) >= min(min_isr, len(target), len(isr)) else None
