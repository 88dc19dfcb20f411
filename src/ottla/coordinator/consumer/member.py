"""One member of a consumer group: an immutable value, replaced as a whole by the records that concern it.

Two kinds of record carry a member: who it is and what it wants (ConsumerGroupMemberMetadata), and what it holds
(ConsumerGroupCurrentMemberAssignment). What it shall hold is not here but in the group's target.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.model import Uuid
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2
"""A static member that will come back: it is kept, with its partitions, until its session ends."""

Held = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, and since which epoch the member has had each. No topic without partitions."""

NOTHING: Held = {}


class MemberState(IntEnum):
    """How a member stands to its target. The values are those that records hold."""

    STABLE = 0
    """It has what it shall have, as far as it was told."""
    UNREVOKED_PARTITIONS = 1
    """It was asked to give up partitions and has not said that it did; it stays in its epoch until then."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A state of a later release."""


class Member(NamedTuple):
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Held = NOTHING
    revoking: Held = NOTHING
    """Asked back, and still its own until it says otherwise."""
    classic: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol: its session timeout and what it sent in JoinGroup."""

    @property
    def uses_classic(self) -> bool:
        return self.classic is not None

    @property
    def has_to_revoke(self) -> bool:
        """Has it been asked to give something up, and is it there to say that it did?"""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch >= 0

    def is_reconciled(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def holds(self, topic: Uuid, partition: int) -> int | None:
        """Since which epoch, if it has the partition or has yet to give it up."""
        since = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if since is None else since

    # Records.

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_written(self.assigned),
            partitions_pending_revocation=_written(self.revoking),
        )


def _read(topics: list[TopicPartitions], epoch: int) -> Held:
    """Records of releases before 4.2 have no epoch for each partition: then it is the member's."""
    held: dict[Uuid, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(epoch, 0)] * len(topic.partitions)
        held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held


def _written(held: Held) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic, partitions in held.items()
    ]
