"""`uniform` where all members are subscribed to the same topics: everybody gets the same number, or one more.

Each member keeps what it had up to its quota. What it has too much of, and what nobody had, goes to those below theirs.
"""

from __future__ import annotations

from ottla.coordinator.consumer.assignors.spec import Assignment, Draft, GroupSpec
from ottla.coordinator.consumer.hash_order import HashOrder, capacity_to_copy, int_order, uuid_hash
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
        for partition in range(spec.partitions[topic])
        if partition not in spec.assigned.get(topic, ())
    ]
    least, extra = divmod(sum(spec.partitions[topic] for topic in topics), len(spec.members))
    drafts: dict[str, Draft] = {}
    below: list[tuple[Draft, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        draft = drafts[member_id] = Draft(member.assignment)
        takes_extra = extra > 0
        quota = _keep(draft, topics, least + takes_extra, free)
        if quota and takes_extra and len(spec.members) - index > extra:
            # Somebody after it may have the partition already; the last ones must take what is left.
            quota -= 1
            takes_extra = False
        extra -= takes_extra
        if quota:
            below.append((draft, quota))
    rest = iter(free)
    for draft, quota in below:
        draft.touch()
        for _, (topic, partition) in zip(range(quota), rest, strict=False):
            draft.add(topic, partition)
    assert next(rest, None) is None, "a partition was left over"
    return {member_id: draft.result for member_id, draft in drafts.items()}


def _keep(draft: Draft, topics: HashOrder[Uuid], quota: int, free: list[tuple[Uuid, int]]) -> int:
    """Take away what is no longer subscribed to, and what is above `quota`; return what is left of the quota."""
    for topic in draft.topics:
        partitions = draft.before[topic]
        if topic not in topics:
            draft.remove_topic(topic)
        elif len(partitions) <= quota:
            quota -= len(partitions)
        else:
            for partition in int_order(partitions):
                if quota:
                    quota -= 1
                else:
                    draft.remove(topic, partition)
                    free.append((topic, partition))
    return quota
