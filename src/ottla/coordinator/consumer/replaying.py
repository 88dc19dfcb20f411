"""Records of consumer groups, applied to the group that they are of."""

from __future__ import annotations

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import LEAVING_EPOCH, NOTHING, Member
from ottla.coordinator.consumer.resolved import ResolvedRegex
from ottla.coordinator.stored import StoredRecord
from ottla.wire.messages.consumer_group_current_member_assignment_key import ConsumerGroupCurrentMemberAssignmentKey
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from ottla.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from ottla.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from ottla.wire.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

ConsumerKey = (
    ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupRegularExpressionKey
)


def replay_into(group: ConsumerGroup, record: StoredRecord) -> None:
    """Apply a record. (The tombstone of ConsumerGroupMetadata, which ends the group, is for whoever has all groups.)"""
    key, value = record.key, record.value
    match key:
        # The most frequent first: a new target is a record for each member whose share is another.
        case ConsumerGroupTargetAssignmentMemberKey():
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            if value is None:
                group.targets.pop(key.member_id)
            else:
                group.targets[key.member_id] = {
                    topic.topic_id: tuple(topic.partitions) for topic in value.topic_partitions
                }
        case ConsumerGroupCurrentMemberAssignmentKey():
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            _replay_current(group, key.member_id, value)
        case ConsumerGroupMemberMetadataKey():
            assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
            if value is None:
                group.remove_member(key.member_id)
            else:
                member = group.members.get(key.member_id) or Member(member_id=key.member_id)
                group.set_member(member.with_metadata(value))
        case ConsumerGroupTargetAssignmentMetadataKey():
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            epoch, timestamp = (-1, 0) if value is None else (value.assignment_epoch, value.assignment_timestamp)
            group.set_epochs(group.epochs._replace(assignment=epoch, assignment_timestamp_ms=timestamp))
        case ConsumerGroupMetadataKey():
            assert isinstance(value, ConsumerGroupMetadataValue)
            group.set_epochs(group.epochs._replace(group=value.epoch, metadata_hash=value.metadata_hash))
        case ConsumerGroupRegularExpressionKey():
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            group.set_regex(key.regular_expression, resolved)
        case ConsumerGroupPartitionMetadataKey():
            group.set_epochs(group.epochs._replace(has_partition_metadata=value is not None))
        case _:
            raise AssertionError(f"{type(key).__name__} is not a consumer group's")


def _replay_current(
    group: ConsumerGroup, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
) -> None:
    member = group.members.get(member_id)
    if value is not None:
        group.set_member((member or Member(member_id=member_id)).with_current(value))
    elif member is not None:
        group.set_member(
            member._replace(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned=NOTHING, revoking=NOTHING)
        )
