"""aiokafka: produce and consume by assignment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Partition

from tests.node_process import NodeProcess


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_records_come_back_as_they_were_sent(
    node: NodeProcess, topic: str, compression: str | None, idempotent: bool
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=node.bootstrap, compression_type=compression, enable_idempotence=idempotent, linger_ms=20
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                key=b"key-%d" % number if number % 3 else None,
                value=b"value-%d" % number if number % 3 != 1 else None,
                headers=[("a", b"1"), ("b", b"")] if number % 2 else [],
                timestamp_ms=1_700_000_000_000 + number,
            )
            for number in range(500)
        ]
        assert [(await future).offset for future in futures] == list(range(500))
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", check_crcs=True)
    await consumer.start()
    try:
        consumer.assign([Partition(topic, 0)])
        for number in range(500):
            record = await consumer.getone()
            assert record.offset == number
            assert record.key == (b"key-%d" % number if number % 3 else None)
            assert record.value == (b"value-%d" % number if number % 3 != 1 else None)
            assert list(record.headers) == ([("a", b"1"), ("b", b"")] if number % 2 else [])
            assert record.timestamp == 1_700_000_000_000 + number
    finally:
        await consumer.stop()


async def test_large_records_and_empty_ones(node: NodeProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="8000000")
    large = hashlib.shake_256(b"large").digest(5_000_000)
    producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, max_request_size=8_000_000)
    sent = [(None, large), (None, b""), (b"", None), (b"", b"")]
    await producer.start()
    try:
        for key, value in sent:
            await producer.send_and_wait(topic, key=key, value=value)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=1000
    )
    await consumer.start()
    try:
        consumer.assign([Partition(topic, 0)])
        received = [await consumer.getone() for _ in sent]
        assert [(record.key, record.value) for record in received] == sent
    finally:
        await consumer.stop()
