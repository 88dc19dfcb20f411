"""`flush.messages`: a record counts, for its producer and for readers, only when it is on the disk.

The node runs in this process on a disk whose fsyncs the test holds back, so that "before" and "after" are certain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import LATEST, Client, Topic, batch, eventually, produced, records_of, values_of
from tests.behaviour.held_disk import HeldDisk, node_on

pytestmark = pytest.mark.ottla_only

FLUSHED = "flushed"


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk(FLUSHED)


@pytest.fixture
def client(disk: HeldDisk, tmp_path: Path) -> Iterator[Client]:
    with node_on(disk, tmp_path / "data") as address, Client(address) as connected:
        yield connected


def assert_unseen(client: Client, topic: Topic, offset: int) -> None:
    """Nobody can see a record at `offset`, whichever way they ask."""
    found = client.fetch(topic, offset)
    assert (found.error_code, found.high_watermark) == (0, offset)
    assert records_of(found) == []
    assert client.list_offset(topic, LATEST).offset == offset


@pytest.mark.parametrize("acks", [1, -1])
def test_a_record_is_acknowledged_and_readable_only_after_its_fsync(client: Client, disk: HeldDisk, acks: int) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    disk.close_gate()
    with client.another() as producer, client.another() as reader:
        polling = reader.send(reader.fetch_request(topic, 0, max_wait_ms=15_000), 18)
        sent = producer.send(producer.produce_request(topic, batch(b"durable"), acks=acks, timeout_ms=15_000), 13)
        disk.wait_for_a_sync()
        assert producer.is_silent(0.1)
        assert reader.is_silent(0.05)
        assert_unseen(client, topic, 0)
        disk.open_gate()
        assert produced(producer.receive(ProduceResponse, 13, sent)).base_offset == 0
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, polling).responses)
        assert values_of(found) == [b"durable"]
    assert disk.syncs == 1


def test_a_record_without_an_acknowledgement_is_hidden_until_its_fsync_too(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    disk.close_gate()
    client.send(client.produce_request(topic, batch(b"quiet"), acks=0), 13)
    disk.wait_for_a_sync()
    assert_unseen(client, topic, 0)
    disk.open_gate()
    eventually(lambda: client.list_offset(topic, LATEST).offset, lambda offset: offset == 1)


def test_a_record_that_came_during_a_sync_waits_for_the_next(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    disk.close_gate()
    with client.another() as first, client.another() as second:
        one = first.send(first.produce_request(topic, batch(b"one"), timeout_ms=15_000), 13)
        disk.wait_for_a_sync()
        two = second.send(second.produce_request(topic, batch(b"two"), timeout_ms=15_000), 13)
        assert second.is_silent(0.1)
        disk.let_one_through()
        assert produced(first.receive(ProduceResponse, 13, one)).base_offset == 0
        disk.wait_for_a_sync()
        assert second.is_silent(0.1)
        assert values_of(client.fetch(topic, 0)) == [b"one"]
        assert_unseen(client, topic, 1)
        disk.open_gate()
        assert produced(second.receive(ProduceResponse, 13, two)).base_offset == 1
    assert values_of(client.fetch(topic, 0)) == [b"one", b"two"]
    assert disk.syncs == 2


def test_many_records_share_one_sync(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    disk.close_gate()
    with client.another() as producer:
        sent = [producer.send(producer.produce_request(topic, batch(b"%d" % index)), 13) for index in range(20)]
        disk.wait_for_a_sync()
        # All of them have been appended when a question asked behind them is answered.
        assert_unseen(client, topic, 0)
        assert producer.is_silent(0.1)
        disk.open_gate()
        answers = [produced(producer.receive(ProduceResponse, 13, each)) for each in sent]
    assert [answer.base_offset for answer in answers] == list(range(20))
    assert disk.syncs <= 3


def test_a_policy_of_more_records_lets_the_first_ones_through(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="3")
    disk.close_gate()
    assert [client.append(topic, b"a"), client.append(topic, b"b")] == [0, 1]
    assert disk.syncs == 0
    with client.another() as producer:
        sent = producer.send(producer.produce_request(topic, batch(b"c"), timeout_ms=15_000), 13)
        disk.wait_for_a_sync()
        assert producer.is_silent(0.1)
        assert_unseen(client, topic, 2)
        disk.open_gate()
        assert produced(producer.receive(ProduceResponse, 13, sent)).base_offset == 2
    assert client.list_offset(topic, LATEST).offset == 3


def test_without_a_policy_nobody_waits_for_the_disk(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED)
    disk.close_gate()
    assert client.append(topic, b"a") == 0
    assert values_of(client.fetch(topic, 0)) == [b"a"]
    assert disk.syncs == 0


def test_a_producer_whose_time_is_up_is_told_so_and_its_record_stays(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    disk.close_gate()
    answer = client.produce(topic, batch(b"late"), timeout_ms=150)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert_unseen(client, topic, 0)
    disk.open_gate()
    eventually(lambda: client.list_offset(topic, LATEST).offset, lambda offset: offset == 1)
    assert values_of(client.fetch(topic, 0)) == [b"late"]


def test_a_retry_is_not_acknowledged_before_the_original_is_safe(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    records = batch(b"once", producer_id=client.new_producer_id(), producer_epoch=0, sequence=0)
    disk.close_gate()
    with client.another() as first, client.another() as second:
        original = first.send(first.produce_request(topic, records, timeout_ms=15_000), 13)
        disk.wait_for_a_sync()
        retry = second.send(second.produce_request(topic, records, timeout_ms=15_000), 13)
        assert second.is_silent(0.15)
        disk.open_gate()
        assert produced(first.receive(ProduceResponse, 13, original)).base_offset == 0
        assert produced(second.receive(ProduceResponse, 13, retry)).base_offset == 0
    assert client.list_offset(topic, LATEST).offset == 1


def test_a_failed_sync_is_the_end_of_its_disk(client: Client, disk: HeldDisk, caplog: pytest.LogCaptureFixture) -> None:
    """What the failed sync held is not known, so nothing is retried; a node that has no other disk stops."""
    caplog.set_level(logging.CRITICAL)
    topic = client.create_topic(FLUSHED, flush_messages="1")
    assert client.append(topic, b"safe") == 0
    disk.breaks = True
    answer = client.produce(topic, batch(b"lost"), timeout_ms=15_000)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert client.is_hung_up()


def test_a_topic_deleted_during_its_sync_takes_nothing_else_with_it(client: Client, disk: HeldDisk) -> None:
    topic = client.create_topic(FLUSHED, flush_messages="1")
    other = client.create_topic("other")
    disk.close_gate()
    with client.another() as producer:
        sent = producer.send(producer.produce_request(topic, batch(b"doomed"), timeout_ms=15_000), 13)
        disk.wait_for_a_sync()
        client.delete_topic(topic)
        refused = produced(producer.receive(ProduceResponse, 13, sent))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        disk.open_gate()
        eventually(lambda: disk.syncs, lambda syncs: syncs == 1)
    assert client.append(other, b"still served") == 0
    again = client.create_topic(FLUSHED, flush_messages="1")
    assert client.append(again, b"a new beginning") == 0
