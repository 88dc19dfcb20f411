"""Caps that Apache Kafka has no keys for, set low on a node: whoever does not fit in is refused, and told so."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.records import BatchBuilder
from ottla.wire.messages import fetch_request
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.fetch_response import FetchResponse
from tests.hostile.canary import produce
from tests.node_process import running_node
from tests.wire_client import WireClient

CAPS = {"ottla.partitions.max": 3, "ottla.partition.producers.max": 2, "ottla.fetch.session.partitions.max": 1}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    arguments = [part for key, value in CAPS.items() for part in ("--set", f"{key}={value}")]
    with (
        running_node(tmp_path_factory.mktemp("node"), *arguments) as node,
        WireClient(node.address) as client,
    ):
        assert create(client, "orders", 2) == ErrorCode.NONE
        yield client


def create(client: WireClient, name: str, partitions: int) -> ErrorCode:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return ErrorCode(client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics[0].error_code)


def send(client: WireClient, producer_id: int, sequence: int = 0) -> ErrorCode:
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    builder.append(int(time.time() * 1000), None, b"a teapot")
    return ErrorCode(produce(client, "orders", bytes(builder.build()))[0])


def session_of(client: WireClient, *partitions: int) -> int:
    wanted = [fetch_request.FetchPartition(partition=index, partition_max_bytes=1000) for index in partitions]
    request = fetch_request.FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[fetch_request.FetchTopic(topic="orders", partitions=wanted)]
    )
    return client.call(request, FetchResponse, 12).session_id


def test_a_topic_that_does_not_fit_into_the_cluster(client: WireClient) -> None:
    assert create(client, "more", 2) == ErrorCode.POLICY_VIOLATION
    assert create(client, "one", 1) == ErrorCode.NONE


def test_a_producer_that_a_partition_has_no_room_for(client: WireClient) -> None:
    assert [send(client, producer_id) for producer_id in (1, 2, 3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert send(client, 1, sequence=1) == ErrorCode.NONE


def test_a_consumer_whose_partitions_no_session_has_room_for(client: WireClient) -> None:
    assert session_of(client, 0, 1) == 0
    assert session_of(client, 0) != 0
