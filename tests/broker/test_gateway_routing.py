"""What a gateway tells its clients, to whom it sends what they ask, and how the answers become one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from ottla.broker.gateway.fetching import Fetches, without_session
from ottla.broker.gateway.presenting import GATEWAY_ID, Address, present
from ottla.broker.gateway.routing import (
    ROUTES,
    ByKey,
    ByKeys,
    ByPartition,
    Everywhere,
    forget_leaders,
    join,
    route_of,
    split,
)
from ottla.config.key import InvalidConfig
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.model import TopicKey, Uuid
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import (
    describe_cluster_response,
    describe_topic_partitions_response,
    fetch_request,
    fetch_response,
    find_coordinator_response,
    list_groups_response,
    list_offsets_request,
    list_offsets_response,
    metadata_response,
    produce_request,
    produce_response,
)
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup

HERE = 1
TOPIC_ID = Uuid(b"0123456789abcdef")


class Three:
    """Three brokers: partition n is led by n, group "gN" and transactional id "tN" are coordinated by N."""

    node_id = HERE

    def leader(self, topic: TopicKey, partition: int) -> int | None:
        return partition if topic in ("t", TOPIC_ID) and 1 <= partition <= 3 else None

    def group_coordinator(self, group_id: str) -> int | None:
        return int(group_id[1:]) if group_id.startswith("g") else None

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        return int(transactional_id[1:]) if transactional_id.startswith("t") else None

    def brokers(self) -> Iterable[int]:
        return [3, 1, 2]


def parts_of(request: Message, version: int | None = None) -> dict[int, Message]:
    assert request.API_KEY is not None
    route = route_of(request.API_KEY, request.VERSIONS[-1] if version is None else version)
    assert route is not None
    return split(route, request, Three())


def produced(**indexes: list[int]) -> produce_request.ProduceRequest:
    return produce_request.ProduceRequest(
        acks=-1,
        topic_data=[
            produce_request.TopicProduceData(
                name=topic,
                partition_data=[produce_request.PartitionProduceData(index=index, records=b"x") for index in some],
            )
            for topic, some in indexes.items()
        ],
    )


def test_what_one_leader_has_goes_to_it_as_it_is() -> None:
    request = produced(t=[2, 2])
    assert parts_of(request) == {2: request}
    assert parts_of(request)[2] is request


def test_a_request_is_cut_by_leaders_and_what_nobody_leads_stays_here() -> None:
    parts = parts_of(produced(t=[1, 2, 3, 9], other=[0]))
    assert {
        node: [
            (topic.name, [each.index for each in topic.partition_data])
            for topic in part.topic_data  # type: ignore[attr-defined]
        ]
        for node, part in parts.items()
    } == {1: [("t", [1, 9]), ("other", [0])], 2: [("t", [2])], 3: [("t", [3])]}


def test_topics_are_found_by_their_ids_too() -> None:
    topic = fetch_request.FetchTopic(topic_id=TOPIC_ID, partitions=[fetch_request.FetchPartition(partition=3)])
    assert list(parts_of(fetch_request.FetchRequest(topics=[topic]))) == [3]


def test_requests_of_groups_and_transactions_go_to_their_coordinators() -> None:
    assert list(parts_of(HeartbeatRequest(group_id="g3"))) == [3]
    assert list(parts_of(HeartbeatRequest(group_id="?"))) == [HERE]
    assert list(parts_of(InitProducerIdRequest(transactional_id="t2"))) == [2]
    assert list(parts_of(InitProducerIdRequest(transactional_id=None))) == [HERE]
    assert list(parts_of(OffsetFetchRequest(group_id="g2"), 7)) == [2]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g1", "g2", "g3", "g2")]
    cut = parts_of(OffsetFetchRequest(groups=groups), 8)
    assert {node: [each.group_id for each in part.groups] for node, part in cut.items()} == {  # type: ignore[attr-defined]
        1: ["g1"],
        2: ["g2", "g2"],
        3: ["g3"],
    }
    assert list(parts_of(DescribeGroupsRequest(groups=[]))) == [HERE]
    assert list(parts_of(ListGroupsRequest())) == [1, 2, 3]


def test_every_route_names_fields_that_there_are() -> None:
    for key, route in ROUTES.items():
        request, response = APIS[key].request(), APIS[key].response()
        match route:
            case ByPartition():
                assert hasattr(request, route.topics)
            case ByKey() | ByKeys():
                assert hasattr(request, route.field)
            case Everywhere():
                pass
        if not isinstance(route, ByKey):
            assert isinstance(getattr(response, route.answered), list)


def test_answers_become_one() -> None:
    def listed(*names: str, error: int = 0, throttle: int = 0) -> Message:
        groups = [list_groups_response.ListedGroup(group_id=name) for name in names]
        return list_groups_response.ListGroupsResponse(groups=groups, error_code=error, throttle_time_ms=throttle)

    joined = join(Everywhere("groups"), [listed("a"), listed("b", "c", error=15, throttle=7), listed()])
    assert isinstance(joined, list_groups_response.ListGroupsResponse)
    assert [each.group_id for each in joined.groups] == ["a", "b", "c"]
    assert (joined.error_code, joined.throttle_time_ms) == (15, 7)
    topic = list_offsets_response.ListOffsetsTopicResponse(name="t")
    answer = list_offsets_response.ListOffsetsResponse(topics=[topic])
    assert join(ROUTES[list_offsets_request.ListOffsetsRequest.API_KEY or 0], [answer]) is answer


def test_leaders_are_not_named() -> None:
    wire = produce_response
    partition = wire.PartitionProduceResponse(
        index=0, error_code=6, current_leader=wire.LeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    )
    answer = wire.ProduceResponse(
        responses=[wire.TopicProduceResponse(name="t", partition_responses=[partition])],
        node_endpoints=[wire.NodeEndpoint(node_id=3, host="inside", port=1)],
    )
    forget_leaders(answer)
    assert answer.node_endpoints == []
    assert partition.current_leader == wire.LeaderIdAndEpoch()
    data = fetch_response.PartitionData(preferred_read_replica=2)
    fetched = fetch_response.FetchResponse(responses=[fetch_response.FetchableTopicResponse(partitions=[data])])
    forget_leaders(fetched)
    assert data.preferred_read_replica == -1


def test_one_broker_is_presented() -> None:
    address = Address("outside", 9)
    wire = metadata_response
    led = wire.MetadataResponsePartition(leader_id=3, replica_nodes=[3, 2], isr_nodes=[3], offline_replicas=[2])
    orphan = wire.MetadataResponsePartition(leader_id=-1, error_code=5, replica_nodes=[3])
    answer = wire.MetadataResponse(
        brokers=[wire.MetadataResponseBroker(node_id=3, host="inside", port=1)],
        controller_id=3,
        topics=[wire.MetadataResponseTopic(name="t", partitions=[led, orphan])],
    )
    present(answer, address)
    assert answer.brokers == [wire.MetadataResponseBroker(node_id=GATEWAY_ID, host="outside", port=9)]
    assert answer.controller_id == led.leader_id == GATEWAY_ID
    assert led.replica_nodes == led.isr_nodes == [GATEWAY_ID]
    assert (orphan.leader_id, led.offline_replicas) == (-1, [])

    found = find_coordinator_response.Coordinator(key="g", node_id=2, host="inside", port=1)
    missing = find_coordinator_response.Coordinator(key="h", node_id=-1, error_code=15)
    present(find_coordinator_response.FindCoordinatorResponse(coordinators=[found, missing]), address)
    assert (found.node_id, found.host, found.port, missing.node_id) == (GATEWAY_ID, "outside", 9, -1)
    old = find_coordinator_response.FindCoordinatorResponse(node_id=2, host="inside", port=1)
    present(old, address)
    assert (old.node_id, old.host, old.port) == (GATEWAY_ID, "outside", 9)

    cluster = describe_cluster_response.DescribeClusterResponse(controller_id=3)
    present(cluster, address)
    assert (cluster.controller_id, [each.host for each in cluster.brokers]) == (GATEWAY_ID, ["outside"])
    page = describe_topic_partitions_response
    partition = page.DescribeTopicPartitionsResponsePartition(leader_id=2, replica_nodes=[2, 3])
    topic = page.DescribeTopicPartitionsResponseTopic(partitions=[partition])
    present(page.DescribeTopicPartitionsResponse(topics=[topic]), address)
    assert (partition.leader_id, partition.replica_nodes) == (GATEWAY_ID, [GATEWAY_ID])


# Fetches at several leaders.


def fetch_of(*partitions: int, offset: int = 0) -> fetch_request.FetchRequest:
    wanted = [fetch_request.FetchPartition(partition=each, fetch_offset=offset) for each in partitions]
    return fetch_request.FetchRequest(
        max_wait_ms=500, topics=[fetch_request.FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=wanted)]
    )


def answer_of(partition: int, records: bytes) -> fetch_response.FetchResponse:
    data = fetch_response.PartitionData(partition_index=partition, records=records, high_watermark=7)
    topic = fetch_response.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])
    return fetch_response.FetchResponse(responses=[topic])


def test_the_first_leader_that_has_something_ends_the_wait_and_the_others_stay_asked() -> None:
    async def story() -> None:
        asked: list[tuple[int, asyncio.Future[Message]]] = []

        def ask(node: int, part: Message) -> asyncio.Future[Message]:
            asked.append((node, asyncio.get_running_loop().create_future()))
            return asked[-1][1]

        fetches = Fetches()
        parts: dict[int, Message] = {2: fetch_of(2), 3: fetch_of(3)}
        first = asyncio.ensure_future(fetches.finish(parts, fetches.start(parts, 12, ask)))
        asked[0][1].set_result(answer_of(2, b"records"))
        answer = await first
        shown = {each.partition_index: each for topic in answer.responses for each in topic.partitions}
        assert shown[2].records == b"records"
        assert (shown[3].records, shown[3].error_code, shown[3].high_watermark) == (b"", 0, 1)
        assert answer.session_id == 0

        # The client goes on: of 2 from further on, of 3 from where it was, which has been asked for already.
        parts = {2: fetch_of(2, offset=5), 3: fetch_of(3)}
        second = asyncio.ensure_future(fetches.finish(parts, fetches.start(parts, 12, ask)))
        assert [node for node, _ in asked] == [2, 3, 2]
        asked[2][1].set_result(answer_of(2, b""))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.done()  # Nothing yet: it waits for the other.
        asked[1][1].set_result(answer_of(3, b"late"))
        answer = await second
        assert {each.partition_index: each.records for topic in answer.responses for each in topic.partitions} == {
            2: b"",
            3: b"late",
        }

        # What has been passed on is not passed on twice.
        fetches.start({3: fetch_of(3)}, 12, ask)
        assert [node for node, _ in asked] == [2, 3, 2, 3]

    asyncio.run(story())


def test_clients_get_no_session() -> None:
    request = fetch_of(1)
    request.session_epoch, request.rack_id = 0, "a"
    assert without_session(request) is ErrorCode.NONE
    assert (request.session_id, request.session_epoch, request.rack_id) == (0, -1, "")
    request.session_id, request.session_epoch = 17, 3
    assert without_session(request) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# What cannot be.


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ottla.gateway.listeners": "NONE"}, "NONE, which is none of the node's listeners"),
        ({"ottla.gateway.listeners": "PLAINTEXT"}, "give the gateway a listener of its own"),
        ({"ottla.gateway.listeners": "CONTROLLER"}, "give the gateway a listener of its own"),
    ],
)
def test_a_gateway_that_cannot_be_is_refused(settings: dict[str, str], sentence: str) -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2,GATE://127.0.0.1:3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GATE:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:2",
        "log.dirs": "data",
    }
    assert NodeConfig(properties | {"ottla.gateway.listeners": "gate"}).gateway_listeners == {"GATE"}
    with pytest.raises(InvalidConfig, match=sentence):
        NodeConfig(properties | settings)
