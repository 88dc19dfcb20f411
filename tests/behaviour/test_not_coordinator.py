"""A node that does not lead the partition of a group or a transactional id says so to whatever a coordinator is asked.

The node here has not even the topic: nobody has asked it for a coordinator yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.behaviour.client import Client, Topic
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.groups import COMMIT_VERSIONS, FETCH_VERSIONS, Groups

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


@pytest.fixture(scope="module")
def untouched(start_node: StartNode) -> Node:
    return start_node({})


@pytest.fixture
def groups(untouched: Node) -> Iterator[Groups]:
    with Client((untouched.host, untouched.port)) as client:
        yield Groups(client)


@pytest.fixture(scope="module")
def topic(untouched: Node) -> Topic:
    with Client((untouched.host, untouched.port)) as client:
        return client.create_topic("topic")


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits(groups: Groups, topic: Topic, version: int) -> None:
    assert groups.commit_one("g", topic, 1, version=version) is NOT_COORDINATOR


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetches(groups: Groups, topic: Topic, version: int, require_stable: bool) -> None:
    answer = groups.fetch_group("g", [(topic, 0)], version=version, require_stable=require_stable and version >= 7)
    if version >= 2:
        assert answer.error_code == NOT_COORDINATOR
        assert answer.topics == []
    else:
        ((partition,),) = (each.partitions for each in answer.topics)
        assert partition.error_code == NOT_COORDINATOR
        assert (partition.committed_offset, partition.metadata) == (-1, "")


def test_deletions_of_offsets(groups: Groups, topic: Topic) -> None:
    assert groups.delete_offsets("g", (topic, 0)) is NOT_COORDINATOR


@pytest.mark.parametrize("version", range(7))
def test_descriptions(groups: Groups, version: int) -> None:
    (described,) = groups.describe("g", version=version)
    assert (described.group_id, described.error_code) == ("g", NOT_COORDINATOR)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("", "", "")
    assert described.members == []


@pytest.mark.parametrize("version", range(3))
def test_deletions_of_groups(groups: Groups, version: int) -> None:
    assert groups.delete("g", "h", version=version) == {"g": NOT_COORDINATOR, "h": NOT_COORDINATOR}


@pytest.mark.parametrize("version", range(6))
def test_there_are_no_groups_to_list(groups: Groups, version: int) -> None:
    assert groups.list_groups(version=version) == {}


@pytest.mark.parametrize("version", range(10))
def test_joins(groups: Groups, version: int) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    assert groups.client.call(request, JoinGroupResponse, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(6))
def test_syncs(groups: Groups, version: int) -> None:
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
    )
    assert groups.client.call(request, SyncGroupResponse, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(groups: Groups, version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert groups.client.call(request, HeartbeatResponse, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(6))
def test_leaves(groups: Groups, version: int) -> None:
    request = LeaveGroupRequest(group_id="g")
    if version >= 3:
        request.members = [MemberIdentity(member_id="m")]
    else:
        request.member_id = "m"
    assert groups.client.call(request, LeaveGroupResponse, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(2))
def test_heartbeats_of_the_consumer_protocol(groups: Groups, version: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["topic"],
        topic_partitions=[],
    )
    answer = groups.client.call(request, ConsumerGroupHeartbeatResponse, version)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (NOT_COORDINATOR, 0, None)


@pytest.mark.parametrize("version", range(2))
def test_descriptions_of_the_consumer_protocol(groups: Groups, version: int) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (described,) = groups.client.call(request, ConsumerGroupDescribeResponse, version).groups
    assert (described.group_id, described.error_code, described.members) == ("g", NOT_COORDINATOR, [])


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_of_transactional_ids(groups: Groups, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=10_000)
    answer = groups.client.call(request, InitProducerIdResponse, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NOT_COORDINATOR, -1, -1)


@pytest.mark.parametrize("version", range(6))
def test_ends_of_transactions(groups: Groups, version: int) -> None:
    request = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
    assert groups.client.call(request, EndTxnResponse, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(5))
def test_groups_in_transactions(groups: Groups, version: int) -> None:
    request = AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
    assert groups.client.call(request, AddOffsetsToTxnResponse, version).error_code == NOT_COORDINATOR


def test_descriptions_of_transactions(groups: Groups) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["t"])
    (described,) = groups.client.call(request, DescribeTransactionsResponse, 0).transaction_states
    assert (described.transactional_id, described.error_code) == ("t", NOT_COORDINATOR)
