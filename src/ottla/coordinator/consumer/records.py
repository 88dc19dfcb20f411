"""The records of consumer groups (kinds 3 to 8 and 16), as Kafka 4.3.1 writes them, and their tombstones."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.consumer.assignors import Assignment
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.resolved import ResolvedRegex
from ottla.coordinator.stored import StoredRecord
from ottla.wire.messages.consumer_group_current_member_assignment_key import ConsumerGroupCurrentMemberAssignmentKey
from ottla.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from ottla.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from ottla.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from ottla.wire.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)


def member_metadata(group_id: str, member: Member) -> StoredRecord:
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return StoredRecord(key, member.metadata())


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return StoredRecord(key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def target(group_id: str, member_id: str, assignment: Assignment) -> StoredRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    topics = [TopicPartition(topic_id=topic, partitions=list(found)) for topic, found in assignment.items()]
    return StoredRecord(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def target_epoch(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return StoredRecord(key, value)


def current(group_id: str, member: Member) -> StoredRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return StoredRecord(key, member.current())


def regex(group_id: str, pattern: str, resolved: ResolvedRegex) -> StoredRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return StoredRecord(key, value)


# Tombstones.


def no_regex(group_id: str, pattern: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def no_partition_metadata(group_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def no_member(group_id: str, member_id: str) -> list[StoredRecord]:
    """What a member holds goes first, then what it shall hold, then the member: replay relies on it."""
    return [
        StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def no_group(group_id: str, member_ids: Iterable[str], patterns: Iterable[str]) -> list[StoredRecord]:
    """All members' holdings, all targets, all members, then what the group as a whole has."""
    holdings, targets, members = [], [], []
    for member_id in member_ids:
        holding, aim, member = no_member(group_id, member_id)
        holdings.append(holding)
        targets.append(aim)
        members.append(member)
    return [
        *holdings,
        *targets,
        StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *members,
        *(no_regex(group_id, pattern) for pattern in patterns),
        no_partition_metadata(group_id),
        StoredRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
