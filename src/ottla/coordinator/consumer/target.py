"""The next target of a group: what the assignor is told, and the records of what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from ottla.coordinator.consumer.assignors.spec import same
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.hash_order import HashOrder, capacity_to_copy, name_hash, timeline_order
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.stored import StoredRecord
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid


class Target(NamedTuple):
    records: list[StoredRecord]
    assignment: Assignment
    """Of the member on whose behalf it was worked out."""


def next_target(
    group: ConsumerGroup,
    updated: Member,
    *,
    epoch: int,
    assignor: Assignor,
    homogeneous: bool,
    image: MetadataImage,
    now_ms: int,
) -> Target:
    """The target with `updated` in the place of the member that the group knows by its id, or by its instance id."""
    specs = _specs(group, updated, image)
    counts = {
        topic: len(found.partitions)
        for topic in {topic for spec in specs.values() for topic in spec.topics}
        if (found := image.topic_by_id(topic)) is not None
    }
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic, partitions in target.items():
            assigned.setdefault(topic, set()).update(partitions)
    spec = GroupSpec(members=specs, homogeneous=homogeneous, partitions=counts, assigned=assigned)
    result = assignor(spec)
    changed = []
    for member_id in specs:
        assignment = result.get(member_id) or {}
        before = group.targets.get(member_id)
        if before is None or not same(before, assignment):
            changed.append(records.target(group.group_id, member_id, assignment))
    changed.append(records.target_epoch(group.group_id, epoch, now_ms))
    return Target(changed, result.get(updated.member_id) or {})


def _specs(group: ConsumerGroup, updated: Member, image: MetadataImage) -> Mapping[str, MemberSpec]:
    """By member, in the order in which Kafka's HashMap of them is gone through."""
    replaced = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    changes = [updated.member_id]
    if replaced is not None and replaced != updated.member_id:
        changes.append(replaced)
    order = HashOrder(name_hash, timeline_order(list(group.members)))
    for member_id in HashOrder(name_hash, changes):
        if member_id == updated.member_id:
            order.add(member_id)
        else:
            order.discard(member_id)
    specs: dict[str, MemberSpec] = {}
    for member_id in order:
        if member_id == updated.member_id:
            inherited = member_id if replaced is None else replaced
            specs[member_id] = _spec(group, updated, group.targets.get(inherited) or {}, image)
        else:
            specs[member_id] = _spec(group, group.members[member_id], group.targets.get(member_id) or {}, image)
    return specs


def _spec(group: ConsumerGroup, member: Member, assignment: Assignment, image: MetadataImage) -> MemberSpec:
    names = _names(group, member)
    found = (image.topic(name) for name in names)
    return MemberSpec(
        instance_id=member.instance_id,
        topics=tuple(topic.topic_id for topic in found if topic is not None),
        names=len(names),
        assignment=assignment,
    )


def _names(group: ConsumerGroup, member: Member) -> list[str]:
    """The topics that a member is subscribed to, in the order of Kafka's sets: of two, the larger one comes first."""
    resolved = group.regexes.get(member.topic_regex) if member.topic_regex else None
    if resolved is None or not resolved.topics:
        return _in_order(member.topic_names)
    if not member.topic_names:
        return _in_order(resolved.topics)
    large, small = resolved.topics, member.topic_names
    if len(small) > len(large):
        large, small = small, large
    return [*_in_order(large), *(name for name in _in_order(small) if name not in large)]


def _in_order(names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    return list(HashOrder(name_hash, ordered, capacity=capacity_to_copy(len(ordered))))
