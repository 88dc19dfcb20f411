"""What goes: by age, by size, by request, and with its topic. And what stays."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from tests.behaviour.client import (
    DELETE,
    EARLIEST,
    LATEST,
    Client,
    Topic,
    batch,
    eventually,
    now_ms,
)

SEGMENT_BYTES = 1 << 20
"""The least that Kafka allows; two batches of 600 kB never share one."""
LARGE = bytes(600_000)
HOUR_MS = 3_600_000


def earliest(client: Client, topic: Topic) -> int:
    return client.list_offset(topic, EARLIEST).offset


def settle(client: Client, witness: Topic) -> None:
    """Let retention look at every log at least once: what it would do, it has done when this returns."""
    before = client.list_offset(witness, LATEST).offset
    client.append(witness, b"ancient", timestamp=1)
    eventually(lambda: earliest(client, witness), lambda start: start == before + 1)


@pytest.fixture
def witness(client: Client, name: str) -> Topic:
    """A topic whose old records retention removes at its next round."""
    return client.create_topic(f"{name}-witness", retention_ms="1000")


def test_old_records_go_even_from_the_active_segment(client: Client, name: str) -> None:
    topic = client.create_topic(name, retention_ms=str(HOUR_MS))
    client.append(topic, b"stamped 1970", timestamp=1_000)
    eventually(lambda: earliest(client, topic), lambda start: start == 1)
    assert client.list_offset(topic, LATEST).offset == 1
    assert client.fetch(topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert client.append(topic, b"new") == 1
    assert [record.value for record in client.read_all(topic, offset=1)] == [b"new"]


def test_young_records_stay(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms=str(HOUR_MS))
    client.append(topic, b"young", timestamp=now_ms() - HOUR_MS // 2)
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_a_segment_stays_as_long_as_its_newest_record(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms=str(HOUR_MS))
    client.append(topic, b"young")
    client.append(topic, b"old", timestamp=1_000)
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_the_oldest_segment_that_stays_keeps_all_after_it(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms=str(HOUR_MS), segment_bytes=str(SEGMENT_BYTES))
    client.append(topic, LARGE)
    client.append(topic, LARGE, timestamp=1_000)
    client.append(topic, LARGE, timestamp=1_000)
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_a_record_of_the_far_future_stops_retention(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms=str(HOUR_MS), message_timestamp_after_max_ms="9223372036854775807")
    client.append(topic, b"from 2250", timestamp=now_ms() + 200 * 365 * 24 * HOUR_MS)
    client.append(topic, b"old", timestamp=1_000)
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_whole_segments_go_when_the_log_is_too_large(client: Client, name: str) -> None:
    topic = client.create_topic(name, retention_ms="-1", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(4):
        client.append(topic, LARGE)
    client.alter_topic(topic, retention_bytes=str(2 * len(LARGE)))
    # Four segments, each a little more than half the limit: with two gone, one more would leave less than the limit.
    eventually(lambda: earliest(client, topic), lambda start: start == 2)
    assert [record.offset for record in client.read_all(topic, offset=2)] == [2, 3]
    assert client.list_offset(topic, LATEST).offset == 4


def test_nothing_goes_without_a_limit(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms="-1", retention_bytes="-1", segment_bytes=str(SEGMENT_BYTES))
    for _ in range(3):
        client.append(topic, LARGE, timestamp=1_000)
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_a_compacted_topic_does_not_age(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, cleanup_policy="compact", retention_ms="1000")
    assert client.produce(topic, batch(b"old", key=b"k", timestamp=1_000)).error_code == 0
    settle(client, witness)
    assert earliest(client, topic) == 0


def test_retention_obeys_a_config_changed_while_the_node_runs(client: Client, name: str, witness: Topic) -> None:
    topic = client.create_topic(name, retention_ms="-1")
    client.append(topic, b"old", timestamp=1_000)
    settle(client, witness)
    assert earliest(client, topic) == 0
    client.alter_topic(topic, DELETE, retention_ms=None)
    eventually(lambda: earliest(client, topic), lambda start: start == 1)


# DeleteRecords.


def test_records_below_an_offset_are_deleted(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    answer = client.delete_records(topic, 2)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert earliest(client, topic) == 2
    assert client.list_offset(topic, LATEST).offset == 3
    assert client.produce(topic, batch(b"d")).log_start_offset == 2


def test_all_that_is_committed_is_deleted_by_minus_one(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    answer = client.delete_records(topic, -1)
    assert (answer.error_code, answer.low_watermark) == (0, 3)
    assert earliest(client, topic) == 3
    assert client.append(topic, b"d") == 3


@pytest.mark.parametrize("offset", [4, 1_000, -2])
def test_what_is_not_there_cannot_be_deleted(client: Client, topic: Topic, offset: int) -> None:
    client.append(topic, b"a", b"b", b"c")
    answer = client.delete_records(topic, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(client, topic) == 0


def test_what_is_gone_already_is_deleted_again_without_complaint(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    client.delete_records(topic, 2)
    answer = client.delete_records(topic, 1)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert earliest(client, topic) == 2


def test_a_compacted_topic_refuses_deletes(client: Client, name: str) -> None:
    topic = client.create_topic(name, cleanup_policy="compact")
    client.produce(topic, batch(b"a", key=b"k"))
    answer = client.delete_records(topic, 1)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)


def test_a_topic_both_compacted_and_deleted_allows_them(client: Client, name: str) -> None:
    topic = client.create_topic(name, cleanup_policy="compact,delete")
    client.produce(topic, batch(b"a", key=b"k"))
    assert client.delete_records(topic, 1).low_watermark == 1


def test_internal_topics_are_not_for_deleting(client: Client) -> None:
    created = client.try_create("__consumer_offsets")
    assert created.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
    internal = Topic("__consumer_offsets")
    eventually(
        lambda: client.delete_records(internal, 0).error_code, lambda code: code == ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes_records(client: Client, topic: Topic, version: int) -> None:
    client.append(topic, b"a", b"b")
    answer = client.delete_records(topic, 1, version=version)
    assert (answer.error_code, answer.low_watermark) == (0, 1)


# Topics.


def size_of(client: Client, topic: Topic) -> int | None:
    response = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return next(
        (
            partition.partition_size
            for directory in response.results
            for described in directory.topics
            if described.name == topic.name
            for partition in described.partitions
        ),
        None,
    )


def test_a_deleted_topic_is_gone_for_every_request(client: Client, name: str) -> None:
    topic = client.create_topic(name)
    client.append(topic, b"a")
    assert size_of(client, topic)
    assert client.delete_topic(topic).error_code == 0
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: client.describe_topic(name).error_code, lambda code: code == unknown)
    assert client.produce(topic, batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.produce(topic, batch(b"a"), version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch(topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.fetch(topic, 0, version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: size_of(client, topic), lambda size: size is None)


def test_a_topic_created_again_is_another_topic(client: Client, name: str) -> None:
    old = client.create_topic(name)
    client.append(old, b"old", b"old")
    client.delete_topic(old)
    new = client.create_topic(name)
    assert new.topic_id != old.topic_id
    assert client.append(new, b"new") == 0
    assert [record.value for record in client.read_all(new)] == [b"new"]
    assert client.fetch(old, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert client.produce(old, batch(b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # By name, an old client cannot tell them apart.
    assert client.fetch(old, 0, version=12).high_watermark == 1


def test_a_producer_of_the_old_topic_is_unknown_to_the_new(client: Client, name: str) -> None:
    old = client.create_topic(name)
    producer_id = client.new_producer_id()
    client.produce(old, batch(b"a", producer_id=producer_id, producer_epoch=5, sequence=0))
    client.delete_topic(old)
    new = client.create_topic(name)
    answer = client.produce(new, batch(b"a", producer_id=producer_id, producer_epoch=0, sequence=0))
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_topic_is_deleted_by_its_id(client: Client, name: str) -> None:
    topic = client.create_topic(name)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.topic_id)], timeout_ms=5_000)
    (answer,) = client.call(request, DeleteTopicsResponse).responses
    assert (answer.error_code, answer.name, answer.topic_id) == (0, name, topic.topic_id)
    (again,) = client.call(request, DeleteTopicsResponse).responses
    assert (again.error_code, again.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, topic.topic_id)


def test_a_topic_that_is_not_there_cannot_be_deleted(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)
    (answer,) = client.call(request, DeleteTopicsResponse).responses
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    assert answer.topic_id == ZERO_UUID


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_topics(client: Client, name: str, version: int) -> None:
    client.create_topic(name)
    request = DeleteTopicsRequest(timeout_ms=5_000)
    if version >= 6:
        request.topics = [DeleteTopicState(name=name)]
    else:
        request.topic_names = [name]
    (answer,) = client.call(request, DeleteTopicsResponse, version).responses
    assert (answer.error_code, answer.name) == (0, name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: client.describe_topic(name).error_code, lambda code: code == unknown)


def test_a_rolled_log_reads_as_one(client: Client, name: str) -> None:
    segments = 3
    topic = client.create_topic(name, segment_bytes=str(SEGMENT_BYTES))
    for _ in range(segments):
        client.append(topic, LARGE, b"small")
    assert [record.offset for record in client.read_all(topic)] == list(range(2 * segments))
    size = size_of(client, topic)
    assert size is not None
    assert size > segments * len(LARGE)
