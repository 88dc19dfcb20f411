"""A consumer group as ConsumerGroupDescribe tells of it: committed state only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import Member
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid
from ottla.wire.messages.consumer_group_describe_response import Assignment, DescribedGroup, TopicPartitions
from ottla.wire.messages.consumer_group_describe_response import Member as DescribedMember

_CLASSIC, _CONSUMER = 0, 1


def described(group: ConsumerGroup, default_assignor: str, image: MetadataImage) -> DescribedGroup:
    epochs = group.committed_epochs
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=epochs.group,
        assignment_epoch=epochs.assignment,
        assignor_name=group.committed_assignor() or default_assignor,
        members=[_member(group, member, image) for _, member in group.members.committed_items()],
    )


def _member(group: ConsumerGroup, member: Member, image: MetadataImage) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        # What it has yet to give up is still its own.
        assignment=_assignment(image, member.assigned, member.revoking),
        target_assignment=_assignment(image, group.targets.committed(member.member_id) or {}),
        member_type=_CLASSIC if member.uses_classic else _CONSUMER,
    )


def _assignment(image: MetadataImage, *held: Mapping[Uuid, Iterable[int]]) -> Assignment:
    topics: dict[Uuid, TopicPartitions] = {}
    for part in held:
        for topic, partitions in part.items():
            found = image.topic_by_id(topic)
            if found is not None:
                told = topics.setdefault(topic, TopicPartitions(topic_id=topic, topic_name=found.name))
                told.partitions = sorted({*told.partitions, *partitions})
    return Assignment(topic_partitions=list(topics.values()))
