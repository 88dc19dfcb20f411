"""What a reader is shown: only what is committed, never nothing for ever, and never too much at once."""

from __future__ import annotations

import threading
import time

import pytest

from ottla.errors import ErrorCode
from ottla.records import batches
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Client,
    Topic,
    batch,
    produced,
    records_of,
    values_of,
)


def test_a_reader_at_the_log_end_gets_no_records_and_no_error(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b")
    found = client.fetch(topic, 2)
    assert found.error_code == 0
    assert records_of(found) == []
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)


@pytest.mark.parametrize("offset", [-1, 3, 1_000])
def test_a_reader_outside_the_log_is_told_so(client: Client, topic: Topic, offset: int) -> None:
    client.append(topic, b"a", b"b")
    found = client.fetch(topic, offset)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)
    assert not found.records


def test_a_reader_below_the_log_start_is_told_so(client: Client, topic: Topic) -> None:
    client.append(topic, b"a", b"b", b"c")
    assert client.delete_records(topic, 2).error_code == 0
    assert client.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in records_of(client.fetch(topic, 2)) if record.offset >= 2] == [b"c"]


@pytest.mark.parametrize("acks", [1, -1])
def test_the_only_replica_commits_what_it_appends(client: Client, topic: Topic, acks: int) -> None:
    assert client.produce(topic, batch(b"a"), acks=acks).error_code == 0
    assert client.fetch(topic, 0).high_watermark == 1
    assert client.list_offset(topic, LATEST).offset == 1


def test_the_latest_offset_is_the_same_for_every_isolation_when_no_transaction_is_open(
    client: Client, topic: Topic
) -> None:
    client.append(topic, b"a", b"b", b"c")
    assert client.list_offset(topic, LATEST).offset == 3
    assert client.list_offset(topic, LATEST, isolation=READ_COMMITTED).offset == 3
    assert client.list_offset(topic, EARLIEST).offset == 0
    found = client.fetch(topic, 0, isolation=READ_COMMITTED)
    assert values_of(found) == [b"a", b"b", b"c"]
    assert found.aborted_transactions == []


def test_a_plain_reader_gets_no_list_of_aborted_transactions(client: Client, topic: Topic) -> None:
    client.append(topic, b"a")
    assert client.fetch(topic, 0).aborted_transactions is None


def test_a_batch_larger_than_every_limit_is_still_returned(client: Client, topic: Topic) -> None:
    client.append(topic, bytes(10_000))
    client.append(topic, b"next")
    found = client.fetch(topic, 0, max_bytes=1, partition_max_bytes=1)
    assert [record.offset for record in records_of(found)] == [0]


def test_only_the_first_partition_with_data_may_exceed_the_limit(client: Client, name: str) -> None:
    topic = client.create_topic(name, 3)
    for partition in (1, 2):
        client.append(topic, bytes(10_000), partition=partition)
    request = FetchRequest(
        min_bytes=1,
        max_bytes=100,
        topics=[
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[FetchPartition(partition=index, partition_max_bytes=100) for index in range(3)],
            )
        ],
    )
    ((empty, large, starved),) = (each.partitions for each in client.call(request, FetchResponse).responses)
    assert [len(records_of(each)) for each in (empty, large, starved)] == [0, 1, 0]
    assert starved.error_code == 0
    assert starved.high_watermark == 1


def test_the_limit_of_a_partition_bounds_what_it_returns(client: Client, topic: Topic) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        client.append(topic, value * 1_000)
    found = client.fetch(topic, 0, partition_max_bytes=2_500)
    assert [record.offset for record in records_of(found)] == [0, 1]


def test_the_limit_of_the_request_bounds_what_all_partitions_return(client: Client, name: str) -> None:
    topic = client.create_topic(name, 2)
    for partition in range(2):
        for _ in range(4):
            client.append(topic, bytes(1_000), partition=partition)
    request = FetchRequest(
        min_bytes=1,
        max_bytes=5_500,
        topics=[
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(2)],
            )
        ],
    )
    ((first, second),) = (each.partitions for each in client.call(request, FetchResponse).responses)
    assert [record.offset for record in records_of(first)] == [0, 1, 2, 3]
    assert [record.offset for record in records_of(second)] == [0]


def test_a_reader_in_the_middle_of_a_batch_gets_the_whole_batch(client: Client, topic: Topic) -> None:
    client.append(topic, b"0", b"1", b"2")
    client.append(topic, b"3", b"4", b"5")
    found = client.fetch(topic, 4)
    assert found.records is not None
    assert [header.base_offset for header, _ in batches(found.records)] == [3]
    assert values_of(found) == [b"3", b"4", b"5"]


def test_a_long_poll_is_woken_by_a_produce(client: Client, topic: Topic) -> None:
    with client.another() as reader:
        request = reader.fetch_request(topic, 0, max_wait_ms=60_000)
        began = time.monotonic()
        correlation_id = reader.send(request, 18)
        assert reader.is_silent(0.15)
        client.append(topic, b"wake up")
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
        assert values_of(found) == [b"wake up"]
        assert found.high_watermark == 1
        assert time.monotonic() - began < 30


def test_a_long_poll_that_nothing_wakes_ends_in_time_and_empty(client: Client, topic: Topic) -> None:
    began = time.monotonic()
    found = client.fetch(topic, 0, max_wait_ms=300)
    took = time.monotonic() - began
    assert found.error_code == 0
    assert records_of(found) == []
    assert 0.28 <= took < 30


def test_a_long_poll_waits_until_there_are_enough_bytes(client: Client, topic: Topic) -> None:
    with client.another() as reader:
        correlation_id = reader.send(reader.fetch_request(topic, 0, max_wait_ms=60_000, min_bytes=3_000), 18)
        client.append(topic, bytes(1_000))
        client.append(topic, bytes(1_000))
        assert reader.is_silent(0.15)
        client.append(topic, bytes(1_000))
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
        assert [record.offset for record in records_of(found)] == [0, 1, 2]


def test_too_few_bytes_are_returned_when_the_time_is_up(client: Client, topic: Topic) -> None:
    client.append(topic, b"little")
    began = time.monotonic()
    found = client.fetch(topic, 0, max_wait_ms=250, min_bytes=1 << 20)
    assert time.monotonic() - began >= 0.23
    assert values_of(found) == [b"little"]


def test_no_wait_is_asked_for_with_no_bytes(client: Client, topic: Topic) -> None:
    began = time.monotonic()
    assert client.fetch(topic, 0, max_wait_ms=60_000, min_bytes=0).error_code == 0
    assert time.monotonic() - began < 30


def test_an_error_in_one_partition_ends_the_long_poll_at_once(client: Client, name: str) -> None:
    topic = client.create_topic(name, 2)
    request = client.fetch_request(topic, 0, max_wait_ms=60_000)
    request.topics[0].partitions.append(FetchPartition(partition=1, fetch_offset=9, partition_max_bytes=100))
    began = time.monotonic()
    ((quiet, astray),) = (each.partitions for each in client.call(request, FetchResponse).responses)
    assert time.monotonic() - began < 30
    assert quiet.error_code == 0
    assert astray.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_partition_that_does_not_exist_hurries_nobody(client: Client, topic: Topic) -> None:
    """Else a consumer of a deleted topic would spin, and with it the server."""
    request = client.fetch_request(topic, 0, max_wait_ms=250)
    request.topics[0].partitions.append(FetchPartition(partition=77, partition_max_bytes=100))
    began = time.monotonic()
    ((one, other),) = (each.partitions for each in client.call(request, FetchResponse).responses)
    assert time.monotonic() - began >= 0.23
    codes = {one.partition_index: one.error_code, other.partition_index: other.error_code}
    assert codes == {0: 0, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_reader_of_nothing_that_exists_is_told_at_once(client: Client, topic: Topic) -> None:
    began = time.monotonic()
    found = client.fetch(topic, 0, partition=77, max_wait_ms=60_000)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - began < 30


def test_every_reader_that_waits_is_woken(client: Client, topic: Topic) -> None:
    readers = [client.another() for _ in range(5)]
    try:
        waiting = [(reader, reader.send(reader.fetch_request(topic, 0, max_wait_ms=60_000), 18)) for reader in readers]
        assert readers[-1].is_silent(0.1)
        client.append(topic, b"all")
        for reader, correlation_id in waiting:
            ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
            assert values_of(found) == [b"all"]
    finally:
        for reader in readers:
            reader.close()


def test_a_deleted_topic_ends_the_long_poll_on_it(client: Client, name: str) -> None:
    topic = client.create_topic(name)
    with client.another() as reader:
        began = time.monotonic()
        correlation_id = reader.send(reader.fetch_request(topic, 0, max_wait_ms=60_000), 18)
        assert reader.is_silent(0.1)
        client.delete_topic(topic)
        ((found,),) = (each.partitions for each in reader.receive(FetchResponse, 18, correlation_id).responses)
        assert time.monotonic() - began < 30
        assert found.error_code in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )


def test_replies_keep_the_order_of_their_requests(client: Client, topic: Topic, name: str) -> None:
    """A fetch that waits stands between two produces to another topic, all three on one connection."""
    other = client.create_topic(f"{name}-other")
    first = client.send(client.produce_request(other, batch(b"before")), 13)
    parked = client.send(client.fetch_request(topic, 0, max_wait_ms=400), 18)
    last = client.send(client.produce_request(other, batch(b"after")), 13)
    assert produced(client.receive(ProduceResponse, 13, first)).base_offset == 0
    ((found,),) = (each.partitions for each in client.receive(FetchResponse, 18, parked).responses)
    assert records_of(found) == []
    assert produced(client.receive(ProduceResponse, 13, last)).base_offset == 1


@pytest.mark.ottla_only
def test_a_request_starts_while_the_one_before_it_waits(client: Client, topic: Topic) -> None:
    """Kafka mutes a connection until it has answered; here the produce behind a parked fetch is what wakes it."""
    began = time.monotonic()
    parked = client.send(client.fetch_request(topic, 0, max_wait_ms=60_000), 18)
    behind = client.send(client.produce_request(topic, batch(b"woke it")), 13)
    ((found,),) = (each.partitions for each in client.receive(FetchResponse, 18, parked).responses)
    assert values_of(found) == [b"woke it"]
    assert produced(client.receive(ProduceResponse, 13, behind)).base_offset == 0
    assert time.monotonic() - began < 30


def test_pipelined_produces_are_appended_and_answered_in_order(client: Client, topic: Topic) -> None:
    sent = [client.send(client.produce_request(topic, batch(b"%d" % index)), 13) for index in range(50)]
    answers = [produced(client.receive(ProduceResponse, 13, correlation_id)) for correlation_id in sent]
    assert [answer.base_offset for answer in answers] == list(range(50))
    assert [record.value for record in client.read_all(topic)] == [b"%d" % index for index in range(50)]


def test_a_reader_that_stalls_slows_no_producer(client: Client, topic: Topic) -> None:
    """A consumer asks for megabytes and does not read them; another connection goes on as if it were not there."""
    for _ in range(16):
        client.append(topic, bytes(900_000))
    with client.another() as staller:
        for _ in range(20):
            staller.send(staller.fetch_request(topic, 0, max_bytes=1 << 26, partition_max_bytes=1 << 26), 18)
        began = time.monotonic()
        for _ in range(20):
            client.append(topic, b"small")
        assert time.monotonic() - began < 30


def test_two_writers_share_a_partition_without_a_gap(client: Client, topic: Topic) -> None:
    def write() -> None:
        with client.another() as writer:
            for _ in range(25):
                writer.append(topic, b"x", b"y")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.offset for record in client.read_all(topic)] == list(range(100))
