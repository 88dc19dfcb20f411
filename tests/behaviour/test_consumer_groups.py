"""Consumer groups of KIP-848 on the wire: what each heartbeat is told, and every refusal."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence

import pytest

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Uuid
from ottla.wire.messages import incremental_alter_configs_request as alter
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.behaviour.client import SET, Client, Topic, eventually
from tests.behaviour.conftest import Node, StartNode
from tests.group_plans import plan_bytes, planned

GROUP_RESOURCE = 32
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.max.size": "3",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}
"""So that a target comes at once, a session can be short, and a group full."""


@pytest.fixture(scope="module")
def group_node(start_node: StartNode) -> Node:
    return start_node(SETTINGS)


class GroupClient(Client):
    """A client with the verbs of consumer groups; every verb is one request."""

    group_id = ""

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        group_id: str | None = None,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Mapping[Uuid, Sequence[int]] | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int | None = None,
        version: int | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """One that joins says everything, unless told otherwise."""
        if rebalance_timeout_ms is None:
            rebalance_timeout_ms = 60_000 if epoch == 0 else -1
        if epoch == 0 and owned is None:
            owned = {}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id if group_id is None else group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [TopicPartitions(topic_id=topic, partitions=list(parts)) for topic, parts in owned.items()],
        )
        return self.call(request, ConsumerGroupHeartbeatResponse, version)

    def join(self, member_id: str, **how: object) -> ConsumerGroupHeartbeatResponse:
        response = self.heartbeat(member_id, 0, **how)  # type: ignore[arg-type]
        assert response.error_code == 0, (response.error_code, response.error_message)
        return response

    def describe(self, group_id: str | None = None) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.group_id if group_id is None else group_id], include_authorized_operations=True
        )
        return self.call(request, ConsumerGroupDescribeResponse).groups[0]

    def classic_join(
        self,
        member_id: str,
        topic: str,
        *,
        protocol: str = "range",
        protocol_type: str = "consumer",
        owned: Sequence[int] = (),
    ) -> JoinGroupResponse:
        said = ConsumerProtocolSubscription(topics=[topic])
        if owned:
            said.owned_partitions = [OwnedPartitions(topic=topic, partitions=list(owned))]
        metadata = b"\x00\x01" + said.encode(1)
        request = JoinGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            session_timeout_ms=20_000,
            rebalance_timeout_ms=30_000,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        return self.call(request, JoinGroupResponse)

    def classic_sync(
        self,
        member_id: str,
        generation_id: int,
        *,
        protocol: str = "range",
        plan: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            generation_id=generation_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=other, assignment=plan_bytes(given, 1))
                for other, given in (plan or {}).items()
            ],
        )
        return self.call(request, SyncGroupResponse)

    def classic_heartbeat(self, member_id: str, generation_id: int) -> str:
        request = HeartbeatRequest(group_id=self.group_id, member_id=member_id, generation_id=generation_id)
        return ErrorCode(self.call(request, HeartbeatResponse).error_code).name

    def commit(self, topic: Topic, partition: int, member_id: str, epoch: int, *, version: int | None = None) -> str:
        """In the newest version a topic goes by its id, before by its name."""
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="" if version is None else topic.name,
                    topic_id=topic.topic_id if version is None else ZERO_UUID,
                    partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)],
                )
            ],
        )
        response = self.call(request, OffsetCommitResponse, version)
        return ErrorCode(response.topics[0].partitions[0].error_code).name

    def fetch_offsets(self, member_id: str | None, epoch: int) -> str:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=self.group_id, member_id=member_id, member_epoch=epoch, topics=None)
            ]
        )
        return ErrorCode(self.call(request, OffsetFetchResponse).groups[0].error_code).name

    def configure(self, **values: str) -> None:
        """Give the group keys of its own, and wait until they hold."""
        wanted = {name.replace("_", "."): value for name, value in values.items()}
        request = alter.IncrementalAlterConfigsRequest(
            resources=[
                alter.AlterConfigsResource(
                    resource_type=GROUP_RESOURCE,
                    resource_name=self.group_id,
                    configs=[
                        alter.AlterableConfig(name=name, config_operation=SET, value=value)
                        for name, value in wanted.items()
                    ],
                )
            ]
        )
        result = self.call(request, IncrementalAlterConfigsResponse).responses[0]
        assert result.error_code == 0, result.error_message


@pytest.fixture
def group(group_node: Node) -> Iterator[GroupClient]:
    with GroupClient((group_node.host, group_node.port)) as connected:
        connected.group_id = f"group-{uuid.uuid4().hex[:12]}"
        wait_for_coordinator(connected)
        yield connected


def wait_for_coordinator(client: GroupClient) -> None:
    """The topic is there and its partition is served."""

    def ask() -> int:
        found = client.call(
            FindCoordinatorRequest(key_type=0, coordinator_keys=[client.group_id]), FindCoordinatorResponse
        ).coordinators[0]
        return found.error_code or client.describe().error_code

    eventually(ask, lambda code: code == ErrorCode.GROUP_ID_NOT_FOUND, seconds=30)


@pytest.fixture
def topic(group: GroupClient, name: str) -> Topic:
    return group.create_topic(name, 4)


def told(response: ConsumerGroupHeartbeatResponse) -> dict[Uuid, list[int]] | None:
    """The assignment in an answer that is no refusal."""
    assert response.error_code == 0, (ErrorCode(response.error_code).name, response.error_message)
    if response.assignment is None:
        return None
    return {topic.topic_id: sorted(topic.partitions) for topic in response.assignment.topic_partitions}


def refusal(response: ConsumerGroupHeartbeatResponse) -> tuple[str, str | None]:
    return ErrorCode(response.error_code).name, response.error_message


# Joining, sharing, leaving.


def test_the_first_member_gets_everything_and_is_described(group: GroupClient, topic: Topic) -> None:
    joined = group.join("m1", topics=[topic.name], rack="r1", instance="i1")
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m1", 2, 5_000)
    assert told(joined) == {topic.topic_id: [0, 1, 2, 3]}
    again = group.heartbeat("m1", 2, instance="i1")
    assert (again.member_epoch, told(again)) == (2, None)
    described = group.describe()
    assert (described.error_code, described.error_message, described.group_state) == (0, None, "Stable")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "uniform")
    assert described.authorized_operations == sum(1 << operation for operation in (3, 6, 8, 10, 11))
    (member,) = described.members
    assert (member.member_id, member.member_epoch, member.instance_id, member.rack_id) == ("m1", 2, "i1", "r1")
    assert (member.client_id, member.client_host, member.member_type) == ("test", "/127.0.0.1", 1)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([topic.name], "")
    for assignment in (member.assignment, member.target_assignment):
        (given,) = assignment.topic_partitions
        assert (given.topic_id, given.topic_name, sorted(given.partitions)) == (
            topic.topic_id,
            topic.name,
            [0, 1, 2, 3],
        )


def test_a_second_member_waits_for_what_the_first_gives_up(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    second = group.join("m2", topics=[topic.name])
    assert (second.member_epoch, told(second)) == (3, {})
    assert group.describe().group_state == "Reconciling"
    first = group.heartbeat("m1", 2)
    assert first.member_epoch == 2
    kept = told(first)
    assert kept is not None
    assert len(kept[topic.topic_id]) == 2
    assert told(group.heartbeat("m2", 3)) is None
    assert group.heartbeat("m1", 2, owned=kept).member_epoch == 3
    given = told(group.heartbeat("m2", 3))
    assert given is not None
    assert sorted(kept[topic.topic_id] + given[topic.topic_id]) == [0, 1, 2, 3]
    assert group.describe().group_state == "Stable"


def test_what_is_being_given_up_is_described_as_held(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    group.join("m2", topics=[topic.name])
    group.heartbeat("m1", 2)
    held = {
        member.member_id: sorted(index for given in member.assignment.topic_partitions for index in given.partitions)
        for member in group.describe().members
    }
    assert held == {"m1": [0, 1, 2, 3], "m2": []}


def test_a_member_that_leaves(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    left = group.heartbeat("m1", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m1", -1)
    assert (left.heartbeat_interval_ms, left.assignment) == (0, None)
    described = group.describe()
    assert (described.group_state, described.group_epoch, described.members) == ("Empty", 3, [])
    assert refusal(group.heartbeat("m1", 2)) == (
        "UNKNOWN_MEMBER_ID",
        f"Member m1 is not a member of group {group.group_id}.",
    )


def test_a_full_request_is_told_the_assignment_again(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    everything = {topic.topic_id: [0, 1, 2, 3]}
    full = group.heartbeat("m1", 2, topics=[topic.name], owned=everything, rebalance_timeout_ms=60_000)
    assert told(full) == everything
    assert told(group.heartbeat("m1", 2, topics=[topic.name], owned=everything)) is None


def test_before_version_one_the_coordinator_makes_the_member_id(group: GroupClient, topic: Topic) -> None:
    joined = group.join("", topics=[topic.name], version=0)
    assert joined.member_id
    assert str(uuid.UUID(hex=_hex(joined.member_id)))
    assert group.heartbeat(joined.member_id, 2, version=0).error_code == 0


def _hex(member_id: str) -> str:
    """Kafka writes its ids in base64, we as everybody does."""
    from base64 import urlsafe_b64decode

    return member_id if "-" in member_id and len(member_id) == 36 else urlsafe_b64decode(member_id + "==").hex()


def test_topics_that_come_and_grow(group: GroupClient, topic: Topic, name: str) -> None:
    later = f"{name}-later"
    group.join("m1", topics=[topic.name, later])
    made = group.create_topic(later, 1)
    wanted = {topic.topic_id: [0, 1, 2, 3], made.topic_id: [0]}
    assert eventually(lambda: heartbeat_again(group, 2), lambda got: got is not None) == wanted
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=later, count=2, assignments=None)], timeout_ms=10_000
    )
    assert group.call(grown, CreatePartitionsResponse).results[0].error_code == 0
    wanted[made.topic_id] = [0, 1]
    assert eventually(lambda: heartbeat_again(group, 3), lambda got: got is not None) == wanted


def heartbeat_again(group: GroupClient, epoch: int) -> dict[Uuid, list[int]] | None:
    return told(group.heartbeat("m1", epoch))


def test_a_silent_member_is_out_after_its_session(group: GroupClient, topic: Topic) -> None:
    group.configure(consumer_session_timeout_ms="700", consumer_heartbeat_interval_ms="200")

    def interval_ms() -> int:
        return group.join("m1", topics=[topic.name]).heartbeat_interval_ms

    assert eventually(interval_ms, lambda interval: interval == 200) == 200
    described = eventually(group.describe, lambda described: described.group_state == "Empty")
    assert described.members == []


def test_who_does_not_give_up_in_time_is_out(group: GroupClient, topic: Topic) -> None:
    """It sends heartbeats, which are no excuse."""
    group.join("m1", topics=[topic.name], rebalance_timeout_ms=300)
    group.join("m2", topics=[topic.name])
    kept = told(group.heartbeat("m1", 2))
    assert kept is not None
    assert len(kept[topic.topic_id]) == 2
    assert told(group.heartbeat("m2", 3)) is None
    eventually(lambda: group.heartbeat("m1", 2).error_code, lambda code: code == ErrorCode.UNKNOWN_MEMBER_ID)
    assert told(group.heartbeat("m2", 3)) == {topic.topic_id: [0, 1, 2, 3]}
    assert [member.member_id for member in group.describe().members] == ["m2"]


def test_an_assignor_may_be_asked_for(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name], assignor="range")
    assert group.describe().assignor_name == "range"
    group.join("m2", topics=[topic.name], assignor="range")
    targets = {
        member.member_id: [index for given in member.target_assignment.topic_partitions for index in given.partitions]
        for member in group.describe().members
    }
    assert targets == {"m1": [0, 1], "m2": [2, 3]}


def test_a_regular_expression_is_resolved_by_the_coordinator(group: GroupClient, topic: Topic) -> None:
    joined = group.join("m1", regex=f"{topic.name[:-2]}..")
    assert (joined.member_epoch, told(joined)) == (1, {})
    got = eventually(lambda: heartbeat_again(group, 1), lambda got: got is not None)
    assert got == {topic.topic_id: [0, 1, 2, 3]}
    (member,) = group.describe().members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], f"{topic.name[:-2]}..")


def test_a_regular_expression_matches_whole_names(group: GroupClient, topic: Topic) -> None:
    group.join("m1", regex=f"{topic.name[:-1]}", topics=[topic.name])
    group.join("m2", regex=f"{topic.name[:-1]}")

    def targets() -> dict[str, int]:
        for member_id in ("m1", "m2"):
            epoch = next(member.member_epoch for member in group.describe().members if member.member_id == member_id)
            group.heartbeat(member_id, epoch)
        return {
            member.member_id: sum(len(given.partitions) for given in member.target_assignment.topic_partitions)
            for member in group.describe().members
        }

    assert eventually(targets, lambda counts: counts["m1"] == 4) == {"m1": 4, "m2": 0}


# Static members.


def test_a_static_member_leaves_for_a_while_and_comes_back_as_another(group: GroupClient, topic: Topic) -> None:
    joined = group.join("m1", topics=[topic.name], instance="i1")
    assert refusal(group.heartbeat("m2", 0, topics=[topic.name], instance="i1")) == (
        "UNRELEASED_INSTANCE_ID",
        "Static member m2 with instance id i1 cannot join the group because the instance id is owned by m1 member.",
    )
    left = group.heartbeat("m1", -2, instance="i1")
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m1", -2)
    (member,) = group.describe().members
    assert member.member_epoch == -2
    back = group.join("m2", topics=[topic.name], instance="i1")
    assert (back.member_epoch, told(back)) == (2, told(joined))
    assert refusal(group.heartbeat("m1", 2, instance="i1")) == (
        "FENCED_INSTANCE_ID",
        "Static member m1 with instance id i1 was fenced by member m2.",
    )
    assert group.describe().group_epoch == 2, "nobody else was bothered"
    assert refusal(group.heartbeat("m1", -1, instance="i1"))[0] == "FENCED_INSTANCE_ID"
    assert refusal(group.heartbeat("m1", -2, instance="i1"))[0] == "FENCED_INSTANCE_ID"
    assert group.heartbeat("m2", -1, instance="i1").error_code == 0
    assert group.describe().group_state == "Empty"


def test_an_unknown_instance(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    for epoch in (2, -1, -2):
        assert refusal(group.heartbeat("m1", epoch, instance="nobody")) == (
            "UNKNOWN_MEMBER_ID",
            "Instance id nobody is unknown.",
        )


def test_a_static_member_that_left_for_a_while_is_at_no_epoch(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name], instance="i1")
    group.heartbeat("m1", -2, instance="i1")
    assert refusal(group.heartbeat("m1", 2, instance="i1"))[0] == "FENCED_MEMBER_EPOCH"
    assert told(group.join("m1", topics=[topic.name], instance="i1")) == {topic.topic_id: [0, 1, 2, 3]}


# Members of the classic protocol, in the same group.


def test_a_classic_member_in_a_consumer_group(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    required = group.classic_join("", topic.name)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = group.classic_join(required.member_id, topic.name)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (0, required.member_id, 3)
    assert (joined.protocol_type, joined.protocol_name, joined.leader, joined.members) == ("consumer", "range", "", [])
    synced = group.classic_sync(joined.member_id, 3)
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (0, "consumer", "range")
    assert planned(synced.assignment) == {}
    assert group.classic_heartbeat(joined.member_id, 3) == "NONE", "it waits for what m1 has"
    kept = told(group.heartbeat("m1", 2))
    assert kept is not None
    group.heartbeat("m1", 2, owned=kept)
    assert group.classic_heartbeat(joined.member_id, 3) == "REBALANCE_IN_PROGRESS"
    again = group.classic_join(joined.member_id, topic.name)
    assert (again.error_code, again.generation_id) == (0, 3)
    given = planned(group.classic_sync(joined.member_id, 3).assignment)
    assert sorted(given[topic.name] + kept[topic.topic_id]) == [0, 1, 2, 3]
    assert group.classic_heartbeat(joined.member_id, 3) == "NONE"
    types = {member.member_id: member.member_type for member in group.describe().members}
    assert types == {"m1": 1, joined.member_id: 0}


@pytest.mark.ottla_only  # There it is let in, and two members believe to own the partition until it has synced.
def test_a_classic_member_that_was_dropped_unheard_begins_anew(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    refused = group.classic_join("dropped", topic.name, owned=[0])
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.member_id for member in group.describe().members] == ["m1"]
    assert group.classic_join("dropped", topic.name).error_code == 0


def test_refusals_of_classic_members(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    refused = group.classic_join("", topic.name, protocol_type="connect")
    assert ErrorCode(refused.error_code).name == "INCONSISTENT_GROUP_PROTOCOL"
    member_id = group.classic_join("", topic.name).member_id
    assert group.classic_join(member_id, topic.name).error_code == 0
    other = group.classic_join("other", topic.name, protocol="sticky")
    assert ErrorCode(other.error_code).name == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.classic_heartbeat(member_id, 2) == "ILLEGAL_GENERATION"
    assert group.classic_heartbeat("m1", 2) == "UNKNOWN_MEMBER_ID"
    assert group.classic_heartbeat("nobody", 3) == "UNKNOWN_MEMBER_ID"
    for refusal_of, sync in {
        "ILLEGAL_GENERATION": group.classic_sync(member_id, 9),
        "INCONSISTENT_GROUP_PROTOCOL": group.classic_sync(member_id, 3, protocol="sticky"),
        "UNKNOWN_MEMBER_ID": group.classic_sync("m1", 2),
    }.items():
        assert ErrorCode(sync.error_code).name == refusal_of


def test_a_group_goes_over_to_the_other_protocol_and_back(group: GroupClient, topic: Topic) -> None:
    member_id = group.classic_join("", topic.name).member_id
    joined = group.classic_join(member_id, topic.name)
    assert (joined.error_code, joined.leader, joined.generation_id) == (0, member_id, 1)
    plan = {member_id: {topic.name: [0, 1, 2, 3]}}
    assert planned(group.classic_sync(member_id, 1, plan=plan).assignment) == plan[member_id]
    assert refusal(group.heartbeat("m1", 4)) == (
        "GROUP_ID_NOT_FOUND",
        f"Group {group.group_id} is not a consumer group.",
    )
    assert group.describe().error_message == f"Group {group.group_id} is not a consumer group."
    new = group.join("m1", topics=[topic.name])
    assert (new.member_epoch, told(new)) == (2, {})
    assert {member.member_id: member.member_type for member in group.describe().members} == {member_id: 0, "m1": 1}
    assert group.classic_heartbeat(member_id, 1) == "REBALANCE_IN_PROGRESS"
    group.heartbeat("m1", -1)
    assert group.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.classic_heartbeat(member_id, 1) in ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")
    back = group.classic_join(member_id, topic.name)
    assert (back.error_code, back.leader, back.generation_id) == (0, member_id, 3)


def test_a_group_of_another_protocol_type_does_not_go_over(group: GroupClient, topic: Topic) -> None:
    member_id = group.classic_join("", topic.name, protocol_type="connect").member_id
    assert group.classic_join(member_id, topic.name, protocol_type="connect").error_code == 0
    assert refusal(group.heartbeat("m1", 0, topics=[topic.name])) == (
        "GROUP_ID_NOT_FOUND",
        f"Cannot upgrade classic group {group.group_id} to consumer group because the group does not use the consumer "
        "embedded protocol.",
    )


def test_an_administrator_makes_members_leave(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    group.join("m2", topics=[topic.name], instance="i")
    request = LeaveGroupRequest(
        group_id=group.group_id,
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in (("m1", None), ("", "i"), ("nobody", None), ("other", "i"))
        ],
    )
    left = group.call(request, LeaveGroupResponse)
    codes = [ErrorCode(member.error_code).name for member in left.members]
    assert codes == ["NONE", "NONE", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"]
    assert group.describe().group_state == "Empty"


# Offsets.


def test_who_may_commit(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    assert group.commit(topic, 0, "m1", 2) == "NONE"
    assert group.commit(topic, 0, "m1", 3) == "STALE_MEMBER_EPOCH"
    assert group.commit(topic, 0, "m1", 1) == "STALE_MEMBER_EPOCH", "it was not yet its own then"
    assert group.commit(topic, 0, "nobody", 2) == "UNKNOWN_MEMBER_ID"
    assert group.commit(topic, 0, "", -1) == "UNKNOWN_MEMBER_ID"
    assert group.commit(topic, 0, "m1", 2, version=8) == "UNSUPPORTED_VERSION"


def test_an_older_epoch_may_commit_what_the_member_had_then(group: GroupClient, topic: Topic) -> None:
    """KIP-1251: the answer that told of the new epoch may be on its way."""
    group.join("m1", topics=[topic.name])
    group.join("m2", topics=[topic.name])
    kept = told(group.heartbeat("m1", 2))
    assert kept is not None
    given_up = next(index for index in range(4) if index not in kept[topic.topic_id])
    assert group.commit(topic, given_up, "m1", 2) == "NONE", "it has yet to give it up"
    group.heartbeat("m1", 2, owned=kept)
    assert group.commit(topic, kept[topic.topic_id][0], "m1", 2) == "NONE"
    assert group.commit(topic, given_up, "m1", 2) == "STALE_MEMBER_EPOCH"
    assert group.commit(topic, given_up, "m1", 3) == "NONE", "with its own epoch a member may commit anything"


def test_who_may_ask_for_offsets(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    assert group.fetch_offsets("m1", 2) == "NONE"
    assert group.fetch_offsets("m1", 1) == "STALE_MEMBER_EPOCH"
    assert group.fetch_offsets("nobody", 2) == "UNKNOWN_MEMBER_ID"
    assert group.fetch_offsets(None, -1) == "NONE"


# Refusals.


def test_epochs_that_are_not_the_members(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    assert refusal(group.heartbeat("m1", 3)) == (
        "FENCED_MEMBER_EPOCH",
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin.",
    )
    assert refusal(group.heartbeat("m1", 1, owned={})) == (
        "FENCED_MEMBER_EPOCH",
        "The consumer group member has a smaller member epoch (1) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin.",
    )


def test_the_epoch_before_will_do_for_what_the_member_has(group: GroupClient, topic: Topic) -> None:
    group.join("m1", topics=[topic.name])
    group.join("m2", topics=[topic.name])
    kept = told(group.heartbeat("m1", 2))
    assert kept is not None
    assert group.heartbeat("m1", 2, owned=kept).member_epoch == 3
    assert group.heartbeat("m1", 2, owned=kept).member_epoch == 3
    assert refusal(group.heartbeat("m1", 2))[0] == "FENCED_MEMBER_EPOCH"
    assert refusal(group.heartbeat("m1", 2, owned={topic.topic_id: [0, 1, 2]}))[0] == "FENCED_MEMBER_EPOCH"


def test_groups_and_members_that_are_not(group: GroupClient, topic: Topic) -> None:
    assert refusal(group.heartbeat("m1", 4)) == ("GROUP_ID_NOT_FOUND", f"Consumer group {group.group_id} not found.")
    assert refusal(group.heartbeat("m1", -1)) == ("GROUP_ID_NOT_FOUND", f"Group {group.group_id} not found.")
    group.join("m1", topics=[topic.name])
    for epoch in (2, -1):
        assert refusal(group.heartbeat("m2", epoch)) == (
            "UNKNOWN_MEMBER_ID",
            f"Member m2 is not a member of group {group.group_id}.",
        )


def test_describing_what_is_not(group: GroupClient) -> None:
    described = group.describe()
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {group.group_id} not found."
    described = group.describe("")
    assert (described.group_id, described.error_code) == ("", ErrorCode.INVALID_GROUP_ID)


def test_a_group_that_is_full(group: GroupClient, topic: Topic) -> None:
    for member in ("m1", "m2", "m3"):
        group.join(member, topics=[topic.name])
    assert refusal(group.heartbeat("m4", 0, topics=[topic.name])) == (
        "GROUP_MAX_SIZE_REACHED",
        "The consumer group has reached its maximum capacity of 3 members.",
    )
    group.join("m3", topics=[topic.name])


def test_an_assignor_that_nobody_has(group: GroupClient, topic: Topic) -> None:
    assert refusal(group.heartbeat("m1", 0, topics=[topic.name], assignor="sticky")) == (
        "UNSUPPORTED_ASSIGNOR",
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
    )


def test_an_expression_that_does_not_parse(group: GroupClient) -> None:
    code, message = refusal(group.heartbeat("m1", 0, regex="a[b"))
    assert code == "INVALID_REGULAR_EXPRESSION"
    assert message is not None
    assert message.startswith("SubscribedTopicRegex `a[b` is not a valid regular expression: missing")
    assert group.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("sentence", "how"),
    [
        ("MemberId can't be empty.", {"member_id": ""}),
        ("MemberId can't be empty.", {"member_id": " "}),
        ("MemberId can't be empty.", {"member_id": "", "epoch": 1, "version": 0}),
        ("MemberId can't be empty.", {"member_id": "", "epoch": -1, "version": 0}),
        ("GroupId can't be empty.", {"group_id": ""}),
        ("InstanceId can't be empty.", {"instance": ""}),
        ("RackId can't be empty.", {"rack": ""}),
        ("RebalanceTimeoutMs must be provided in first request.", {"rebalance_timeout_ms": -1}),
        ("TopicPartitions must be empty when (re-)joining.", {"owned": {Uuid(b"x" * 16): [0]}}),
        (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            {"topics": None},
        ),
        ("InstanceId can't be null.", {"epoch": -2}),
        ("MemberEpoch is invalid.", {"epoch": -3}),
    ],
)
def test_requests_that_say_too_little_or_too_much(group: GroupClient, sentence: str, how: dict[str, object]) -> None:
    arguments: dict[str, object] = {"member_id": "m1", "epoch": 0, "topics": ["a"], **how}
    response = group.heartbeat(**arguments)  # type: ignore[arg-type]
    assert refusal(response) == ("INVALID_REQUEST", sentence)
    assert (response.member_id, response.member_epoch) == (None, 0)
