"""What an assignor is told of a group, and the draft that it works on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.coordinator.consumer.hash_order import (
    HashOrder,
    capacity_for,
    capacity_to_copy,
    int_hash,
    int_order,
    uuid_hash,
)
from ottla.model import Uuid

Assignment = Mapping[Uuid, tuple[int, ...]]
"""Partitions by topic. No topic without partitions. Topics and partitions are in the order in which they are stored,
which the next assignment may hang on (`hash_order`), but which does not count when two are compared (`same`)."""


def same(one: Assignment, other: Assignment) -> bool:
    return one.keys() == other.keys() and all(set(one[topic]) == set(other[topic]) for topic in one)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    instance_id: str | None
    topics: tuple[Uuid, ...]
    """Of those that it is subscribed to, the ones that exist."""
    names: int
    """How many topics it is subscribed to, whether they exist or not."""
    assignment: Assignment
    """The target that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    """In the order in which Kafka goes through them."""
    homogeneous: bool
    """All members are subscribed to the same topics."""
    partitions: Mapping[Uuid, int]
    """How many partitions each subscribed topic has."""
    assigned: Mapping[Uuid, Collection[int]]
    """What the target so far gives to anybody."""


class Draft:
    """The assignment of one member while it is worked on. It is copied when it is first changed, as Kafka does."""

    __slots__ = ("_changed", "_partitions", "_topics", "before")

    def __init__(self, before: Assignment) -> None:
        self.before = before
        self._topics: HashOrder[Uuid] = HashOrder(uuid_hash)
        self._partitions: dict[Uuid, HashOrder[int]] = {}
        self._changed = False

    @property
    def result(self) -> Assignment:
        if self._changed:
            return {topic: tuple(self._partitions[topic]) for topic in self._topics}
        return {topic: tuple(int_order(self.before[topic])) for topic in self.topics}

    def add(self, topic: Uuid, partition: int, *, capacity: int = 16) -> None:
        """`capacity` is that of the set of a topic which the member did not have."""
        self._copy()
        self._topics.add_if_absent(topic)
        if topic not in self._partitions:
            self._partitions[topic] = HashOrder(int_hash, capacity=capacity)
        self._partitions[topic].add(partition)

    def remove(self, topic: Uuid, partition: int) -> None:
        self._copy()
        self._partitions[topic].discard(partition)
        if not self._partitions[topic]:
            self.remove_topic(topic)

    def remove_topic(self, topic: Uuid) -> None:
        self._copy()
        self._topics.discard(topic)
        del self._partitions[topic]

    def touch(self) -> None:
        """It will be worked on, even if nothing comes of it."""
        self._copy()

    def _copy(self) -> None:
        if not self._changed:
            self._changed = True
            self._topics = HashOrder(uuid_hash, self.topics, capacity=capacity_for(len(self.before)))
            self._partitions = {
                topic: HashOrder(
                    int_hash, int_order(self.before[topic]), capacity=capacity_to_copy(len(self.before[topic]))
                )
                for topic in self._topics
            }

    @property
    def topics(self) -> HashOrder[Uuid]:
        """Those it had before, as they are gone through."""
        return HashOrder(uuid_hash, self.before)
