"""librdkafka, by confluent-kafka: everything a producer and an assigned consumer can do."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from tests.node_process import NodeProcess


def produce_all(node: NodeProcess, topic: str, messages: list[dict[str, object]], **config: object) -> list[Message]:
    """Send every message, and return what the broker acknowledged."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.max.bytes": 10_000_000, **config})
    reports: list[Message] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            reports.append(message)

    for message in messages:
        producer.produce(topic, on_delivery=on_delivery, **message)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert errors == []
    return reports


def read_all(node: NodeProcess, topic: str, count: int, partition: int = 0, **config: object) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "unused", "enable.auto.commit": False, **config}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        messages: list[Message] = []
        deadline = time.monotonic() + 60
        while len(messages) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(count, 500), timeout=1):
                assert message.error() is None
                messages.append(message)
        assert len(messages) == count
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_were_sent(node: NodeProcess, topic: str, compression: str, idempotent: bool) -> None:
    sent: list[dict[str, object]] = [
        {
            "key": f"key-{number}".encode() if number % 3 else None,
            "value": f"value-{number}".encode() * (number % 7) if number % 5 else None,
            "headers": [("trace", b"\x00\xff"), ("empty", b""), ("null", None)] if number % 2 else [],
            "timestamp": 1_700_000_000_000 + number,
        }
        for number in range(1000)
    ]
    produce_all(
        node,
        topic,
        sent,
        **{"compression.type": compression, "enable.idempotence": idempotent, "linger.ms": 20},
    )
    received = read_all(node, topic, len(sent), **{"check.crcs": True})
    assert [message.offset() for message in received] == list(range(len(sent)))
    for message, expected in zip(received, sent, strict=True):
        assert message.key() == expected["key"]
        assert message.value() == expected["value"]
        assert (message.headers() or []) == expected["headers"]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, expected["timestamp"])


def test_a_topic_is_created_on_first_use(node: NodeProcess, topic: str) -> None:
    reports = produce_all(node, topic, [{"value": b"first"}])
    assert (reports[0].partition(), reports[0].offset()) == (0, 0)


def test_large_records_and_empty_ones(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="8000000")
    large = hashlib.shake_256(b"large").digest(5_000_000)
    produce_all(node, topic, [{"value": large}, {"value": b""}, {"key": b"", "value": None}])
    received = read_all(node, topic, 3, **{"fetch.message.max.bytes": 1000})
    assert received[0].value() == large
    assert received[1].value() == b""
    assert (received[2].key(), received[2].value()) == (b"", None)


def test_a_record_over_the_topics_limit_is_refused(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    errors: list[int] = []
    producer.produce(topic, value=b"x" * 2000, on_delivery=lambda error, _: errors.append(error.code() if error else 0))
    producer.flush(30)
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_level_of_acknowledgement(node: NodeProcess, topic: str, acks: int) -> None:
    produce_all(node, topic, [{"value": str(number).encode()} for number in range(100)], acks=acks)
    assert [message.value() for message in read_all(node, topic, 100)] == [str(n).encode() for n in range(100)]


@pytest.mark.slow
def test_many_partitions(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=12)
    messages: list[dict[str, object]] = [{"value": str(n).encode(), "partition": n % 12} for n in range(600)]
    produce_all(node, topic, messages)
    for partition in range(12):
        values = [message.value() for message in read_all(node, topic, 50, partition)]
        assert values == [str(n).encode() for n in range(partition, 600, 12)]


def test_log_append_time_is_the_brokers(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce_all(node, topic, [{"value": b"x", "timestamp": 1_000}])
    kind, stamp = read_all(node, topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= stamp <= int(time.time() * 1000)


def test_offsets_are_found_by_time(node: NodeProcess, topic: str) -> None:
    base = 1_700_000_000_000
    produce_all(
        node,
        topic,
        [{"value": b"x" * 100, "timestamp": base + number * 10} for number in range(2000)],
        **{"compression.type": "zstd"},
    )
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        for wanted, expected in ((base, 0), (base + 1, 1), (base + 9_995, 1000), (base + 19_990, 1999)):
            found = consumer.offsets_for_times([TopicPartition(topic, 0, wanted)], timeout=10)
            assert found[0].offset == expected
        beyond = consumer.offsets_for_times([TopicPartition(topic, 0, base + 20_000)], timeout=10)
        assert beyond[0].offset == -1
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 2000)
    finally:
        consumer.close()


def test_a_consumer_may_begin_in_the_middle_of_a_batch(node: NodeProcess, topic: str) -> None:
    produce_all(node, topic, [{"value": str(n).encode()} for n in range(500)], **{"linger.ms": 100})
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 321)])
        message = consumer.poll(10)
        assert message is not None
        assert (message.offset(), message.value()) == (321, b"321")
    finally:
        consumer.close()


def test_a_waiting_consumer_hears_of_a_record_at_once(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20_000,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert consumer.poll(1) is None
        started = time.monotonic()
        produce_all(node, topic, [{"value": b"news"}])
        message = consumer.poll(15)
        assert message is not None
        assert message.value() == b"news"
        assert time.monotonic() - started < 10  # Far less than the poll would have waited.
    finally:
        consumer.close()


def test_the_admin_client_manages_topics_and_configs(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2, retention_ms="1000000")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    described = admin.list_topics(topic, timeout=10).topics[topic]
    assert sorted(described.partitions) == [0, 1]
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "1000000"
    assert configs["segment.bytes"].is_default
    records = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert records[TopicPartition(topic, 0)].result(10).offset == 0
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_topic_name_that_cannot_be_is_refused(node: NodeProcess) -> None:
    from confluent_kafka.admin import NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for name in ("../evil", "a/b", "..", "x" * 250, "white space"):
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
        assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_records_can_be_deleted_up_to_an_offset(node: NodeProcess, topic: str) -> None:
    produce_all(node, topic, [{"value": str(n).encode()} for n in range(100)])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 0, 40)])
    assert next(iter(deleted.values())).result(10).low_watermark == 40
    assert read_all(node, topic, 60)[0].offset() == 40
