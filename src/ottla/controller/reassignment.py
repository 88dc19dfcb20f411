"""The arithmetic of moving a partition's replicas.

A reassignment takes three steps. It begins: the replicas to add join the list, in front, and those to remove stay at
its end. It runs: the leader votes the new ones into the ISR as they catch up, as it would any follower. It completes,
in the very record that makes the ISR hold all of the new replicas: those to remove leave the list and the ISR. No step
puts a replica into the ISR, and the ISR that completes a reassignment is the whole new replica list, so that none
shrinks it below what the topic asks for either.
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

    def is_complete_with(self, isr: tuple[int, ...]) -> bool:
        target = self.target
        return self.in_progress and bool(target) and all(replica in isr for replica in target)
