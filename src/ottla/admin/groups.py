"""Consumer groups of both protocols: which there are, their members, their offsets, and how far behind they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.admin.asking import ask_coordinator, ask_each, check
from ottla.admin.offsets import known_bounds
from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import Assignment, ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribeGroupsResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse

CONSUMER = "consumer"
"""The protocol of KIP-848: the coordinator assigns."""
CLASSIC = "classic"

_OFFSET_FETCH_MAX = 7
"""From version 8 on one request asks for many groups, from 10 on topics have ids; 7 asks for all of one group's."""
_OFFSET_COMMIT_MAX = 9
"""The last that names topics by name."""
_DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group_id: str
    protocol: str
    """`consumer` or `classic`; empty where the cluster is too old to say."""
    state: str
    coordinator: int
    is_of_consumers: bool
    """Not for groups of Connect's workers and the like, which use the classic protocol for something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    """Of a static member (KIP-345)."""
    client_id: str
    host: str
    epoch: int | None
    subscribed: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None
    """What it is to have once the others have let go (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    group_id: str
    protocol: str
    state: str
    assignor: str
    epoch: int | None
    coordinator: int
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A partition that the group has a position in, or a member for. Figures that nobody knows are none."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    start_offset: int | None
    end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed.offset, 0)


def list_groups(client: BlockingClient) -> list[ListedGroup]:
    """All groups of all coordinators, sorted by name. A broker that cannot be reached is `KafkaError`."""
    requests: dict[int, Message] = {node: ListGroupsRequest() for node in client.nodes()}
    found: dict[str, ListedGroup] = {}
    for node, answer in ask_each(client, requests, ListGroupsResponse).items():
        if isinstance(answer, KafkaError):
            raise answer
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            check(answer.error_code, None, f"The groups of broker {node} cannot be listed")
        for each in answer.groups:
            found[each.group_id] = ListedGroup(
                group_id=each.group_id,
                protocol=each.group_type.lower(),
                state=each.group_state,
                coordinator=node,
                is_of_consumers=each.protocol_type in ("", CONSUMER),
            )
    return [found[name] for name in sorted(found)]


def describe_group(client: BlockingClient, group_id: str) -> Group:
    """Raises `KafkaError`: GROUP_ID_NOT_FOUND if there is none."""
    try:
        found = _describe_new(client, group_id)
    except KafkaError as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
        found = None
    return found or _describe_classic(client, group_id)


def committed_offsets(client: BlockingClient, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Everything that the group has committed, sorted. A group that does not exist has committed nothing."""
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        OffsetFetchRequest(group_id=group_id, topics=None),
        OffsetFetchResponse,
        lambda answer: (answer.error_code,),
        max_version=_OFFSET_FETCH_MAX,
    )
    check(answer.error_code, None, f"The offsets of the group {group_id} cannot be read")
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            check(each.error_code, None, f"The offset of {partition} cannot be read")
            if each.committed_offset != NO_OFFSET:
                found[partition] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata or "",
                )
    return dict(sorted(found.items()))


def lag_of(client: BlockingClient, group: Group) -> list[PartitionLag]:
    """Every partition that the group has a position in or a member for, sorted."""
    committed = committed_offsets(client, group.group_id)
    holders = {each: member for member in group.members for each in member.assigned}
    partitions = sorted({*committed, *holders})
    bounds = known_bounds(client, partitions)
    return [
        PartitionLag(
            topic=each.topic,
            partition=each.partition,
            committed=committed.get(each),
            start_offset=bounds[each].start if each in bounds else None,
            end_offset=bounds[each].end if each in bounds else None,
            member=holders.get(each),
        )
        for each in partitions
    ]


def commit_offsets(client: BlockingClient, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Sets positions of a group without members. A group that does not exist comes to be."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for each, position in offsets.items():
        by_topic[each.topic].append(
            OffsetCommitRequestPartition(
                partition_index=each.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
    )
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        request,
        OffsetCommitResponse,
        lambda answer: [each.error_code for topic in answer.topics for each in topic.partitions],
        max_version=_OFFSET_COMMIT_MAX,
    )
    for topic in answer.topics:
        for result in topic.partitions:
            subject = f"The offset of {group_id} in {topic.name}-{result.partition_index} cannot be set"
            check(result.error_code, None, subject)


def position_at(offset: int) -> CommittedOffset:
    """A position that says nothing but its offset."""
    return CommittedOffset(offset=offset, leader_epoch=NO_LEADER_EPOCH, metadata="")


def delete_offsets(client: BlockingClient, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Forgets positions in topics that the group does not read now."""
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for each in partitions:
        by_topic[each.topic].append(OffsetDeleteRequestPartition(partition_index=each.partition))
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
    )
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        request,
        OffsetDeleteResponse,
        lambda answer: (answer.error_code,),
    )
    check(answer.error_code, None, f"The offsets of the group {group_id} cannot be deleted")
    for topic in answer.topics:
        for result in topic.partitions:
            subject = f"The offset of {group_id} in {topic.name}-{result.partition_index} cannot be deleted"
            check(result.error_code, None, subject)


def delete_group(client: BlockingClient, group_id: str) -> None:
    """A group without members is gone, with its offsets."""
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        DeleteGroupsRequest(groups_names=[group_id]),
        DeleteGroupsResponse,
        lambda answer: [each.error_code for each in answer.results],
    )
    for each in answer.results:
        check(each.error_code, None, f"The group {group_id} cannot be deleted")


def _describe_new(client: BlockingClient, group_id: str) -> Group | None:
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        ConsumerGroupDescribeRequest(group_ids=[group_id]),
        ConsumerGroupDescribeResponse,
        lambda answer: [group.error_code for group in answer.groups],
    )
    (group,) = answer.groups
    check(group.error_code, group.error_message, f"The group {group_id} cannot be described")
    return Group(
        group_id=group_id,
        protocol=CONSUMER,
        state=group.group_state,
        assignor=group.assignor_name,
        epoch=group.group_epoch,
        coordinator=client.coordinator(CoordinatorKind.GROUP, group_id),
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host.lstrip("/"),
                epoch=each.member_epoch,
                subscribed=(*each.subscribed_topic_names, *filter(None, (each.subscribed_topic_regex,))),
                assigned=_assigned(each.assignment),
                target=_assigned(each.target_assignment),
            )
            for each in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _describe_classic(client: BlockingClient, group_id: str) -> Group:
    answer = ask_coordinator(
        client,
        CoordinatorKind.GROUP,
        group_id,
        DescribeGroupsRequest(groups=[group_id]),
        DescribeGroupsResponse,
        lambda answer: [group.error_code for group in answer.groups],
    )
    (group,) = answer.groups
    check(group.error_code, None, f"The group {group_id} cannot be described")
    if group.group_state == _DEAD:  # What version 5 and older ones say of a group that is not there.
        check(ErrorCode.GROUP_ID_NOT_FOUND, None, f"The group {group_id} cannot be described")
    of_consumers = group.protocol_type == CONSUMER
    return Group(
        group_id=group_id,
        protocol=CLASSIC,
        state=group.group_state,
        assignor=group.protocol_data,
        epoch=None,
        coordinator=client.coordinator(CoordinatorKind.GROUP, group_id),
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host.lstrip("/"),
                epoch=None,
                subscribed=(),
                assigned=_read_assignment(each.member_assignment) if of_consumers else (),
                target=None,
            )
            for each in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _assigned(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, each) for topic in assignment.topic_partitions for each in topic.partitions
        )
    )


def _read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a classic member was given. Other clients wrote it, so that it may be anything."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.VERSIONS[-1])
    try:
        read, _ = ConsumerProtocolAssignment.read(data, 2, version)
    except Malformed:
        return ()
    return tuple(
        sorted(TopicPartition(topic.topic, each) for topic in read.assigned_partitions for each in topic.partitions)
    )
