"""A quota holds its rate: real clients at full speed, measured after the burst that a quiet client may have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.wire.messages import alter_client_quotas_request as alter
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from tests.node_process import NodeProcess
from tests.wire_client import WireClient

RATE = 500_000
VALUE = bytes(10_000)
WINDOW_S = 11
BURST_S = WINDOW_S
MEASURED_S = 4 * WINDOW_S
"""Whole windows: when the first burst leaves the window there is room for another, and so on, in Kafka too."""


@contextmanager
def limited(node: NodeProcess, client_id: str, key: str) -> Iterator[None]:
    entity = alter.EntityData(entity_type="client-id", entity_name=client_id)

    def change(op: alter.OpData) -> None:
        request = alter.AlterClientQuotasRequest(entries=[alter.EntryData(entity=[entity], ops=[op])])
        with WireClient(node.address) as admin:
            assert admin.call(request, AlterClientQuotasResponse).entries[0].error_code == 0

    change(alter.OpData(key=key, value=float(RATE)))
    try:
        yield
    finally:
        change(alter.OpData(key=key, remove=True))


def rate_of(step: Callable[[], int]) -> float:
    """Bytes a second of `step`, which says how many it has moved, once the burst is over."""
    began = time.monotonic()
    while time.monotonic() < began + BURST_S:
        step()
    began = time.monotonic()
    moved = 0
    while time.monotonic() < began + MEASURED_S:
        moved += step()
    return moved / (time.monotonic() - began)


@pytest.mark.long
def test_a_producer_keeps_to_its_rate(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with limited(node, "fast-producer", "producer_byte_rate"):
        producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "fast-producer", "linger.ms": 5})
        acknowledged = 0

        def on_delivery(error: object, message: object) -> None:
            nonlocal acknowledged
            assert error is None
            acknowledged += len(VALUE)

        def step() -> int:
            before = acknowledged
            while len(producer) < 100:
                producer.produce(topic, VALUE, on_delivery=on_delivery)
            producer.poll(0.05)
            return acknowledged - before

        assert abs(rate_of(step) / RATE - 1) < 0.1


@pytest.mark.long
def test_a_consumer_keeps_to_its_rate(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 20, "batch.size": 50_000})
    for _ in range((BURST_S + MEASURED_S + 20) * RATE // len(VALUE)):
        producer.produce(topic, VALUE)
        producer.poll(0)
    assert producer.flush(60) == 0
    with limited(node, "fast-consumer", "consumer_byte_rate"):
        consumer = Consumer(
            {"bootstrap.servers": node.bootstrap, "client.id": "fast-consumer", "group.id": "quota", "log_level": 0}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])

        def step() -> int:
            found = consumer.poll(0.05)
            if found is None:
                return 0
            if found.error():
                raise KafkaException(found.error())
            return len(found.value() or b"")

        assert abs(rate_of(step) / RATE - 1) < 0.1
        consumer.close()
