"""Caps that Apache Kafka has no keys for, set low on a node: whoever does not fit in is refused, and told so."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.records import BatchBuilder
from ottla.wire.messages import fetch_request
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.behaviour.client import eventually
from tests.hostile.canary import produce
from tests.node_process import running_node
from tests.wire_client import WireClient

CAPS = {
    "ottla.partitions.max": 6,
    "ottla.partition.producers.max": 2,
    "ottla.fetch.session.partitions.max": 1,
    "ottla.groups.max": 3,
    "ottla.transactional.ids.max": 2,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 2,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    arguments = [part for key, value in CAPS.items() for part in ("--set", f"{key}={value}")]
    with (
        running_node(tmp_path_factory.mktemp("node"), *arguments) as node,
        WireClient(node.address) as client,
    ):
        assert create(client, "orders", 2) == ErrorCode.NONE
        # So that the topics of the coordinators exist, which are partitions too.
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["first"])
        assert client.call(find, FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=["first"])
        assert client.call(find, FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE
        yield client


def create(client: WireClient, name: str, partitions: int) -> ErrorCode:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return ErrorCode(client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics[0].error_code)


def send(client: WireClient, producer_id: int, sequence: int = 0) -> ErrorCode:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    builder.append(int(time.time() * 1000), None, b"a teapot")
    return ErrorCode(produce(client, "orders", bytes(builder.build()))[0])


def session_of(client: WireClient, *partitions: int) -> int:
    wanted = [fetch_request.FetchPartition(partition=index, partition_max_bytes=1000) for index in partitions]
    request = fetch_request.FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[fetch_request.FetchTopic(topic="orders", partitions=wanted)]
    )
    return client.call(request, FetchResponse, 12).session_id


def test_a_topic_that_does_not_fit_into_the_cluster(client: WireClient) -> None:
    assert create(client, "more", 2) == ErrorCode.POLICY_VIOLATION
    assert create(client, "one", 1) == ErrorCode.NONE


def test_a_producer_that_a_partition_has_no_room_for(client: WireClient) -> None:
    assert [send(client, producer_id) for producer_id in (1, 2, 3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert send(client, 1, sequence=1) == ErrorCode.NONE


def test_a_consumer_whose_partitions_no_session_has_room_for(client: WireClient) -> None:
    assert session_of(client, 0, 1) == 0
    assert session_of(client, 0) != 0


def commit(client: WireClient, group_id: str, version: int = 9) -> ErrorCode:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics)
    return ErrorCode(client.call(request, OffsetCommitResponse, version).topics[0].partitions[0].error_code)


def join(client: WireClient, group_id: str) -> ErrorCode:
    request = JoinGroupRequest(group_id=group_id, session_timeout_ms=10_000, protocol_type="consumer")
    request.protocols = [JoinGroupRequestProtocol(name="range")]
    return ErrorCode(client.call(request, JoinGroupResponse).error_code)


def join_anew(client: WireClient, group_id: str) -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="A" * 22, rebalance_timeout_ms=1000)
    request.subscribed_topic_names, request.topic_partitions = ["orders"], []
    return ErrorCode(client.call(request, ConsumerGroupHeartbeatResponse).error_code)


def commit_in_transaction(client: WireClient, group_id: str) -> ErrorCode:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    request = TxnOffsetCommitRequest(transactional_id="id", group_id=group_id, producer_id=1, producer_epoch=0)
    request.topics = [TxnOffsetCommitRequestTopic(name="orders", partitions=partitions)]
    return ErrorCode(client.call(request, TxnOffsetCommitResponse).topics[0].partitions[0].error_code)


def test_a_group_that_a_node_has_no_room_for(client: WireClient) -> None:
    loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    eventually(lambda: commit(client, "first"), lambda code: code not in loading)
    assert commit(client, "first") == ErrorCode.NONE
    assert join(client, "second") == ErrorCode.MEMBER_ID_REQUIRED
    assert join_anew(client, "third") == ErrorCode.NONE
    full = ErrorCode.POLICY_VIOLATION
    assert (commit(client, "fourth"), commit(client, "fourth", 7)) == (full, full)
    assert (join(client, "fourth"), join_anew(client, "fourth")) == (full, full)
    assert commit_in_transaction(client, "fourth") == full
    # Those that are there go on.
    assert commit(client, "first") == ErrorCode.NONE
    assert commit(client, "first", 7) == ErrorCode.NONE
    assert join(client, "second") == ErrorCode.MEMBER_ID_REQUIRED
    deletion = client.call(DeleteGroupsRequest(groups_names=["first"]), DeleteGroupsResponse)
    assert deletion.results[0].error_code == ErrorCode.NONE
    eventually(lambda: commit(client, "fourth"), lambda code: code is ErrorCode.NONE)
    assert commit(client, "fifth") == full


def begin(client: WireClient, transactional_id: str) -> ErrorCode:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return ErrorCode(client.call(request, InitProducerIdResponse, 4).error_code)


def test_a_transactional_id_that_a_node_has_no_room_for(client: WireClient) -> None:
    loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    # Their hashes lie in two partitions.
    for transactional_id in ("a", "b"):
        begun = eventually(lambda name=transactional_id: begin(client, name), lambda code: code not in loading)  # type: ignore[misc]
        assert begun == ErrorCode.NONE
    assert (begin(client, "c"), begin(client, "d")) == (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION)
    assert (begin(client, "a"), begin(client, "b")) == (ErrorCode.NONE, ErrorCode.NONE)
