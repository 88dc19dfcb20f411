"""Verbs about groups and their offsets, for stories: one request each, in the version that the story names."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.model import Uuid
from ottla.wire.messages import consumer_group_heartbeat_request as modern
from ottla.wire.messages import offset_commit_request as commit
from ottla.wire.messages import offset_delete_request as delete
from ottla.wire.messages import offset_fetch_request as fetch
from ottla.wire.messages import txn_offset_commit_request as staging
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.behaviour.client import Client, Topic, eventually
from tests.behaviour.transactions import Transactional

GROUP = 0
COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)

Partition = tuple[Topic, int]
Codes = dict[tuple[str, int], ErrorCode]


def new_group() -> str:
    """A group id that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


class Member(NamedTuple):
    member_id: str
    generation: int
    """Or the member epoch."""


OUTSIDER = Member("", -1)
"""Who commits without being a member."""


class Groups:
    """What a client says to the coordinator of its group."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def ready(self, group_id: str) -> str:
        """The same id, once its coordinator answers."""
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group_id])
        eventually(
            lambda: self.client.call(request, FindCoordinatorResponse).coordinators[0].error_code,
            lambda code: code == 0,
            seconds=60,
        )
        eventually(
            lambda: self.fetch_group(group_id, []).error_code,
            lambda code: code == 0,
            seconds=60,
        )
        return group_id

    # Offsets.

    def commit(
        self,
        group_id: str,
        offsets: dict[Partition, int],
        *,
        version: int = 10,
        member: Member = OUTSIDER,
        instance_id: str | None = None,
        leader_epoch: int = -1,
        metadata: str | None = "",
        retention_ms: int = -1,
    ) -> Codes:
        topics: dict[str, commit.OffsetCommitRequestTopic] = {}
        names: dict[Uuid, str] = {}
        for (topic, index), offset in offsets.items():
            names[topic.topic_id] = topic.name
            asked = topics.setdefault(
                topic.name, commit.OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id)
            )
            asked.partitions.append(
                commit.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = commit.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=list(topics.values()),
        )
        response = self.client.call(request, OffsetCommitResponse, version)
        assert response.throttle_time_ms == 0
        return {
            (each.name or names[each.topic_id], partition.partition_index): ErrorCode(partition.error_code)
            for each in response.topics
            for partition in each.partitions
        }

    def commit_one(self, group_id: str, topic: Topic, offset: int, **rest: object) -> ErrorCode:
        """The code of the only partition."""
        ((_, code),) = self.commit(group_id, {(topic, 0): offset}, **rest).items()  # type: ignore[arg-type]
        return code

    def fetch_group(
        self,
        group_id: str,
        partitions: Iterable[Partition] | None,
        *,
        version: int = 10,
        require_stable: bool = False,
        member: Member | None = None,
    ) -> OffsetFetchResponseGroup:
        """The answer about one group, whatever its shape on the wire."""
        request = fetch.OffsetFetchRequest(require_stable=require_stable)
        indexes: dict[str, tuple[Topic, list[int]]] = {}
        for topic, index in partitions or ():
            indexes.setdefault(topic.name, (topic, []))[1].append(index)
        if version >= 8:
            wanted = [
                fetch.OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=found)
                for topic, found in indexes.values()
            ]
            request.groups = [
                fetch.OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=None if partitions is None else wanted,
                    member_id=None if member is None else member.member_id,
                    member_epoch=-1 if member is None else member.generation,
                )
            ]
            (group,) = self.client.call(request, OffsetFetchResponse, version).groups
            return group
        request.group_id = group_id
        request.topics = (
            None
            if partitions is None
            else [
                fetch.OffsetFetchRequestTopic(name=name, partition_indexes=found)
                for name, (_, found) in indexes.items()
            ]
        )
        response = self.client.call(request, OffsetFetchResponse, version)
        return OffsetFetchResponseGroup(
            group_id=group_id,
            error_code=response.error_code,
            topics=[
                OffsetFetchResponseTopics(
                    name=each.name,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition.partition_index,
                            partition.committed_offset,
                            partition.committed_leader_epoch,
                            partition.metadata,
                            partition.error_code,
                        )
                        for partition in each.partitions
                    ],
                )
                for each in response.topics
            ],
        )

    def fetch(
        self, group_id: str, *partitions: Partition, version: int = 10, require_stable: bool = False
    ) -> dict[tuple[str, int], int | ErrorCode]:
        """The offset of each partition, or its error; of all if none is named."""
        names = {topic.topic_id: topic.name for topic, _ in partitions}
        group = self.fetch_group(group_id, partitions or None, version=version, require_stable=require_stable)
        assert group.error_code == 0, ErrorCode(group.error_code)
        return {
            (each.name or names.get(each.topic_id, each.topic_id.hex()), partition.partition_index): ErrorCode(
                partition.error_code
            )
            if partition.error_code
            else partition.committed_offset
            for each in group.topics
            for partition in each.partitions
        }

    def fetch_one(
        self, group_id: str, topic: Topic, *, version: int = 10, require_stable: bool = False
    ) -> OffsetFetchResponsePartitions:
        group = self.fetch_group(group_id, [(topic, 0)], version=version, require_stable=require_stable)
        assert group.error_code == 0, ErrorCode(group.error_code)
        ((found,),) = (each.partitions for each in group.topics)
        return found

    def stage(
        self,
        producer: Transactional,
        group_id: str,
        offsets: dict[Partition, int],
        *,
        version: int = 5,
        member: Member = OUTSIDER,
        instance_id: str | None = None,
        metadata: str | None = "",
    ) -> Codes:
        """Commit as part of the producer's transaction."""
        topics: dict[str, staging.TxnOffsetCommitRequestTopic] = {}
        for (topic, index), offset in offsets.items():
            asked = topics.setdefault(topic.name, staging.TxnOffsetCommitRequestTopic(name=topic.name))
            asked.partitions.append(
                staging.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = staging.TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        response = self.client.call(request, TxnOffsetCommitResponse, version)
        return {
            (each.name, partition.partition_index): ErrorCode(partition.error_code)
            for each in response.topics
            for partition in each.partitions
        }

    def stage_one(self, producer: Transactional, group_id: str, topic: Topic, offset: int, **rest: object) -> ErrorCode:
        """The code of the only partition."""
        ((_, code),) = self.stage(producer, group_id, {(topic, 0): offset}, **rest).items()  # type: ignore[arg-type]
        return code

    def delete_offsets(self, group_id: str, *partitions: Partition) -> ErrorCode | Codes:
        """The code of the request, or those of the partitions."""
        topics: dict[str, delete.OffsetDeleteRequestTopic] = {}
        for topic, index in partitions:
            asked = topics.setdefault(topic.name, delete.OffsetDeleteRequestTopic(name=topic.name))
            asked.partitions.append(delete.OffsetDeleteRequestPartition(partition_index=index))
        request = delete.OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        response = self.client.call(request, OffsetDeleteResponse)
        if response.error_code:
            assert not response.topics
            return ErrorCode(response.error_code)
        return {
            (each.name, partition.partition_index): ErrorCode(partition.error_code)
            for each in response.topics
            for partition in each.partitions
        }

    # Groups.

    def list_groups(
        self, *, version: int = 5, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> dict[str, ListedGroup]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = self.client.call(request, ListGroupsResponse, version)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return {group.group_id: group for group in response.groups}

    def describe(self, *group_ids: str, version: int = 6, operations: bool = False) -> list[DescribedGroup]:
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=operations)
        return self.client.call(request, DescribeGroupsResponse, version).groups

    def delete(self, *group_ids: str, version: int = 2) -> dict[str, ErrorCode]:
        response = self.client.call(DeleteGroupsRequest(groups_names=list(group_ids)), DeleteGroupsResponse, version)
        return {result.group_id: ErrorCode(result.error_code) for result in response.results}

    # Members.

    def join(self, group_id: str, *topics: Topic, protocol_type: str = "consumer", sync: bool = True) -> Member:
        """The only member of a classic group; without `sync` the group waits for its assignment."""
        subscription = ConsumerProtocolSubscription(topics=[topic.name for topic in topics])
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + subscription.encode(0))],
        )
        first = self.client.call(request, JoinGroupResponse)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = first.member_id
        joined = self.client.call(request, JoinGroupResponse)
        assert joined.error_code == 0, ErrorCode(joined.error_code)
        member = Member(joined.member_id, joined.generation_id)
        if sync:
            synced = self.client.call(
                SyncGroupRequest(
                    group_id=group_id,
                    generation_id=member.generation,
                    member_id=member.member_id,
                    protocol_type=protocol_type,
                    protocol_name="range",
                    assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")],
                ),
                SyncGroupResponse,
            )
            assert synced.error_code == 0, ErrorCode(synced.error_code)
        return member

    def leave(self, group_id: str, member: Member) -> None:
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member.member_id)])
        assert self.client.call(request, LeaveGroupResponse).error_code == 0

    def join_modern(self, group_id: str, *topics: Topic) -> Member:
        """The only member of a consumer group (KIP-848)."""
        member_id = uuid.uuid4().hex
        request = modern.ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic.name for topic in topics],
            topic_partitions=[],
        )
        response = self.client.call(request, ConsumerGroupHeartbeatResponse)
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
        return Member(member_id, response.member_epoch)

    def leave_modern(self, group_id: str, member: Member) -> None:
        request = modern.ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member.member_id, member_epoch=-1)
        response = self.client.call(request, ConsumerGroupHeartbeatResponse)
        assert response.error_code == 0, (ErrorCode(response.error_code), response.error_message)
