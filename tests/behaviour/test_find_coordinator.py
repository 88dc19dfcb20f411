"""Where groups and transactions are coordinated, and the topics that come to be when somebody first asks."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from tests.behaviour.client import LATEST, TOPIC_RESOURCE, Client, Topic, eventually
from tests.behaviour.conftest import Node, StartNode
from tests.behaviour.transactions import NOT_YET, Transactional

GROUP = 0
TRANSACTION = 1
SHARE = 2
TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
SET_ON_TOPIC = 1

VERSIONS = [(version, kind) for version in range(7) for kind in (GROUP, TRANSACTION) if version or kind == GROUP]
"""Version 0 knows only groups."""


def ask(client: Client, version: int, kind: int, *keys: str) -> list[Coordinator]:
    """What is said of each key; the old versions' one answer in the shape of the new."""
    request = FindCoordinatorRequest(key_type=kind)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        (request.key,) = keys
    response = client.call(request, FindCoordinatorResponse, version)
    if version >= 4:
        return response.coordinators
    return [
        Coordinator(
            key=keys[0],
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
    ]


def found(client: Client, version: int, kind: int, *keys: str) -> list[Coordinator]:
    """The same, once there are coordinators."""
    return eventually(
        lambda: ask(client, version, kind, *keys),
        lambda answers: all(answer.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE for answer in answers),
    )


@pytest.mark.parametrize(("version", "kind"), VERSIONS)
def test_the_coordinator_is_the_leader_of_the_partition(node: Node, client: Client, version: int, kind: int) -> None:
    keys = ("a", "b", "") if version >= 4 else ("a",)
    answers = found(client, version, kind, *keys)
    assert [(answer.key, answer.error_code) for answer in answers] == [(key, 0) for key in keys]
    leader = client.describe_topic(TOPICS[kind]).partitions[0].leader_id
    assert {(answer.node_id, answer.host, answer.port) for answer in answers} == {(leader, node.host, node.port)}
    # Success has words from version 1 to 3.
    assert {answer.error_message for answer in answers} == {"NONE" if 1 <= version <= 3 else ""}


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_no_keys_find_no_coordinators(client: Client, kind: int) -> None:
    assert ask(client, 6, kind) == []


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_a_coordinator_of_an_unknown_kind_is_a_bad_request(client: Client, version: int) -> None:
    (answer,) = ask(client, version, 7, "a")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
    assert answer.error_message


def test_share_groups_are_found_by_no_old_client(client: Client) -> None:
    (answer,) = ask(client, 5, SHARE, "group:AAAAAAAAAAAAAAAAAAAAAA:0")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


def overrides(client: Client, topic: str) -> dict[str, str | None]:
    """What is set on the topic itself."""
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    (result,) = client.call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs if config.config_source == SET_ON_TOPIC}


@pytest.fixture(scope="module")
def configured(start_node: StartNode) -> Node:
    return start_node(
        {
            "offsets.topic.num.partitions": "3",
            "offsets.topic.segment.bytes": "1048576",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.segment.bytes": "2097152",
            "transaction.state.log.min.isr": "1",
        }
    )


def test_the_topics_of_coordinators_are_made_on_first_use(configured: Node, on_apache: bool) -> None:
    """§5.11, 111. Kafka lets the client ask again; we tell the first who asks, unless it takes us long."""
    with Client((configured.host, configured.port)) as client:
        for topic in TOPICS.values():
            described = client.describe_topic(topic)
            assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert described.is_internal
        for kind, topic in TOPICS.items():
            (first,) = ask(client, 6, kind, "a")
            if on_apache or first.error_code:
                assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                found(client, 6, kind, "a")
            assert client.describe_topic(topic).error_code == 0
        groups, transactions = (client.describe_topic(topic) for topic in TOPICS.values())
        assert (groups.is_internal, transactions.is_internal) == (True, True)
        assert (len(groups.partitions), len(transactions.partitions)) == (3, 4)
        assert overrides(client, TOPICS[GROUP]) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1048576",
        }
        assert overrides(client, TOPICS[TRANSACTION]) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "2097152",
            "unclean.leader.election.enable": "false",
        }


def test_a_topic_that_cannot_be_made_leaves_no_coordinator(start_node: StartNode) -> None:
    node = start_node({"offsets.topic.replication.factor": "3"})
    with Client((node.host, node.port)) as client:
        for version in (3, 6, 6):
            (answer,) = ask(client, version, GROUP, "a")
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
            assert answer.error_message == ("The coordinator is not available." if version == 3 else "")
        assert client.describe_topic(TOPICS[GROUP]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "group_partition", "id_partition"), [("hello", 1, 2), ("Hello World", 0, 0), ("polygenelubricants", 0, 0)]
)
def test_a_name_is_coordinated_where_javas_hash_of_it_says(
    configured: Node, name: str, group_partition: int, id_partition: int
) -> None:
    """§5.8, 74. Java's hashes of these are 99,162,322 and -862,545,276, whose sign is dropped, and -2,147,483,648,
    which cannot do without and counts as 0."""
    with Client((configured.host, configured.port)) as client:
        for kind in TOPICS:
            found(client, 6, kind, name)
        producer = Transactional(client, name)
        producer.find_coordinator()
        before = ends(client, TOPICS[TRANSACTION])
        producer.take()
        after = ends(client, TOPICS[TRANSACTION])
        assert [index for index in after if after[index] != before[index]] == [id_partition]
        assert eventually(lambda: producer.add_offsets(name), lambda code: code not in NOT_YET) == 0
        assert [(each.topic, each.partitions) for each in producer.describe().topics] == [
            (TOPICS[GROUP], [group_partition])
        ]


def ends(client: Client, topic: str) -> dict[int, int]:
    """Where the records of each partition end."""
    described = client.describe_topic(topic)
    return {
        each.partition_index: client.list_offset(Topic(topic), LATEST, partition=each.partition_index).offset
        for each in described.partitions
    }
