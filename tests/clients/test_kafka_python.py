"""kafka-python: produce and consume by assignment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.node_process import NodeProcess


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(node: NodeProcess, topic: str, compression: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, compression_type=compression, linger_ms=20)
    futures = [
        producer.send(
            topic,
            key=b"key-%d" % number if number % 3 else None,
            value=b"value-%d" % number if number % 3 != 1 else None,
            headers=[("a", b"1"), ("b", b"")] if number % 2 else [],
            timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(500)
    ]
    assert [future.get(timeout=30).offset for future in futures] == list(range(500))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([TopicPartition(topic, 0)])
    for number, record in zip(range(500), consumer, strict=False):
        assert record.offset == number
        assert record.key == (b"key-%d" % number if number % 3 else None)
        assert record.value == (b"value-%d" % number if number % 3 != 1 else None)
        assert [tuple(header) for header in record.headers] == ([("a", b"1"), ("b", b"")] if number % 2 else [])
        assert record.timestamp == 1_700_000_000_000 + number
    assert consumer.position(TopicPartition(topic, 0)) == 500
    consumer.close()


def test_large_records_and_empty_ones(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="8000000")
    large = hashlib.shake_256(b"large").digest(5_000_000)
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, max_request_size=8_000_000)
    sent = [(None, large), (None, b""), (b"", None), (b"", b"")]
    for key, value in sent:
        producer.send(topic, key=key, value=value).get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=node.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        max_partition_fetch_bytes=1000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    assert [(record.key, record.value) for _, record in zip(sent, consumer, strict=False)] == sent
    consumer.close()
