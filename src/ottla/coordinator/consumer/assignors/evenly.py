"""`uniform` where all members are subscribed to the same topics: everybody gets the same number, or one more.

Each member keeps what it had up to its quota. What it has too much of, and what nobody had, goes to those below theirs.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter

from ottla.coordinator.consumer.assignors.spec import Assignment, Draft, GroupSpec
from ottla.coordinator.consumer.hash_order import (
    HashOrder,
    capacity_for,
    capacity_to_copy,
    int_cut,
    uuid_hash,
    uuid_order,
)
from ottla.model import Uuid


def assign_evenly(spec: GroupSpec) -> dict[str, Assignment]:
    if not spec.members:
        return {}
    any_member = next(iter(spec.members.values()))
    topics = HashOrder(uuid_hash, any_member.topics, capacity=capacity_to_copy(any_member.names))
    if not topics:
        return {}
    free = [
        (topic, partition)
        for topic in topics
        for partition in sorted(_all_partitions(spec.partitions[topic]).difference(*spec.assigned.get(topic, ())))
    ]
    least, extra = divmod(sum(spec.partitions[topic] for topic in topics), len(spec.members))
    subscribed = frozenset(topics)
    result: dict[str, Assignment] = {}
    below: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        before = member.assignment
        takes_extra = extra > 0
        quota = least + takes_extra
        if subscribed.issuperset(before):
            held = sum(map(len, before.values()))
            result[member_id] = before
        else:
            held = sum(len(partitions) for topic, partitions in before.items() if topic in subscribed)
            result[member_id] = _draft(before, subscribed).result
        if held > quota:
            result[member_id] = _cut(before, subscribed, quota, free)
            held = quota
        missing = quota - held
        if missing and takes_extra and len(spec.members) - index > extra:
            # Somebody after it may have the partition already; the last ones must take what is left.
            missing -= 1
            takes_extra = False
        extra -= takes_extra
        if missing:
            below.append((member_id, missing))
    rest = iter(free)
    for member_id, missing in below:
        draft = _draft(spec.members[member_id].assignment, subscribed)
        draft.touch()
        for topic, run in groupby(islice(rest, missing), key=itemgetter(0)):
            draft.add(topic, [partition for _, partition in run])
        result[member_id] = draft.result
    assert next(rest, None) is None, "a partition was left over"
    return result


@lru_cache(maxsize=64)
def _all_partitions(count: int) -> frozenset[int]:
    """Remembered, because a copy costs less than a new one."""
    return frozenset(range(count))


def _draft(before: Assignment, subscribed: frozenset[Uuid]) -> Draft:
    """Without what is no longer subscribed to."""
    draft = Draft(before)
    for topic in before:
        if topic not in subscribed:
            draft.remove_topic(topic)
    return draft


def _cut(before: Assignment, subscribed: frozenset[Uuid], quota: int, free: list[tuple[Uuid, int]]) -> Assignment:
    """What is left to a member that has more than its `quota`. What is above it is free, unless it is no longer
    subscribed to. (What a `Draft` would make of it, without a table for each topic: most of the work is done here.)"""
    kept: dict[Uuid, tuple[int, ...]] = {}
    for topic in uuid_order(before):
        if topic in subscribed:
            left, above = int_cut(before[topic], quota)
            if left:
                kept[topic] = tuple(left)
            free += [(topic, partition) for partition in above]
            quota -= len(left)
    copied = uuid_order(uuid_order(before), capacity=capacity_for(len(before)))
    return {topic: kept[topic] for topic in copied if topic in kept}
