"""The next target of a group: what the assignor is told, and the records of what it answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from ottla.coordinator.consumer.assignors.spec import as_read, same
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
    targets = dict(group.targets.items())
    specs = _specs(group, targets, updated, image)
    counts = {
        topic: len(found.partitions)
        for topic in {topic for topics in {spec.topics for spec in specs.values()} for topic in topics}
        if (found := image.topic_by_id(topic)) is not None
    }
    assigned: dict[Uuid, list[tuple[int, ...]]] = defaultdict(list)
    for target in targets.values():
        for topic, partitions in target.items():
            assigned[topic].append(partitions)
    result = assignor(GroupSpec(members=specs, homogeneous=homogeneous, partitions=counts, assigned=assigned))
    given = result.get(updated.member_id) or {}
    if given is specs[updated.member_id].assignment:
        given = result[updated.member_id] = as_read(given)
    changed = []
    for member_id in specs:
        assignment = result.get(member_id) or {}
        before = targets.get(member_id)
        if before is None or not (before is assignment or same(before, assignment)):
            changed.append(records.target(group.group_id, member_id, assignment))
    changed.append(records.target_epoch(group.group_id, epoch, now_ms))
    return Target(changed, given)


def _specs(
    group: ConsumerGroup, targets: Mapping[str, Assignment], updated: Member, image: MetadataImage
) -> Mapping[str, MemberSpec]:
    """By member, in the order in which Kafka's HashMap of them is gone through."""
    members = dict(group.members.items())
    replaced = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    changes = [updated.member_id]
    if replaced is not None and replaced != updated.member_id:
        changes.append(replaced)
    order = HashOrder(name_hash, timeline_order(list(members)))
    for member_id in HashOrder(name_hash, changes):
        if member_id == updated.member_id:
            order.add(member_id)
        else:
            order.discard(member_id)
    members[updated.member_id] = updated
    topics = _Topics(group, image)
    specs: dict[str, MemberSpec] = {}
    for member_id in order:
        member = members[member_id]
        names, ids = topics.of(member)
        specs[member_id] = MemberSpec(member.instance_id, ids, names, targets.get(member_id) or {})
    if replaced is not None:
        inherited = targets.get(replaced) or {}
        specs[updated.member_id] = specs[updated.member_id]._replace(assignment=inherited)
    return specs


class _Topics:
    """What members are subscribed to. Most of a group's are subscribed to the same, which is looked up once."""

    def __init__(self, group: ConsumerGroup, image: MetadataImage) -> None:
        self._group = group
        self._image = image
        self._known: dict[tuple[frozenset[str], str], tuple[int, tuple[Uuid, ...]]] = {}

    def of(self, member: Member) -> tuple[int, tuple[Uuid, ...]]:
        """How many topics, and the ids of those that exist."""
        wanted = member.topic_names, member.topic_regex
        known = self._known.get(wanted)
        if known is None:
            names = _names(self._group, member)
            found = (self._image.topic(name) for name in names)
            ids = tuple(topic.topic_id for topic in found if topic is not None)
            known = self._known[wanted] = len(names), ids
        return known


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
