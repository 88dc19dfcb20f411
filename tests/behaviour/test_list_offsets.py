"""ListOffsets: by name (earliest, latest …) and by time, exact to the record."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.records import CompressionType
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from tests.behaviour.client import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Client,
    Topic,
    batch,
    now_ms,
)

CODECS = list(CompressionType)


@pytest.fixture
def keeper(client: Client, name: str) -> Topic:
    """A topic that keeps records of any age."""
    return client.create_topic(name, retention_ms="-1")


def found(client: Client, topic: Topic, timestamp: int) -> tuple[int, int, int]:
    answer = client.list_offset(topic, timestamp)
    assert answer.error_code == 0
    return answer.timestamp, answer.offset, answer.leader_epoch


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_finds_the_first_record_at_or_after_it(client: Client, keeper: Topic, codec: CompressionType) -> None:
    """Not the first batch: the record inside it, also when the batch is compressed."""
    client.produce(keeper, batch(b"0", b"1", b"2", timestamps=[1_000, 2_000, 3_000], compression=codec))
    client.produce(keeper, batch(b"3", b"4", b"5", timestamps=[4_000, 5_000, 6_000], compression=codec))
    assert found(client, keeper, 0) == (1_000, 0, 0)
    assert found(client, keeper, 1_000) == (1_000, 0, 0)
    assert found(client, keeper, 1_001) == (2_000, 1, 0)
    assert found(client, keeper, 3_001) == (4_000, 3, 0)
    assert found(client, keeper, 5_500) == (6_000, 5, 0)
    assert found(client, keeper, 6_001) == (-1, -1, -1)


def test_times_need_not_rise_with_offsets(client: Client, keeper: Topic) -> None:
    client.produce(keeper, batch(b"0", b"1", b"2", timestamps=[5_000, 1_000, 9_000]))
    client.produce(keeper, batch(b"3", b"4", timestamps=[2_000, 3_000]))
    assert found(client, keeper, 2_000) == (5_000, 0, 0)
    assert found(client, keeper, 6_000) == (9_000, 2, 0)
    assert found(client, keeper, 9_001) == (-1, -1, -1)
    assert found(client, keeper, MAX_TIMESTAMP) == (9_000, 2, 0)


def test_the_newest_time_is_that_of_the_first_record_that_has_it(client: Client, keeper: Topic) -> None:
    client.produce(keeper, batch(b"0", b"1", b"2", timestamps=[1_000, 7_000, 7_000]))
    client.produce(keeper, batch(b"3", timestamps=[7_000]))
    assert found(client, keeper, MAX_TIMESTAMP) == (7_000, 1, 0)


def test_an_empty_log_has_no_times(client: Client, topic: Topic) -> None:
    assert found(client, topic, MAX_TIMESTAMP) == (-1, -1, -1)
    assert found(client, topic, 0) == (-1, -1, -1)
    assert found(client, topic, EARLIEST)[:2] == (-1, 0)
    assert found(client, topic, LATEST)[:2] == (-1, 0)


def test_log_append_time_is_looked_up_too(client: Client, name: str) -> None:
    topic = client.create_topic(name, message_timestamp_type="LogAppendTime")
    stamped = [client.produce(topic, batch(b"a", b"b", timestamp=5)).log_append_time_ms for _ in range(2)]
    assert found(client, topic, stamped[0]) == (stamped[0], 0, 0)
    assert found(client, topic, 6) == (stamped[0], 0, 0)
    assert found(client, topic, stamped[1] + 1) == (-1, -1, -1)


def test_what_was_deleted_is_not_found(client: Client, keeper: Topic) -> None:
    client.produce(keeper, batch(b"0", b"1", b"2", timestamps=[1_000, 2_000, 3_000]))
    client.produce(keeper, batch(b"3", timestamps=[4_000]))
    client.delete_records(keeper, 3)
    assert found(client, keeper, EARLIEST) == (-1, 3, 0)
    assert found(client, keeper, 500) == (4_000, 3, 0)


def test_a_lookup_works_across_many_batches_and_an_index(client: Client, name: str) -> None:
    topic = client.create_topic(name, retention_ms="-1", index_interval_bytes="100")
    for index in range(60):
        client.produce(topic, batch(b"a" * 50, b"b" * 50, timestamps=[index * 100, index * 100 + 50]))
    for target in (0, 1, 49, 50, 51, 2_949, 2_950, 3_000, 5_901, 5_950):
        expected = -(-target // 50)
        assert found(client, topic, target) == (expected * 50, expected, 0)
    assert found(client, topic, MAX_TIMESTAMP) == (5_950, 119, 0)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_knows_earliest_latest_and_times(client: Client, topic: Topic, version: int) -> None:
    at = now_ms()
    client.append(topic, b"a", b"b", timestamp=at)
    assert client.list_offset(topic, EARLIEST, version=version).offset == 0
    latest = client.list_offset(topic, LATEST, version=version)
    assert (latest.offset, latest.timestamp) == (2, -1)
    assert latest.leader_epoch == (0 if version >= 4 else -1)
    by_time = client.list_offset(topic, at, version=version)
    assert (by_time.offset, by_time.timestamp) == (0, at)


@pytest.mark.parametrize(
    ("special", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)]
)
def test_special_times_came_with_versions(client: Client, topic: Topic, special: int, since: int) -> None:
    client.append(topic, b"a")
    early = client.list_offset(topic, special, version=since - 1)
    assert (early.error_code, early.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert client.list_offset(topic, special, version=since).error_code == 0


def test_without_tiers_all_is_local(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b")
    client.delete_records(topic, 1)
    assert found(client, topic, EARLIEST_LOCAL) == (-1, 1, 0)
    assert found(client, topic, LATEST_TIERED)[1] == -1
    assert found(client, topic, EARLIEST_PENDING_UPLOAD)[1] == -1


def test_a_special_time_that_does_not_exist_is_refused(client: Client, topic: Topic) -> None:
    assert client.list_offset(topic, -7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_partition_asked_for_twice_is_a_bad_request(client: Client, topic: Topic) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=each) for each in (EARLIEST, LATEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=twice)])
    response = client.call(request, ListOffsetsResponse)
    codes = {each.error_code for answered in response.topics for each in answered.partitions}
    assert codes == {ErrorCode.INVALID_REQUEST}
