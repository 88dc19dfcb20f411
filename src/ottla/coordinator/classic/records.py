"""A classic group as a GroupMetadata record, and back."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinator.classic.group import NO_TIMESTAMP, ClassicGroup, GroupState, Member
from ottla.coordinator.stored import StoredRecord
from ottla.errors import Malformed
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

_VERSION = 3
"""What Kafka 4.3.1 writes. It reads 4 as well, which is the same with tagged fields."""


def generation_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> StoredRecord:
    """The group's generation with `assignments`, which has one for each member."""
    return StoredRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in group.members.values()
            ],
        ),
        _VERSION,
    )


def new_group_record(group: ClassicGroup) -> StoredRecord:
    """That there is a group of this name, whoever may be about to join it."""
    return StoredRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(current_state_timestamp=group.state_timestamp_ms, protocol=None, leader=None),
        _VERSION,
    )


def group_from(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as its newest record has it: stable, if it has members. Raises `Malformed` of one that cannot be."""
    _check(group_id, value)
    group = ClassicGroup(
        group_id=group_id,
        state=GroupState.STABLE if value.members else GroupState.EMPTY,
        state_timestamp_ms=value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader if any(member.member_id == value.leader for member in value.members) else None,
    )
    for member in value.members:
        group.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=(
                    member.session_timeout if member.rebalance_timeout == NO_TIMESTAMP else member.rebalance_timeout
                ),
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            ),
            value.protocol_type,
        )
    group.learn_subscriptions()
    return group


def _check(group_id: str, value: GroupMetadataValue) -> None:
    members = value.members
    if members and value.protocol is None:
        raise Malformed(f"the record of group {group_id!r} has members, and no protocol that they agreed on")
    instances = [member.group_instance_id for member in members if member.group_instance_id is not None]
    if len({member.member_id for member in members}) < len(members) or len(set(instances)) < len(instances):
        raise Malformed(f"the record of group {group_id!r} has a member twice")
