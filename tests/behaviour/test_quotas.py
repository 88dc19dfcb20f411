"""Client quotas: the answer leaves at once and says how long to wait, and the connection is not read from meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from ottla.errors import ErrorCode
from ottla.wire.messages import alter_client_quotas_request as alter
from ottla.wire.messages import describe_client_quotas_request as describe
from ottla.wire.messages import fetch_request as fetch
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsRequest
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.behaviour.client import Client, Topic, batch, eventually
from tests.behaviour.conftest import Node

pytestmark = pytest.mark.slow

WINDOW_S = 10
"""What a quiet client may use at once is ten seconds' worth."""

EXACT, DEFAULT = 0, 1

_names = count(1)


def new_client_id() -> str:
    return f"quota-client-{next(_names)}"


@contextmanager
def limited(client: Client, client_id: str, **limits: float) -> Iterator[None]:
    _set(client, client_id, limits)
    eventually(lambda: described(client, client_id), lambda found: found == limits)
    try:
        yield
    finally:
        _set(client, client_id, dict.fromkeys(limits))


def _set(client: Client, client_id: str, limits: dict[str, float] | dict[str, None]) -> None:
    entity = alter.EntityData(entity_type="client-id", entity_name=client_id)
    ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()]
    request = alter.AlterClientQuotasRequest(entries=[alter.EntryData(entity=[entity], ops=ops)])
    (entry,) = client.call(request, AlterClientQuotasResponse).entries
    assert entry.error_code == 0, entry.error_message


def described(client: Client, client_id: str) -> dict[str, float]:
    component = describe.ComponentData(entity_type="client-id", match_type=EXACT, match=client_id)
    answer = client.call(
        describe.DescribeClientQuotasRequest(components=[component], strict=True), DescribeClientQuotasResponse
    )
    assert answer.error_code == 0
    return {value.key: value.value for entry in answer.entries or () for value in entry.values}


@contextmanager
def named(client: Client, client_id: str) -> Iterator[Client]:
    host, port = client._socket.getpeername()[:2]
    with Client((host, port), client_id=client_id, timeout_s=60) as connected:
        yield connected


def send(client: Client, topic: Topic, size: int, *, version: int = 12, acks: int = -1) -> ProduceResponse:
    request = produce_request(topic, size, acks)
    return client.call(request, ProduceResponse, version)


def produce_request(topic: Topic, size: int, acks: int = -1, *partitions: int) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch(bytes(size))) for index in partitions or (0,)]
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic.name, partition_data=data)]
    )


def read(client: Client, topic: Topic, *, session_id: int = 0, session_epoch: int = -1) -> FetchResponse:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [] if session_epoch > 0 else [fetch.FetchTopic(topic=topic.name, partitions=[wanted])]
    request = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=session_epoch, topics=topics
    )
    return client.call(request, FetchResponse, 12)


@pytest.mark.parametrize("version", [3, 8, 12])
def test_a_producer_over_its_rate_is_told_to_wait_and_made_to(
    client: Client, topic: Topic, version: int, name: str
) -> None:
    client_id = new_client_id()
    with limited(client, client_id, producer_byte_rate=2_000), named(client, client_id) as producer:
        assert send(producer, topic, 10_000, version=version).throttle_time_ms == 0
        answer = send(producer, topic, 12_000, version=version)
        assert answer.responses[0].partition_responses[0].error_code == 0, "it is taken all the same"
        # Of 20,000 bytes in ten seconds some 2,200 too many.
        assert 800 < answer.throttle_time_ms < 1_600
        began = time.monotonic()
        send(producer, topic, 10, version=version)
        assert time.monotonic() - began > answer.throttle_time_ms / 1000 - 0.3


def test_a_refused_batch_is_charged_for_and_refused(client: Client, topic: Topic) -> None:
    client_id = new_client_id()
    with limited(client, client_id, producer_byte_rate=2_000), named(client, client_id) as producer:
        answer = producer.call(produce_request(topic, 12_000, -1, 0, 17), ProduceResponse, 12)
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert answer.throttle_time_ms > 0


def test_a_producer_that_wants_no_answer_waits_too(client: Client, topic: Topic) -> None:
    client_id = new_client_id()
    with limited(client, client_id, producer_byte_rate=2_000), named(client, client_id) as producer:
        producer.send(produce_request(topic, 24_000, 0), 12)
        began = time.monotonic()
        producer.call(ListOffsetsRequest(), ListOffsetsResponse)
        assert time.monotonic() - began > 1.0


def test_others_do_not_wait(client: Client, topic: Topic) -> None:
    client_id = new_client_id()
    with limited(client, client_id, producer_byte_rate=100), named(client, client_id) as producer:
        assert send(producer, topic, 5_000).throttle_time_ms > 10_000
        with named(client, client_id) as same:
            assert send(same, topic, 10).throttle_time_ms > 10_000, "another connection of the same client"
        with named(client, new_client_id()) as other:
            assert send(other, topic, 5_000).throttle_time_ms == 0


def test_a_reader_over_its_rate_gets_nothing_but_the_time_to_wait(client: Client, topic: Topic) -> None:
    send(client, topic, 6_000)
    client_id = new_client_id()
    with limited(client, client_id, consumer_byte_rate=1_000), named(client, client_id) as reader:
        first = read(reader, topic)
        assert first.throttle_time_ms == 0
        assert first.responses[0].partitions[0].records
        second = read(reader, topic)
        assert second.error_code == 0
        assert second.responses == []
        assert 1_500 < second.throttle_time_ms < 3_500
        began = time.monotonic()
        read(reader, topic)
        assert time.monotonic() - began > second.throttle_time_ms / 1000 - 0.3


def test_a_session_outlives_a_throttle(client: Client, topic: Topic) -> None:
    send(client, topic, 9_500)
    client_id = new_client_id()
    with limited(client, client_id, consumer_byte_rate=1_000), named(client, client_id) as reader:
        first = read(reader, topic, session_epoch=0)
        assert first.session_id
        second = read(reader, topic, session_id=first.session_id, session_epoch=1)
        assert (second.throttle_time_ms > 0, second.responses) == (True, [])
        assert second.session_id == first.session_id
    with named(client, client_id) as reader:
        third = read(reader, topic, session_id=first.session_id, session_epoch=2)
        assert (third.error_code, third.session_id) == (0, first.session_id)
        assert third.responses[0].partitions[0].records


def test_a_session_that_would_begin_with_a_throttle_begins_later(client: Client, topic: Topic) -> None:
    send(client, topic, 9_500)
    client_id = new_client_id()
    with limited(client, client_id, consumer_byte_rate=1_000), named(client, client_id) as reader:
        assert read(reader, topic).throttle_time_ms == 0
        refused = read(reader, topic, session_epoch=0)
        assert refused.throttle_time_ms > 0
        assert refused.session_id == 0


def test_time_is_charged_for_and_nobody_waits_longer_than_a_sample(client: Client, topic: Topic) -> None:
    client_id = new_client_id()
    with limited(client, client_id, request_percentage=0.000001), named(client, client_id) as spender:
        spender.call(ListOffsetsRequest(), ListOffsetsResponse)
        answer = spender.call(ListOffsetsRequest(), ListOffsetsResponse)
        assert answer.throttle_time_ms == 1_000
        assert send(spender, topic, 10).throttle_time_ms == 1_000
        fetched = read(spender, topic)
        assert (fetched.throttle_time_ms, fetched.responses) == (1_000, [])


def create(client: Client, name: str, partitions: int, version: int) -> CreateTopicsResponse:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, version)


def test_changes_beyond_their_rate_are_refused_where_the_version_can_say_so(client: Client, name: str) -> None:
    client_id = new_client_id()
    client.create_topic(f"{name}-old")
    with limited(client, client_id, controller_mutation_rate=1.0):
        with named(client, client_id) as admin:
            made = create(admin, f"{name}-a", 20, 6)
            assert (made.topics[0].error_code, made.throttle_time_ms) == (0, 0)
            refused = create(admin, f"{name}-b", 1, 6)
            assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 7_000 < refused.throttle_time_ms <= 9_000, "eleven in the bucket, nine owed"
        with named(client, client_id) as admin:
            grown = admin.call(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=f"{name}-old", count=2, assignments=None)], timeout_ms=30_000
                ),
                CreatePartitionsResponse,
                3,
            )
            assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        with named(client, client_id) as admin:
            deleted = admin.call(
                DeleteTopicsRequest(topics=[DeleteTopicState(name=f"{name}-old")], timeout_ms=30_000),
                DeleteTopicsResponse,
                6,
            )
            assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert deleted.throttle_time_ms > 0


def test_changes_beyond_their_rate_are_made_where_the_version_cannot_refuse_them(client: Client, name: str) -> None:
    client_id = new_client_id()
    with limited(client, client_id, controller_mutation_rate=1.0), named(client, client_id) as admin:
        made = create(admin, f"{name}-a", 12, 5)
        assert made.topics[0].error_code == 0
        assert 500 < made.throttle_time_ms <= 1_000
        began = time.monotonic()
        admin.call(ListOffsetsRequest(), ListOffsetsResponse)
        assert time.monotonic() - began > made.throttle_time_ms / 1000 - 0.3


def test_a_quota_that_is_taken_away_counts_no_more(client: Client, topic: Topic) -> None:
    client_id = new_client_id()
    with limited(client, client_id, producer_byte_rate=100), named(client, client_id) as producer:
        assert send(producer, topic, 50_000).throttle_time_ms > 100_000
    eventually(lambda: described(client, client_id), lambda found: not found)
    with named(client, client_id) as producer:
        assert send(producer, topic, 50_000).throttle_time_ms == 0


def test_every_client_has_the_default_and_each_for_itself(node: Node, client: Client, topic: Topic) -> None:
    default = alter.EntityData(entity_type="client-id", entity_name=None)
    setting = alter.OpData(key="producer_byte_rate", value=2_000.0)
    removing = alter.OpData(key="producer_byte_rate", remove=True)

    def change(op: alter.OpData) -> None:
        request = alter.AlterClientQuotasRequest(entries=[alter.EntryData(entity=[default], ops=[op])])
        assert client.call(request, AlterClientQuotasResponse).entries[0].error_code == 0

    change(setting)
    try:
        for _ in range(2):
            with named(client, new_client_id()) as producer:
                eventually(
                    lambda producer=producer: send(producer, topic, 30_000).throttle_time_ms,  # type: ignore[misc]
                    lambda wait_ms: wait_ms > 0,
                    seconds=60,
                )
    finally:
        change(removing)


def test_an_address_over_its_rate_of_connections_is_turned_away(node: Node, client: Client) -> None:
    entity = alter.EntityData(entity_type="ip", entity_name="127.0.0.9")
    setting = alter.OpData(key="connection_creation_rate", value=1.0)
    removing = alter.OpData(key="connection_creation_rate", remove=True)

    def change(op: alter.OpData) -> None:
        request = alter.AlterClientQuotasRequest(entries=[alter.EntryData(entity=[entity], ops=[op])])
        assert client.call(request, AlterClientQuotasResponse).entries[0].error_code == 0

    def is_served(host: str) -> bool:
        with Client((node.host, node.port), host=host, timeout_s=60) as connected:
            try:
                connected.call(ListOffsetsRequest(), ListOffsetsResponse)
            except (EOFError, ConnectionResetError, BrokenPipeError):
                return False
            return True

    change(setting)
    try:
        # Ten at once are a window's worth; those behind them wait for a while and are let go.
        eventually(lambda: is_served("127.0.0.9"), lambda served: not served, seconds=60)
        assert all(is_served("127.0.0.10") for _ in range(20))
    finally:
        change(removing)
