"""A classic group becomes a consumer group when a member of the new protocol joins, and a consumer group a classic one
when the last such member leaves: both online, with the members that they have (KIP-848's migration)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinator.consumer import records
from ottla.coordinator.consumer.classic_side import ClassicGroupView, ClassicMemberView
from ottla.coordinator.consumer.embedded import (
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordinator.consumer.group import CONSUMER_PROTOCOL, ConsumerGroup
from ottla.coordinator.consumer.hash_order import HashOrder, name_hash
from ottla.coordinator.consumer.member import Member
from ottla.coordinator.consumer.metadata_hash import TopicHashes
from ottla.coordinator.consumer.settings import Settings
from ottla.coordinator.stored import StoredRecord
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.metadata.images import MetadataImage
from ottla.model import Uuid
from ottla.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

_GROUP_METADATA_VERSION = 3


def no_classic_group(group_id: str) -> StoredRecord:
    return StoredRecord(GroupMetadataKey(group=group_id), None)


def classic_group(group_id: str, value: GroupMetadataValue) -> StoredRecord:
    return StoredRecord(GroupMetadataKey(group=group_id), value, _GROUP_METADATA_VERSION)


# Upgrade.


def upgraded(
    group_id: str, view: ClassicGroupView, settings: Settings, image: MetadataImage, hashes: TopicHashes
) -> list[StoredRecord]:
    """The records of a consumer group with the members of a classic one: all stable, at its generation, with what it
    last assigned to them. Whoever joins next makes the epoch rise."""
    _check_upgrade(group_id, view, settings)
    try:
        members = [_as_consumer(member, view, image) for member in view.members]
    except Malformed:
        raise _refusal(f"{_CANNOT} {group_id} to consumer group because the embedded consumer protocol is malformed."
                       ) from None  # fmt: skip
    except _CustomAssignor:
        raise _refusal(
            f"{_CANNOT} {group_id} to consumer group because an unsupported custom assignor is in use. Please refer to "
            "the documentation or switch to a default assignor before re-attempting the upgrade."
        ) from None
    _check_owned_once(group_id, members)
    epoch = view.generation_id
    topics = {name for member in members for name in member.topic_names}
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, hashes.of_group(topics, image)),
        *(
            records.target(group_id, member.member_id, {topic: tuple(held) for topic, held in member.assigned.items()})
            for member in members
        ),
        records.target_epoch(group_id, epoch, 0),
        *(records.current(group_id, member) for member in members),
    ]


_CANNOT = "Cannot upgrade classic group"


class _CustomAssignor(Exception):
    """An assignment has data of its assignor's own, which would be lost."""


def _refusal(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, sentence)


def _check_upgrade(group_id: str, view: ClassicGroupView, settings: Settings) -> None:
    if not settings.may_upgrade:
        raise _refusal(f"{_CANNOT} {group_id} to consumer group because online upgrade is disabled.")
    if view.protocol_type != CONSUMER_PROTOCOL:
        raise _refusal(
            f"{_CANNOT} {group_id} to consumer group because the group does not use the consumer embedded protocol."
        )
    if len(view.members) > settings.members_max:
        raise _refusal(
            f"{_CANNOT} {group_id} to consumer group because the group size exceeds the consumer group maximum size."
        )


def _as_consumer(member: ClassicMemberView, view: ClassicGroupView, image: MetadataImage) -> Member:
    assigned: dict[Uuid, dict[int, int]] = {}
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _CustomAssignor
        for topic in assignment.assigned_partitions:
            found = image.topic(topic.topic)
            existing = [index for index in topic.partitions if found is not None and index in found.partitions]
            if found is not None and existing:
                assigned[found.topic_id] = dict.fromkeys(existing, view.generation_id)
    subscription = read_subscription(_protocol(member, view.protocol_name))
    return Member(
        member_id=member.member_id,
        epoch=view.generation_id,
        previous_epoch=view.generation_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=assigned,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.protocols],
        ),
    )


def _protocol(member: ClassicMemberView, name: str | None) -> bytes:
    """Before a first generation nothing is chosen: then what the member likes best."""
    protocols = dict(member.protocols)
    return protocols[name] if name in protocols else next(iter(protocols.values()), b"")


def _check_owned_once(group_id: str, members: Iterable[Member]) -> None:
    """What a client's own assignor gave to two members cannot become a consumer group's."""
    seen: set[tuple[Uuid, int]] = set()
    for member in members:
        for topic, partitions in member.assigned.items():
            for partition in partitions:
                if (topic, partition) in seen:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"In group {group_id} a partition has two owners.")
                seen.add((topic, partition))


# Downgrade.


def downgraded(
    group: ConsumerGroup, members: Iterable[Member], joining: Member | None, image: MetadataImage, now_ms: int
) -> GroupMetadataValue:
    """A stable classic group of `members` and `joining`, whose assignment is the target that they had."""
    everybody = [*members, *(() if joining is None else (joining,))]
    protocol = _vote(everybody)
    return GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL,
        generation=group.epochs.group,
        protocol=protocol,
        leader=everybody[0].member_id,
        current_state_timestamp=now_ms,
        members=[_as_classic(group, member, protocol, image) for member in everybody],
    )


def _as_classic(group: ConsumerGroup, member: Member, protocol: str, image: MetadataImage) -> MemberMetadata:
    assert member.classic is not None, "only classic members stay"
    subscription = next(known.metadata for known in member.classic.supported_protocols if known.name == protocol)
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=subscription,
        assignment=write_assignment(group.target(member), image, version_of(subscription)),
    )


def _vote(members: Iterable[Member]) -> str:
    """The protocol that all know and most like best."""
    known = [
        [protocol.name for protocol in member.classic.supported_protocols]
        for member in members
        if member.classic is not None
    ]
    common = set.intersection(*map(set, known))
    votes: dict[str, int] = {}
    for names in known:
        favourite = next(name for name in names if name in common)
        votes[favourite] = votes.get(favourite, 0) + 1
    return max(HashOrder(name_hash, votes), key=votes.__getitem__)
