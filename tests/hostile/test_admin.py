"""Names, numbers and configs that no administrator means: Kafka's error codes, and nothing created."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse

from .harness import VICTIM_TOPIC, Target

NAMES = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "/",
    "a\\b",
    "nul\0byte",
    "new\nline",
    "x" * 250,
    "x" * 0x7FFF,
    "žluťoučký",
    "😀",
    "a b",
    "%2e%2e",
    "-" + "é",
    "\u202egnp.exe",
    "a:b",
]


def create(target: Target, topic: CreatableTopic) -> CreatableTopicResult:
    with target.client() as client:
        return client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse).topics[0]


def topic_names(target: Target) -> set[str | None]:
    with target.client() as client:
        return {topic.name for topic in client.call(MetadataRequest(topics=None), MetadataResponse).topics}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_that_is_no_topics(target: Target, name: str) -> None:
    before = topic_names(target)
    result = create(target, CreatableTopic(name=name, num_partitions=1, replication_factor=1))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with target.client() as client:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        assert client.call(asked, MetadataResponse).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        deleted = client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), DeleteTopicsResponse)
        assert deleted.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic_names(target) == before


def test_the_longest_name_is_a_topics(target: Target) -> None:
    assert create(target, CreatableTopic(name="y" * 249, num_partitions=1, replication_factor=1)).error_code == 0


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (-0x80000000, 1, ErrorCode.INVALID_PARTITIONS),
        (0x7FFFFFFF, 1, ErrorCode.POLICY_VIOLATION),
        (10_001, 1, ErrorCode.POLICY_VIOLATION),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 0x7FFF, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_no_topic_has(target: Target, partitions: int, replicas: int, code: ErrorCode) -> None:
    with target.costing() as cost:
        result = create(target, CreatableTopic(name="numbers", num_partitions=partitions, replication_factor=replicas))
    assert result.error_code == code
    assert cost[0].work < 3.5
    assert "numbers" not in topic_names(target)


def test_partitions_of_many_topics_are_counted_together(target: Target) -> None:
    """Each topic is within the limit of 10,000 metadata records; all of them are not, and none is made."""
    topics = [CreatableTopic(name=f"many-{n}", num_partitions=900, replication_factor=1) for n in range(1_000)]
    with target.client() as client, target.costing() as cost:
        answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=5000), CreateTopicsResponse)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert cost[0].work < 7
    assert cost[0].peak_mb < 64
    assert "many-0" not in topic_names(target)


@pytest.mark.parametrize("count", [0, -1, 1, 2, -0x80000000, 0x7FFFFFFF], ids=str)
def test_a_topic_does_not_grow_to_a_number_that_cannot_be(target: Target, count: int) -> None:
    with target.client() as client:
        grown = CreatePartitionsTopic(name=VICTIM_TOPIC, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[grown])
        code = client.call(request, CreatePartitionsResponse).results[0].error_code
    assert code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION)


def test_assignments_that_make_no_sense(target: Target) -> None:
    senseless: list[list[tuple[int, list[int]]]] = [
        [(0, [1, 1])],
        [(0, [])],
        [(0, [99])],
        [(0, [-1])],
        [(0, [0x7FFFFFFF])],
        [(1, [1])],
        [(-1, [1])],
        [(0, [1]), (0, [1])],
        [(0, [1]), (2, [1])],
    ]
    for assignments in senseless:
        topic = CreatableTopic(
            name="assigned",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in assignments
            ],
        )
        assert create(target, topic).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, assignments


def test_a_topic_named_twice_is_not_made(target: Target) -> None:
    twice = [CreatableTopic(name="twice", num_partitions=n, replication_factor=1) for n in (1, 2)]
    with target.client() as client:
        answer = client.call(CreateTopicsRequest(topics=twice, timeout_ms=5000), CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]
        deleted = [DeleteTopicState(name=VICTIM_TOPIC)] * 2
        answers = client.call(DeleteTopicsRequest(topics=deleted), DeleteTopicsResponse).responses
        assert {each.error_code for each in answers} == {ErrorCode.INVALID_REQUEST}
    assert "twice" not in topic_names(target)
    assert VICTIM_TOPIC in topic_names(target)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("", ""),
        ("retention.ms", "many"),
        ("retention.ms", "9" * 40),
        ("retention.ms", "-2"),
        ("segment.bytes", "-1"),
        ("segment.bytes", "1e3"),
        ("segment.bytes", "0x10"),
        ("segment.bytes", "١٢٣"),
        ("max.message.bytes", "-5"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("compression.gzip.level", "77"),
        ("message.timestamp.type", "Yesterday"),
        ("preallocate", "maybe"),
        ("flush.messages", "0"),
        ("x" * 0x7FFF, "y" * 0x7FFF),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_config_that_no_topic_takes(target: Target, name: str, value: str) -> None:
    config = CreatableTopicConfig(name=name, value=value)
    made = create(target, CreatableTopic(name="configured", num_partitions=1, replication_factor=1, configs=[config]))
    assert made.error_code == ErrorCode.INVALID_CONFIG
    resource = AlterConfigsResource(
        resource_type=2, resource_name=VICTIM_TOPIC, configs=[AlterableConfig(name=name, value=value)]
    )
    with target.client() as client:
        answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "key", "operation"),
    [
        (2, VICTIM_TOPIC, "retention.ms", 9),
        (2, VICTIM_TOPIC, "retention.ms", 2),
        (2, "no-such-topic", "retention.ms", 0),
        (2, "../..", "retention.ms", 0),
        (2, "", "retention.ms", 0),
        (4, "99", "log.retention.ms", 0),
        (4, "one", "log.retention.ms", 0),
        (4, "-1", "log.retention.ms", 0),
        (4, "²", "log.retention.ms", 0),
        (4, "", "listeners", 0),
        (4, "", "log.dirs", 0),
        (8, "1", "no.such.logger", 0),
        (8, "7", "root", 0),
        (16, "", "interval.ms", 0),
        (16, "sub", "no.such.key", 0),
        (32, "", "consumer.session.timeout.ms", 0),
        (99, "x", "y", 0),
        (-1, "x", "y", 0),
        (0, "x", "y", 0),
    ],
)
def test_a_change_that_cannot_be(target: Target, kind: int, name: str, key: str, operation: int) -> None:
    config = AlterableConfig(name=key, config_operation=operation, value="12")
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    with target.client() as client:
        answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    assert ErrorCode(answer.responses[0].error_code) in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    )


def test_offsets_and_sizes_below_zero(target: Target) -> None:
    with target.client() as client:
        for offset in (-2, -(1 << 63), (1 << 63) - 1):
            partition = DeleteRecordsPartition(partition_index=0, offset=offset)
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=VICTIM_TOPIC, partitions=[partition])])
            answer = client.call(request, DeleteRecordsResponse).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for max_bytes in (0, -1, -0x80000000, 0x7FFFFFFF):
            for offset in (-1, -(1 << 63), (1 << 63) - 1, 0):
                wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
                fetch = FetchRequest(
                    max_wait_ms=0 if offset else -5,
                    min_bytes=-1,
                    max_bytes=max_bytes,
                    session_epoch=-1,
                    topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=[wanted])],
                )
                found = client.call(fetch, FetchResponse, 12).responses[0].partitions[0]
                assert found.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if offset else ErrorCode.NONE)
        for partition_index in (-1, 2, 0x7FFFFFFF, -0x80000000):
            wanted = FetchPartition(partition=partition_index, fetch_offset=0, partition_max_bytes=100)
            fetch = FetchRequest(
                max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic=VICTIM_TOPIC, partitions=[wanted])]
            )
            found = client.call(fetch, FetchResponse, 12).responses[0].partitions[0]
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
