"""Scripted faults as real clients meet them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

import ottla.testing
from ottla.testing import Node

PATIENCE_S = 60


@pytest.fixture
def node() -> Iterator[Node]:
    with ottla.testing.node() as node:
        node.create_topic("t")
        yield node


def producer_of(node: Node, **settings: object) -> Any:
    return Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 10,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def send(producer: Any, value: str) -> list[Any]:
    """What the producer heard: the error, or None."""
    heard: list[Any] = []
    producer.produce("t", value=value, on_delivery=lambda error, message: heard.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return heard


def values(node: Node) -> list[bytes | None]:
    return [record.value for record in node.records("t")]


def test_the_next_requests_fail_and_then_none(node: Node) -> None:
    fault = node.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3)
    producer = producer_of(node)
    assert send(producer, "one") == [None]
    assert fault.seen == 3
    assert send(producer, "two") == [None]
    assert fault.seen == 3
    assert values(node) == [b"one", b"two"]


def test_an_error_that_kafka_does_not_have_is_refused(node: Node) -> None:
    for error in ("NO_SUCH_ERROR", 12_345):
        with pytest.raises(ValueError, match=f"Kafka has no error {error}"):
            node.faults.fail("Produce", error=error)
    assert node.faults.fail("Produce", error=6).seen == 0


def test_an_order_that_fails_in_the_node_is_answered(node: Node) -> None:
    """Or whoever gave it would wait for a minute, and be told that the node has ended."""
    with pytest.raises(ValueError, match="The node could not do it"):
        node._order("fault", api="Produce", nonsense=1, error=None)
    assert "an order could not be carried out" in node.log
    assert send(producer_of(node), "one") == [None]


def test_an_error_that_does_not_pass_reaches_the_caller(node: Node) -> None:
    node.faults.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED")
    (error,) = send(producer_of(node), "one")
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert values(node) == []


def test_a_request_on_the_short_way_is_met_too(node: Node) -> None:
    """The node knows a producer's requests after the first by how they begin; the script comes before that."""
    producer = producer_of(node)
    for number in range(3):
        assert send(producer, f"{number}") == [None]
    fault = node.faults.fail("Produce", error="MESSAGE_TOO_LARGE")
    (error,) = send(producer, "three")
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert fault.seen == 1
    assert values(node) == [b"0", b"1", b"2"]


def test_an_answer_that_is_lost_makes_no_duplicate_of_an_idempotent_producer(node: Node) -> None:
    fault = node.faults.drop_connection("Produce", handled=True)
    assert send(producer_of(node, enable_idempotence=True), "one") == [None]
    assert fault.seen == 1
    assert values(node) == [b"one"]


def test_and_makes_one_of_a_producer_that_is_not(node: Node) -> None:
    node.faults.drop_connection("Produce", handled=True)
    assert send(producer_of(node, enable_idempotence=False), "one") == [None]
    assert values(node) == [b"one", b"one"]


def test_a_request_that_is_dropped_was_not_carried_out(node: Node) -> None:
    fault = node.faults.drop_connection("Produce")
    assert send(producer_of(node, enable_idempotence=False), "one") == [None]
    assert fault.seen == 1
    assert values(node) == [b"one"]


def test_an_answer_comes_later(node: Node) -> None:
    producer = producer_of(node)
    send(producer, "one")
    fault = node.faults.delay("Produce", 0.5)
    began = time.monotonic()
    assert send(producer, "two") == [None]
    assert time.monotonic() - began >= 0.5
    assert fault.seen == 1
    assert values(node) == [b"one", b"two"]


def test_a_producer_that_does_not_wait_so_long_gives_up_what_was_written(node: Node) -> None:
    node.faults.delay("Produce", 30, times=None)
    producer = producer_of(node, enable_idempotence=False, request_timeout_ms=300, message_timeout_ms=400)
    deadline = time.monotonic() + PATIENCE_S
    # On a busy machine the time may be up before anything was sent.
    while not values(node) and time.monotonic() < deadline:
        (error,) = send(producer, "one")
        assert error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT)
    assert values(node)[0] == b"one"


def test_a_consumer_goes_on_after_failed_fetches(node: Node) -> None:
    node.produce("t", "one")
    fault = node.faults.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=2)
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "retry.backoff.ms": 10}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()
    assert fault.seen == 2


@pytest.mark.slow
def test_the_steps_of_a_group_fail_one_by_one(node: Node) -> None:
    node.produce("t", "one")
    scripted = [
        node.faults.fail("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"),
        node.faults.fail("JoinGroup", error="REBALANCE_IN_PROGRESS"),
        node.faults.fail("SyncGroup", error="REBALANCE_IN_PROGRESS"),
        node.faults.fail("OffsetFetch", error="UNSTABLE_OFFSET_COMMIT"),
        node.faults.fail("ListOffsets", error="LEADER_NOT_AVAILABLE"),
        node.faults.fail("Metadata", error="LEADER_NOT_AVAILABLE"),
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "retry.backoff.ms": 10,
        }
    )
    consumer.subscribe(["t"])
    message = None
    deadline = time.monotonic() + PATIENCE_S
    while (message is None or message.error()) and time.monotonic() < deadline:
        message = consumer.poll(1)
    assert message is not None
    assert message.value() == b"one"
    assert [fault.seen for fault in scripted] == [1, 1, 1, 1, 1, 1]
    node.faults.fail("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException) as refusal:
        consumer.commit(asynchronous=False)
    assert refusal.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.commit(asynchronous=False)
    consumer.close()


def test_faults_for_ever_until_they_are_cleared(node: Node) -> None:
    node.faults.fail("InitProducerId", error="CLUSTER_AUTHORIZATION_FAILED", times=None)
    refused = KafkaProducer(bootstrap_servers=node.bootstrap, enable_idempotence=True)
    with pytest.raises(PythonKafkaError):
        refused.send("t", b"1").get(PATIENCE_S)
    refused.close(timeout=0)
    node.faults.clear()
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, enable_idempotence=True)
    assert producer.send("t", b"2").get(PATIENCE_S).offset == 0
    producer.close()


def test_a_producer_that_asks_for_no_answer_is_cut_off(node: Node) -> None:
    fault = node.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    producer = producer_of(node, acks=0, enable_idempotence=False)
    send(producer, "lost")
    deadline = time.monotonic() + PATIENCE_S
    while not values(node) and time.monotonic() < deadline:
        send(producer, "kept")
    assert set(values(node)) == {b"kept"}
    assert fault.seen == 1


def test_a_script_that_cannot_be_is_refused_in_a_sentence(node: Node) -> None:
    with pytest.raises(ValueError, match="There is no API Prodce that brokers serve"):
        node.faults.fail("Prodce", error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="There is no API Vote that brokers serve"):
        node.faults.delay("Vote", 1)
    with pytest.raises(ValueError, match="Kafka has no error NO_LEADER"):
        node.faults.fail("Produce", error="NO_LEADER")
    with pytest.raises(ValueError, match="happens 0 times"):
        node.faults.drop_connection("Produce", times=0)
    with pytest.raises(ValueError, match="DescribeProducers has no place for an error"):
        node.faults.fail("DescribeProducers", error="NOT_LEADER_OR_FOLLOWER")
