"""While a coordinator reads its partition, whoever asks is told to come again: COORDINATOR_LOAD_IN_PROGRESS.

A heartbeat of a classic member is the one exception, as in Apache Kafka: nobody is out before his session begins anew.
The node runs in this process, and its loading is held back, so that it is certain to be under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordinators import runtime as coordinators
from ottla.broker.coordinators.loading import load
from ottla.errors import ErrorCode
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.runtime.disk import SystemDisk
from ottla.runtime.system import free_ports
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse
from tests.behaviour.client import Client, Topic, eventually
from tests.behaviour.groups import COMMIT_VERSIONS, FETCH_VERSIONS, Groups
from tests.behaviour.held_disk import HOST, PATIENCE_S, node_on
from tests.behaviour.transactions import V1, V2, Transactional, only

pytestmark = pytest.mark.ottla_only

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
GROUP, ID = "g", "t"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Held:
    """A node that has begun to load the coordinators of one topic."""

    def __init__(self, address: tuple[str, int], opened: threading.Event, topic: Topic) -> None:
        self.address = address
        self.topic = topic
        self._opened = opened

    def go_on(self) -> None:
        """Let them be loaded."""
        self._opened.set()


@contextmanager
def loading(internal: str, directory: Path) -> Iterator[Held]:
    """A node in its second life. In its first a group has committed 5, and a transactional id was taken."""
    opened = threading.Event()

    async def held_back(runtime: Any, served: Any) -> None:
        if runtime.topic == internal:
            await asyncio.to_thread(opened.wait, PATIENCE_S)
        await load(runtime, served)

    ports = free_ports(HOST, 2)
    with node_on(SystemDisk(), directory, SETTINGS, ports=ports) as address, Client(address) as client:
        topic = client.create_topic("orders")
        groups = Groups(client)
        groups.ready(GROUP)
        assert groups.commit_one(GROUP, topic, 5) is ErrorCode.NONE
        producer = Transactional(client, ID)
        producer.find_coordinator()
        producer.take()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(coordinators, "load", held_back)
        with node_on(SystemDisk(), directory, SETTINGS, ports=ports, is_new=False) as address:
            try:
                yield Held(address, opened, topic)
            finally:
                opened.set()


@pytest.fixture(scope="module")
def groups_loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with loading(GROUP_TOPIC, tmp_path_factory.mktemp("groups") / "data") as held:
        yield held


@pytest.fixture(scope="module")
def ids_loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    with loading(TRANSACTION_TOPIC, tmp_path_factory.mktemp("ids") / "data") as held:
        yield held


@pytest.fixture
def groups(groups_loading: Held) -> Iterator[Groups]:
    with Client(groups_loading.address) as client:
        eventually(
            lambda: [each.error_code for each in _found(client, 0, GROUP)],
            lambda codes: codes == [ErrorCode.NONE],
        )
        yield Groups(client)


@pytest.fixture
def topic(groups_loading: Held) -> Topic:
    return groups_loading.topic


@pytest.fixture
def producer(ids_loading: Held) -> Iterator[Transactional]:
    with Client(ids_loading.address) as client:
        eventually(
            lambda: [each.error_code for each in _found(client, 1, ID)],
            lambda codes: codes == [ErrorCode.NONE],
        )
        found = Transactional(client, ID)
        found.producer_id, found.epoch = 0, 0
        yield found


def _found(client: Client, kind: int, key: str) -> list[Any]:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return list(client.call(request, FindCoordinatorResponse, 4).coordinators)


# Groups.


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits(groups: Groups, topic: Topic, version: int) -> None:
    assert groups.commit_one(GROUP, topic, 1, version=version) is LOADING


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetches(groups: Groups, topic: Topic, version: int, require_stable: bool) -> None:
    answer = groups.fetch_group(GROUP, [(topic, 0)], version=version, require_stable=require_stable and version >= 7)
    if version >= 2:
        assert (answer.error_code, answer.topics) == (LOADING, [])
    else:
        ((partition,),) = (each.partitions for each in answer.topics)
        assert (partition.error_code, partition.committed_offset, partition.metadata) == (LOADING, -1, "")


def test_deletions_of_offsets(groups: Groups, topic: Topic) -> None:
    assert groups.delete_offsets(GROUP, (topic, 0)) is LOADING


@pytest.mark.parametrize("version", range(7))
def test_descriptions(groups: Groups, version: int) -> None:
    (described,) = groups.describe(GROUP, version=version)
    assert (described.group_id, described.error_code, described.members) == (GROUP, LOADING, [])


@pytest.mark.parametrize("version", range(3))
def test_deletions_of_groups(groups: Groups, version: int) -> None:
    assert groups.delete(GROUP, "h", version=version) == {GROUP: LOADING, "h": LOADING}


@pytest.mark.parametrize("version", range(6))
def test_lists_of_groups(groups: Groups, version: int) -> None:
    answer = groups.client.call(ListGroupsRequest(), ListGroupsResponse, version)
    assert (answer.error_code, answer.groups) == (LOADING, [])


@pytest.mark.parametrize("version", range(10))
def test_joins(groups: Groups, version: int) -> None:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    assert groups.client.call(request, JoinGroupResponse, version).error_code == LOADING


@pytest.mark.parametrize("version", range(6))
def test_syncs(groups: Groups, version: int) -> None:
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
    )
    assert groups.client.call(request, SyncGroupResponse, version).error_code == LOADING


@pytest.mark.parametrize("version", range(5))
def test_heartbeats_are_welcome(groups: Groups, version: int) -> None:
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    assert groups.client.call(request, HeartbeatResponse, version).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_leaves(groups: Groups, version: int) -> None:
    request = LeaveGroupRequest(group_id=GROUP)
    if version >= 3:
        request.members = [MemberIdentity(member_id="m")]
    else:
        request.member_id = "m"
    assert groups.client.call(request, LeaveGroupResponse, version).error_code == LOADING


@pytest.mark.parametrize("version", range(2))
def test_heartbeats_of_the_consumer_protocol(groups: Groups, version: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    answer = groups.client.call(request, ConsumerGroupHeartbeatResponse, version)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (LOADING, 0, None)


@pytest.mark.parametrize("version", range(2))
def test_descriptions_of_the_consumer_protocol(groups: Groups, version: int) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP])
    (described,) = groups.client.call(request, ConsumerGroupDescribeResponse, version).groups
    assert (described.group_id, described.error_code, described.members) == (GROUP, LOADING, [])


@pytest.mark.parametrize(
    ("version", "code"), [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
)
def test_commits_in_transactions_of_old_clients(groups: Groups, topic: Topic, version: int, code: ErrorCode) -> None:
    """They do not know how to wait for a load."""
    producer = Transactional(groups.client)
    producer.find_coordinator()
    producer.take()
    assert producer.add_offsets(GROUP) is ErrorCode.NONE
    assert groups.stage_one(producer, GROUP, topic, 7, version=version) is code


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_commits_in_transactions(groups: Groups, topic: Topic, version: int) -> None:
    producer = Transactional(groups.client)
    producer.find_coordinator()
    producer.take()
    assert producer.add_offsets(GROUP) is ErrorCode.NONE
    assert groups.stage_one(producer, GROUP, topic, 7, version=version) is LOADING


# Transactional ids.


@pytest.mark.parametrize("version", range(6))
def test_producer_ids(producer: Transactional, version: int) -> None:
    answer = producer.init(version=version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (LOADING, -1, -1)


@pytest.mark.parametrize("version", range(4))
def test_partitions_in_transactions(producer: Transactional, ids_loading: Held, version: int) -> None:
    assert only(producer.add(ids_loading.topic, 0, version=version)) is LOADING


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_that_brokers_add(producer: Transactional, ids_loading: Held, version: int) -> None:
    assert only(producer.add_as_broker(ids_loading.topic, 0, version=version)) is LOADING


@pytest.mark.parametrize("version", range(5))
def test_groups_in_transactions(producer: Transactional, version: int) -> None:
    assert producer.add_offsets(GROUP, version=version) is LOADING


@pytest.mark.parametrize("version", [V1, V2])
def test_ends_of_transactions(producer: Transactional, version: int) -> None:
    assert producer.end(commit=True, version=version).error_code == LOADING


def test_descriptions_of_transactions(producer: Transactional) -> None:
    assert producer.describe().error_code == LOADING


@pytest.mark.parametrize("version", range(3))
def test_lists_of_transactions(producer: Transactional, version: int) -> None:
    answer = producer.client.call(ListTransactionsRequest(), ListTransactionsResponse, version)
    assert (answer.error_code, answer.transaction_states) == (LOADING, [])


# And afterwards.


@pytest.mark.parametrize("internal", [GROUP_TOPIC, TRANSACTION_TOPIC])
def test_what_was_loaded_is_served(internal: str, tmp_path: Path) -> None:
    with loading(internal, tmp_path / "data") as held, Client(held.address) as client:
        groups, producer = Groups(client), Transactional(client, ID)
        held.go_on()
        eventually(lambda: groups.fetch_group(GROUP, [(held.topic, 0)]).error_code, lambda code: code == ErrorCode.NONE)
        assert groups.fetch_one(GROUP, held.topic).committed_offset == 5
        producer.find_coordinator()
        producer.take()
        assert producer.epoch == 1
