"""What a ConsumerGroupHeartbeat must say, before any coordinator is asked; and what a member may say to its group."""

from __future__ import annotations

from ottla.config.node import NodeConfig
from ottla.coordinator.consumer.member import JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH, Held, Member
from ottla.coordinator.consumer.reconciliation import Owned
from ottla.coordinator.consumer.settings import assignor_names
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

_MEMBER_ID_REQUIRED_FROM = 1
"""The version from which on members choose their own ids (KIP-1082)."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, config: NodeConfig) -> None:
    epoch = request.member_epoch
    if api_version >= _MEMBER_ID_REQUIRED_FROM or epoch > 0 or epoch == LEAVING_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.instance_id, "InstanceId")
    _refuse_blank(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = assignor_names(config)
    if request.server_assignor is not None and request.server_assignor not in names:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(names)}.",
        )


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """A member may come with its own epoch, with 0 to join again, or with the epoch before, if it owns no more than it
    was given: the answer that told it of the new one may have been lost."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_at_most(owned, member.assigned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_at_most(owned: Owned | None, assigned: Held) -> bool:
    if owned is None:
        return False
    return all(
        topic in assigned and all(partition in assigned[topic] for partition in partitions)
        for topic, partitions in owned.items()
    )


def check_released(member: Member, member_id: str, instance_id: str) -> None:
    """May another member take this one's instance id?"""
    if member.epoch != LEAVING_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member.",
        )


def known_static(member: Member | None, instance_id: str) -> Member:
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    return member


def check_not_fenced(member: Member, member_id: str, instance_id: str) -> None:
    """Does the instance id still belong to the member that uses it?"""
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
