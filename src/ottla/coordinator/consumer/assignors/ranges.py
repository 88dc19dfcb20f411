"""`range`: the members in order, each with the next span of every topic."""

from __future__ import annotations

from ottla.coordinator.consumer.assignors.spec import Assignment, GroupSpec
from ottla.coordinator.consumer.hash_order import HashOrder, capacity_for, uuid_hash
from ottla.model import Uuid


def assign_ranges(spec: GroupSpec) -> dict[str, Assignment]:
    """Static members come first, by instance id, so that one that comes back with another member id keeps its span."""

    def rank(member_id: str) -> tuple[bool, bytes]:
        instance_id = spec.members[member_id].instance_id
        name = member_id if instance_id is None else instance_id
        return instance_id is None, name.encode("utf-16-be", "surrogatepass")

    ordered = sorted(spec.members, key=rank)
    subscribers: dict[Uuid, int] = {}
    for member_id in ordered:
        for topic in _topics(spec, member_id, ordered):
            subscribers[topic] = subscribers.get(topic, 0) + 1
    spans = {topic: _Spans(spec.partitions[topic], count) for topic, count in subscribers.items()}
    result: dict[str, Assignment] = {}
    for member_id in ordered:
        topics = _topics(spec, member_id, ordered)
        size = len(topics) if spec.homogeneous else spec.members[member_id].names
        table = HashOrder(uuid_hash, capacity=capacity_for(int(size / 0.75 + 1)))
        given: dict[Uuid, tuple[int, ...]] = {}
        for topic in topics:
            span = spans[topic].next()
            if span:
                given[topic] = tuple(span)
                table.add(topic)
        result[member_id] = {topic: given[topic] for topic in table}
    return result


def _topics(spec: GroupSpec, member_id: str, ordered: list[str]) -> tuple[Uuid, ...]:
    return spec.members[ordered[0] if spec.homogeneous else member_id].topics


class _Spans:
    """A topic cut into as many spans as it has subscribers; the first are longer by one where it does not divide."""

    __slots__ = ("_end", "_extra", "_least", "_start")

    def __init__(self, partitions: int, subscribers: int) -> None:
        self._start, self._end = 0, partitions
        self._least, self._extra = divmod(partitions, subscribers)

    def next(self) -> range:
        start = self._start
        self._start = min(start + self._least + (self._extra > 0), self._end)
        self._extra -= self._extra > 0
        return range(start, self._start)
