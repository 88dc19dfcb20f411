"""What an assignor is told of a group, and the draft that it works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.coordinator.consumer.hash_order import (
    HashOrder,
    capacity_for,
    capacity_to_copy,
    int_hash,
    int_order,
    uuid_hash,
    uuid_order,
)
from ottla.model import Uuid

Assignment = Mapping[Uuid, tuple[int, ...]]
"""Partitions by topic. No topic without partitions. Topics and partitions are in the order in which they are stored,
which the next assignment may hang on (`hash_order`), but which does not count when two are compared (`same`)."""


def same(one: Assignment, other: Assignment) -> bool:
    return one is other or (
        one.keys() == other.keys() and all(_same_partitions(one[topic], other[topic]) for topic in one)
    )


def _same_partitions(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and set(one) == set(other)


def as_read(assignment: Assignment) -> Assignment:
    """An assignment that was stored, in the order in which Kafka goes through what it reads of it."""
    return {topic: tuple(int_order(assignment[topic])) for topic in uuid_order(assignment)}


class MemberSpec(NamedTuple):
    instance_id: str | None
    topics: tuple[Uuid, ...]
    """Of those that it is subscribed to, the ones that exist."""
    names: int
    """How many topics it is subscribed to, whether they exist or not."""
    assignment: Assignment
    """The target that it had."""


class GroupSpec(NamedTuple):
    members: Mapping[str, MemberSpec]
    """In the order in which Kafka goes through them."""
    homogeneous: bool
    """All members are subscribed to the same topics."""
    partitions: Mapping[Uuid, int]
    """How many partitions each subscribed topic has."""
    assigned: Mapping[Uuid, list[tuple[int, ...]]]
    """What the target so far gives to each of those who have any of a topic."""


class Draft:
    """The assignment of one member while it is worked on. It is copied when it is first changed, as Kafka does."""

    __slots__ = ("_changed", "_partitions", "_topics", "before")

    _topics: HashOrder[Uuid]
    _partitions: dict[Uuid, HashOrder[int]]

    def __init__(self, before: Assignment) -> None:
        self.before = before
        self._changed = False

    @property
    def result(self) -> Assignment:
        """The very one that there was before, as it was stored, if it stays."""
        if not self._changed:
            return self.before
        return {topic: tuple(self._partitions[topic]) for topic in self._topics}

    def add(self, topic: Uuid, partitions: Sequence[int], *, capacity: int = 16) -> None:
        """`capacity` is that of the set of a topic which the member did not have."""
        self.touch()
        # Kafka looks the topic up for each partition. That makes room for it, or for the next, but not a third time.
        for _ in partitions[:2]:
            self._topics.add_if_absent(topic)
        if topic not in self._partitions:
            self._partitions[topic] = HashOrder(int_hash, capacity=capacity)
        self._partitions[topic].update(partitions)

    def remove(self, topic: Uuid, partition: int) -> None:
        self.touch()
        self._partitions[topic].discard(partition)
        if not self._partitions[topic]:
            self.remove_topic(topic)

    def remove_topic(self, topic: Uuid) -> None:
        self.touch()
        self._topics.discard(topic)
        del self._partitions[topic]

    def touch(self) -> None:
        """It will be worked on, even if nothing comes of it."""
        if not self._changed:
            self._changed = True
            read = as_read(self.before)
            self._topics = HashOrder(uuid_hash, read, capacity=capacity_for(len(read)))
            self._partitions = {
                topic: HashOrder(int_hash, partitions, capacity=capacity_to_copy(len(partitions)))
                for topic, partitions in read.items()
            }
