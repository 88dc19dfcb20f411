"""The admin APIs, each version from its first to its last, and the refusals that tools rely on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC, ZERO_UUID, Uuid
from ottla.wire.messages import alter_configs_request as alter
from ottla.wire.messages import create_topics_request as create
from ottla.wire.messages import describe_configs_request as configs
from ottla.wire.messages import describe_quorum_request as quorum
from ottla.wire.messages import describe_topic_partitions_request as pages
from ottla.wire.messages import incremental_alter_configs_request as incremental
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult
from ottla.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import DescribeProducersResponse
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_config_resources_response import ListConfigResourcesResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.behaviour.client import Client, Topic, batch, eventually
from tests.behaviour.conftest import Node

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5

# Metadata.


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_brokers_topics_and_leaders(client: Client, node: Node, name: str, version: int) -> None:
    topic = client.create_topic(name, 2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=version < 4)
    response = client.call(request, MetadataResponse, version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, node.host, node.port)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert (response.cluster_id is not None) == (version >= 2)
    (described,) = response.topics
    assert (described.error_code, described.name, described.is_internal) == (0, name, False)
    assert described.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
    for index, partition in enumerate(sorted(described.partitions, key=lambda each: each.partition_index)):
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, index, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics(client: Client, topic: Topic, version: int) -> None:
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = client.call(request, MetadataResponse, version)
    assert topic.name in {each.name for each in response.topics}


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_of_no_topic(client: Client, topic: Topic, version: int) -> None:
    response = client.call(MetadataRequest(topics=[]), MetadataResponse, version)
    assert response.topics == []
    assert len(response.brokers) == 1


def test_metadata_by_id(client: Client, topic: Topic) -> None:
    stranger = Uuid(bytes(range(16)))
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=each, name=None) for each in (topic.topic_id, stranger)],
        allow_auto_topic_creation=False,
    )
    response = client.call(request, MetadataResponse)
    answers = {each.topic_id: (each.error_code, each.name) for each in response.topics}
    assert answers == {topic.topic_id: (0, topic.name), stranger: (ErrorCode.UNKNOWN_TOPIC_ID, None)}


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_came_with_version_12(client: Client, topic: Topic, version: int) -> None:
    """The two versions before have the field; asked by it, they could not answer for a topic that is not there."""
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name="")])
    (described,) = client.call(request, MetadataResponse, version).topics
    assert (described.error_code, described.topic_id) == (ErrorCode.INVALID_REQUEST, topic.topic_id)


def test_without_an_authorizer_everybody_may_do_everything(client: Client, topic: Topic) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic.name)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = client.call(request, MetadataResponse, 10)
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    cluster = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse)
    assert cluster.cluster_authorized_operations == 0b1_1111_1010_0000
    assert page(client, [topic.name], 1).topics[0].topic_authorized_operations == 0b1101_1111_1000
    # And nobody is told who did not ask.
    unasked = -(1 << 31)
    assert client.describe_topic(topic.name).topic_authorized_operations == unasked
    assert client.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_authorized_operations == unasked


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("nobody-has-this", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_metadata_of_what_does_not_exist(client: Client, bad: str, code: ErrorCode) -> None:
    described = client.describe_topic(bad)
    assert (described.error_code, described.name, described.partitions) == (code, bad, [])


def test_a_topic_is_created_on_first_use(client: Client, name: str) -> None:
    """Where it is allowed, as it is by default; only a client that asks for creation gets it."""
    assert client.describe_topic(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (described,) = eventually(
        lambda: client.call(request, MetadataResponse).topics, lambda topics: topics[0].error_code == 0
    )
    assert len(described.partitions) == 1


# The cluster.


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(client: Client, node: Node, version: int) -> None:
    response = client.call(DescribeClusterRequest(), DescribeClusterResponse, version)
    assert (response.error_code, response.controller_id) == (0, 1)
    assert response.cluster_id == client.call(MetadataRequest(topics=[]), MetadataResponse).cluster_id
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.is_fenced) == (1, node.host, node.port, False)


def test_controllers_are_not_described_by_brokers(client: Client) -> None:
    response = client.call(DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    response = client.call(DescribeClusterRequest(endpoint_type=9), DescribeClusterResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_of_one_is_described(client: Client, version: int) -> None:
    asked = quorum.TopicData(topic_name=METADATA_TOPIC, partitions=[quorum.PartitionData(partition_index=0)])
    response = client.call(quorum.DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse, version)
    assert response.error_code == 0
    ((partition,),) = (each.partitions for each in response.topics)
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert partition.leader_epoch >= 1
    assert partition.high_watermark > 0
    (voter,) = partition.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset >= partition.high_watermark
    assert (voter.replica_directory_id != ZERO_UUID) == (version >= 2)
    assert [each.node_id for each in response.nodes] == ([1] if version >= 2 else [])


def test_no_other_partition_has_a_quorum(client: Client, topic: Topic) -> None:
    asked = quorum.TopicData(topic_name=topic.name, partitions=[quorum.PartitionData(partition_index=0)])
    response = client.call(quorum.DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    ((partition,),) = (each.partitions for each in response.topics)
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Creating topics.


def create_one(
    client: Client, wanted: create.CreatableTopic, *, version: int = 7, dry: bool = False
) -> CreatableTopicResult:
    request = create.CreateTopicsRequest(topics=[wanted], timeout_ms=5_000, validate_only=dry)
    (result,) = client.call(request, CreateTopicsResponse, version).topics
    return result


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_topics(client: Client, name: str, version: int) -> None:
    result = client.try_create(name, 3, {"retention.ms": "5000"}, version=version)
    assert (result.error_code, result.name) == (0, name)
    assert (result.topic_id != ZERO_UUID) == (version >= 7)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        assert {"retention.ms": ("5000", DYNAMIC_TOPIC), "cleanup.policy": ("delete", DEFAULT)}.items() <= {
            each.name: (each.value, each.config_source) for each in result.configs
        }.items()
    described = eventually(lambda: client.describe_topic(name), lambda each: each.error_code == 0)
    assert len(described.partitions) == 3


def test_a_trial_creates_nothing(client: Client, name: str) -> None:
    wanted = create.CreatableTopic(name=name, num_partitions=4, replication_factor=1)
    result = create_one(client, wanted, dry=True)
    assert (result.error_code, result.num_partitions) == (0, 4)
    assert client.describe_topic(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_broker_chooses_what_is_left_to_it(client: Client, name: str) -> None:
    wanted = create.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    result = create_one(client, wanted)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)


def _assigned(*replicas: list[int]) -> list[create.CreatableReplicaAssignment]:
    return [
        create.CreatableReplicaAssignment(partition_index=index, broker_ids=each) for index, each in enumerate(replicas)
    ]


def _config(key: str, value: str | None) -> list[create.CreatableTopicConfig]:
    return [create.CreatableTopicConfig(name=key, value=value)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": METADATA_TOPIC}, ErrorCode.INVALID_REQUEST),
        ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "."}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "../escape"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x" * 250}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"configs": _config("no.such.key", "1")}, ErrorCode.INVALID_CONFIG),
        ({"configs": _config("retention.ms", "soon")}, ErrorCode.INVALID_CONFIG),
        ({"configs": _config("segment.bytes", "5")}, ErrorCode.INVALID_CONFIG),
        ({"configs": _config("cleanup.policy", "shred")}, ErrorCode.INVALID_CONFIG),
        ({"configs": _config("retention.ms", None)}, ErrorCode.INVALID_CONFIG),
        ({"assignments": _assigned([1])}, ErrorCode.INVALID_REQUEST),
        (
            {"num_partitions": -1, "replication_factor": -1, "assignments": _assigned([7])},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"num_partitions": -1, "replication_factor": -1, "assignments": _assigned([1, 1])},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"num_partitions": -1, "replication_factor": -1, "assignments": _assigned([])},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_is_refused(
    client: Client, name: str, change: dict[str, object], code: ErrorCode
) -> None:
    wanted = create.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for field, value in change.items():
        setattr(wanted, field, value)
    result = create_one(client, wanted)
    assert (result.error_code, result.name) == (code, wanted.name)
    assert result.error_message


def test_a_name_is_taken_once(client: Client, topic: Topic) -> None:
    result = client.try_create(topic.name)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_a_metric_would_confuse_is_taken_too(client: Client, name: str) -> None:
    client.create_topic(f"{name}.part")
    assert client.try_create(f"{name}_part").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_named_twice_in_one_request_is_refused(client: Client, name: str) -> None:
    wanted = create.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = create.CreateTopicsRequest(topics=[wanted, wanted], timeout_ms=5_000)
    response = client.call(request, CreateTopicsResponse)
    assert {each.error_code for each in response.topics} == {ErrorCode.INVALID_REQUEST}
    assert client.describe_topic(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Adding partitions.


def grow(client: Client, name: str, count: int, *, version: int = 3, dry: bool = False) -> CreatePartitionsTopicResult:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=dry)
    (result,) = client.call(request, CreatePartitionsResponse, version).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(client: Client, topic: Topic, version: int) -> None:
    client.append(topic, b"kept")
    assert grow(client, topic.name, 3, version=version, dry=True).error_code == 0
    assert len(client.describe_topic(topic.name).partitions) == 1
    assert grow(client, topic.name, 3, version=version).error_code == 0
    eventually(lambda: client.produce(topic, batch(b"new"), partition=2).error_code, lambda code: code == 0)
    assert [record.value for record in client.read_all(topic)] == [b"kept"]


def test_partitions_are_never_taken_away(client: Client, name: str) -> None:
    client.create_topic(name, 2)
    assert grow(client, name, 1).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(client, name, 2).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(client, name, 0).error_code == ErrorCode.INVALID_PARTITIONS
    assert grow(client, f"{name}-nobody", 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Topics in pages.


def page(
    client: Client, names: list[str], limit: int, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = pages.DescribeTopicPartitionsRequest(
        topics=[pages.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else pages.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return client.call(request, DescribeTopicPartitionsResponse)


def contents(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(each.name, [one.partition_index for one in each.partitions]) for each in response.topics]


def test_topics_are_described_page_by_page(client: Client, name: str) -> None:
    first, second = f"{name}-a", f"{name}-b"
    client.create_topic(second, 2)
    topic = client.create_topic(first, 3)
    response = page(client, [second, first], 2)
    assert contents(response) == [(first, [0, 1])]
    assert response.topics[0].topic_id == topic.topic_id
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.isr_nodes) == (1, 0, [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert response.next_cursor is not None
    cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert cursor == (first, 2)
    response = page(client, [second, first], 2, cursor)
    assert contents(response) == [(first, [2]), (second, [0])]
    assert response.next_cursor is not None
    cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert cursor == (second, 1)
    response = page(client, [second, first], 2, cursor)
    assert contents(response) == [(second, [1])]
    assert response.next_cursor is None


def test_a_page_that_ends_with_its_topic_points_at_the_next(client: Client, name: str) -> None:
    first, second = f"{name}-a", f"{name}-b"
    client.create_topic(first, 2)
    client.create_topic(second, 1)
    response = page(client, [first, second], 2)
    assert contents(response) == [(first, [0, 1])]
    assert response.next_cursor is not None
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == (second, 0)
    assert page(client, [first], 2).next_cursor is None


def test_a_page_holds_at_least_one_partition(client: Client, name: str) -> None:
    client.create_topic(name, 2)
    for limit in (0, -5):
        response = page(client, [name], limit)
        assert contents(response) == [(name, [0])]
        assert response.next_cursor is not None
        assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == (name, 1)


def test_a_cursor_that_no_page_held_is_refused(client: Client, topic: Topic) -> None:
    for cursor in ((topic.name, -1), (f"{topic.name}-other", 0), ("a", 0)):
        response = page(client, [topic.name], 5, cursor)
        assert [(each.name, each.error_code) for each in response.topics] == [(topic.name, ErrorCode.INVALID_REQUEST)]
        assert response.next_cursor is None
    # A cursor beyond the last partition is no mistake: partitions may have been counted before they were gone.
    assert contents(page(client, [topic.name], 5, (topic.name, 9))) == [(topic.name, [])]


def test_a_page_tells_of_topics_that_are_not_there(client: Client, name: str) -> None:
    response = page(client, [name, "no/slash"], 10)
    assert {each.name: each.error_code for each in response.topics} == {
        name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_all_topics_are_described_when_none_is_named(client: Client, topic: Topic) -> None:
    response = page(client, [], 2_000)
    names = [each.name for each in response.topics]
    assert topic.name in names
    assert names == sorted(each for each in names if each is not None)


# Log directories and producers.


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_described(client: Client, topic: Topic, version: int) -> None:
    client.append(topic, bytes(5_000))
    asked = DescribableLogDirTopic(topic=topic.name, partitions=[0])
    response = client.call(DescribeLogDirsRequest(topics=[asked]), DescribeLogDirsResponse, version)
    (directory,) = response.results
    assert (response.error_code, directory.error_code) == (0, 0)
    ((partition,),) = (each.partitions for each in directory.topics)
    assert (partition.partition_index, partition.offset_lag, partition.is_future_key) == (0, 0, False)
    assert 5_000 < partition.partition_size < 6_000
    assert (directory.total_bytes > directory.usable_bytes > 0) == (version >= 4)


def test_an_unknown_topic_is_in_no_directory(client: Client, name: str) -> None:
    asked = DescribableLogDirTopic(topic=name, partitions=[0])
    (directory,) = client.call(DescribeLogDirsRequest(topics=[asked]), DescribeLogDirsResponse).results
    assert directory.topics == []


def test_producers_of_what_does_not_exist(client: Client, topic: Topic, name: str) -> None:
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name=topic.name, partition_indexes=[0, 5]),
            TopicRequest(name=f"{name}-nobody", partition_indexes=[0]),
        ]
    )
    response = client.call(request, DescribeProducersResponse)
    codes = {(each.name, one.partition_index): one.error_code for each in response.topics for one in each.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(topic.name, 0): 0, (topic.name, 5): unknown, (f"{name}-nobody", 0): unknown}


# Configs.


def describe(
    client: Client, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = False
) -> DescribeConfigsResult:
    resource = configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = configs.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
    (result,) = client.call(request, DescribeConfigsResponse, version).results
    return result


def value_of(client: Client, topic: Topic, key: str) -> tuple[str | None, int]:
    (entry,) = describe(client, TOPIC, topic.name, key).configs
    return entry.value, entry.config_source


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_of_a_topic_are_described(client: Client, name: str, version: int) -> None:
    client.create_topic(name, retention_ms="5000")
    result = describe(client, TOPIC, name, "retention.ms", "segment.bytes", version=version, synonyms=True)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, name)
    entries = {each.name: each for each in result.configs}
    assert set(entries) == {"retention.ms", "segment.bytes"}
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("5000", DYNAMIC_TOPIC)
    assert (entries["segment.bytes"].value, entries["segment.bytes"].config_source) == ("1073741824", DEFAULT)
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    assert entries["retention.ms"].synonyms[0].name == "retention.ms"
    assert entries["retention.ms"].config_type == (5 if version >= 3 else 0)


def test_all_configs_are_described_when_none_is_named(client: Client, topic: Topic) -> None:
    keys = {each.name for each in describe(client, TOPIC, topic.name).configs}
    assert {"cleanup.policy", "retention.ms", "min.insync.replicas", "compression.type"} <= keys
    broker = {each.name: each for each in describe(client, BROKER, "1").configs}
    assert (broker["node.id"].value, broker["node.id"].read_only) == ("1", True)
    assert (
        broker["log.retention.check.interval.ms"].value,
        broker["log.retention.check.interval.ms"].config_source,
    ) == (
        "200",
        STATIC_BROKER,
    )
    assert not broker["log.retention.bytes"].read_only


@pytest.mark.parametrize(
    ("kind", "resource", "code"),
    [
        (TOPIC, "nobody-has-this", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_what_does_not_exist(client: Client, kind: int, resource: str, code: ErrorCode) -> None:
    assert describe(client, kind, resource).error_code == code


def alter_one(client: Client, topic: str, values: dict[str, str | None], *, version: int = 2, dry: bool = False) -> int:
    resource = alter.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[alter.AlterableConfig(name=key, value=value) for key, value in values.items()],
    )
    request = alter.AlterConfigsRequest(resources=[resource], validate_only=dry)
    (result,) = client.call(request, AlterConfigsResponse, version).responses
    return result.error_code


def increment(
    client: Client, topic: str, *changes: tuple[str, int, str | None], version: int = 1, dry: bool = False
) -> int:
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
    (result,) = client.call(request, IncrementalAlterConfigsResponse, version).responses
    assert (result.resource_type, result.resource_name) == (TOPIC, topic)
    return result.error_code


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_all_configs(client: Client, topic: Topic, version: int) -> None:
    assert alter_one(client, topic.name, {"retention.ms": "1000"}, version=version) == 0
    eventually(lambda: value_of(client, topic, "retention.ms"), lambda got: got == ("1000", DYNAMIC_TOPIC))
    assert alter_one(client, topic.name, {"segment.ms": "2000"}, version=version) == 0
    eventually(lambda: value_of(client, topic, "segment.ms"), lambda got: got == ("2000", DYNAMIC_TOPIC))
    assert value_of(client, topic, "retention.ms") == ("604800000", DEFAULT)


@pytest.mark.parametrize("version", range(2))
def test_increments_change_one_config_at_a_time(client: Client, topic: Topic, version: int) -> None:
    assert increment(client, topic.name, ("retention.ms", SET, "1000"), version=version) == 0
    assert increment(client, topic.name, ("cleanup.policy", APPEND, "compact"), version=version) == 0
    eventually(lambda: value_of(client, topic, "cleanup.policy"), lambda got: got == ("delete,compact", DYNAMIC_TOPIC))
    assert value_of(client, topic, "retention.ms") == ("1000", DYNAMIC_TOPIC)
    assert increment(client, topic.name, ("cleanup.policy", SUBTRACT, "delete"), version=version) == 0
    assert increment(client, topic.name, ("retention.ms", DELETE, None), version=version) == 0
    eventually(lambda: value_of(client, topic, "cleanup.policy"), lambda got: got == ("compact", DYNAMIC_TOPIC))
    eventually(lambda: value_of(client, topic, "retention.ms"), lambda got: got == ("604800000", DEFAULT))


def test_a_trial_alters_nothing(client: Client, topic: Topic) -> None:
    assert alter_one(client, topic.name, {"retention.ms": "1000"}, dry=True) == 0
    assert increment(client, topic.name, ("retention.ms", SET, "1000"), dry=True) == 0
    assert value_of(client, topic, "retention.ms") == ("604800000", DEFAULT)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("min.insync.replicas", SET, "0"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
def test_a_bad_change_is_refused(
    client: Client, topic: Topic, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert increment(client, topic.name, change) == code
    assert value_of(client, topic, "retention.ms") == ("604800000", DEFAULT)


def test_configs_of_an_unknown_topic_cannot_be_altered(client: Client, name: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert increment(client, name, ("retention.ms", SET, "1000")) == unknown
    assert alter_one(client, name, {"retention.ms": "1000"}) == unknown


def test_resources_with_configs_are_listed(client: Client, topic: Topic) -> None:
    response = client.call(ListConfigResourcesRequest(), ListConfigResourcesResponse)
    assert response.error_code == 0
    found = {(each.resource_type, each.resource_name) for each in response.config_resources}
    assert {(TOPIC, topic.name), (BROKER, "1"), (BROKER_LOGGER, "1")} <= found
    only = client.call(ListConfigResourcesRequest(resource_types=[BROKER]), ListConfigResourcesResponse)
    assert {each.resource_type for each in only.config_resources} == {BROKER}


def test_the_first_version_lists_metrics_subscriptions_only(client: Client, topic: Topic) -> None:
    response = client.call(ListConfigResourcesRequest(), ListConfigResourcesResponse, 0)
    assert response.error_code == 0
    assert topic.name not in {each.resource_name for each in response.config_resources}


def test_a_kind_of_resource_that_does_not_exist_is_not_listed(client: Client) -> None:
    response = client.call(ListConfigResourcesRequest(resource_types=[99]), ListConfigResourcesResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


# Every version of the questions about offsets.


@pytest.mark.parametrize("version", range(2, 5))
def test_every_version_tells_where_an_epoch_ended(client: Client, topic: Topic, version: int) -> None:
    client.append(topic, b"a", b"b")
    found = client.epoch_end(topic, 0, version=version)
    assert (found.error_code, found.partition, found.leader_epoch, found.end_offset) == (0, 0, 0, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.call(MetadataRequest(topics=[]), MetadataResponse).brokers,
        lambda client: client.call(DescribeClusterRequest(), DescribeClusterResponse).brokers,
    ],
)
def test_a_client_without_a_name_is_served(node: Node, ask: Callable[[Client], object]) -> None:
    with Client((node.host, node.port), client_id=None) as anonymous:
        assert ask(anonymous)
