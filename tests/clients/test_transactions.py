"""Transactions of librdkafka, aiokafka and kafka-python: all of one or nothing, fencing, and offsets that go along."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Partition
from aiokafka.errors import ProducerFenced
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import ProducerFencedError

from tests.node_process import NodeProcess


@pytest.fixture
def producer_of(node: NodeProcess) -> Callable[[str], Producer]:
    """A producer of a transactional id, ready to begin."""

    def make(transactional_id: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(30)
        return producer

    return make


@pytest.fixture
def name() -> str:
    return uuid4().hex[:12]


@pytest.fixture
def reader(node: NodeProcess) -> Iterator[Callable[..., list[bytes]]]:
    """Reads what a consumer finds in a partition up to its end."""
    consumers: list[Consumer] = []

    def read(topic: str, partition: int = 0, isolation: str = "read_committed") -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        consumers.append(consumer)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        values: list[bytes] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            values.append(message.value())
        raise AssertionError("the end of the partition never came")

    yield read
    for consumer in consumers:
        consumer.close()


@pytest.mark.slow
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    new_topic: Callable[..., str],
    producer_of: Callable[[str], Producer],
    reader: Callable[..., list[bytes]],
    name: str,
) -> None:
    topic = new_topic(2)
    producer = producer_of(name)
    for number in range(10):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 1:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    # Nothing was sent: that is a transaction, too.
    producer.begin_transaction()
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.abort_transaction(30)
    kept = [b"%d" % number for number in range(10) if number % 3 != 1]
    for partition in range(2):
        assert _eventually(lambda p=partition: reader(topic, p), kept) == kept  # type: ignore[misc]
        assert reader(topic, partition, "read_uncommitted") == [b"%d" % number for number in range(10)]


@pytest.mark.slow
def test_an_open_transaction_is_not_read(
    new_topic: Callable[..., str],
    producer_of: Callable[[str], Producer],
    reader: Callable[..., list[bytes]],
    name: str,
) -> None:
    topic = new_topic()
    producer = producer_of(name)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(30) == 0
    assert reader(topic) == []
    assert reader(topic, isolation="read_uncommitted") == [b"open"]
    producer.commit_transaction(30)
    assert _eventually(lambda: reader(topic), [b"open"]) == [b"open"]


def test_the_second_producer_of_a_transactional_id_fences_the_first(
    new_topic: Callable[..., str],
    producer_of: Callable[[str], Producer],
    reader: Callable[..., list[bytes]],
    name: str,
) -> None:
    topic = new_topic()
    first = producer_of(name)
    first.begin_transaction()
    first.produce(topic, b"of the first")
    assert first.flush(30) == 0
    second = producer_of(name)
    second.begin_transaction()
    second.produce(topic, b"of the second")
    second.commit_transaction(30)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert _eventually(lambda: reader(topic), [b"of the second"]) == [b"of the second"]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_offsets_are_committed_with_the_transaction_that_used_them(
    node: NodeProcess,
    new_topic: Callable[..., str],
    producer_of: Callable[[str], Producer],
    reader: Callable[..., list[bytes]],
    name: str,
    protocol: str,
) -> None:
    topic, target = new_topic(), f"target-{name}"
    source = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(20):
        source.produce(topic, b"%d" % number)
    assert source.flush(30) == 0
    producer = producer_of(name)

    def transform(count: int, commit: bool) -> None:
        """A consumer of the group takes the next records, and its producer what is made of them."""
        consumer = Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": f"group-{name}",
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        try:
            messages: list[Message] = []
            deadline = time.monotonic() + 60
            while len(messages) < count and time.monotonic() < deadline:
                messages += consumer.consume(count - len(messages), 1)
            assert len(messages) == count
            producer.begin_transaction()
            for message in messages:
                assert message.error() is None
                producer.produce(target, b"from " + message.value())
            last = messages[-1]
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, last.partition(), last.offset() + 1)], consumer.consumer_group_metadata(), 30
            )
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        finally:
            consumer.close()

    transform(5, commit=True)
    transform(7, commit=False)
    transform(15, commit=True)
    wanted = [b"from %d" % number for number in range(20)]
    assert _eventually(lambda: reader(target), wanted) == wanted


async def _end(producer: AIOKafkaProducer, *, commit: bool) -> None:
    if commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()


async def test_aiokafka_commits_and_aborts(node: NodeProcess, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic()
    producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=name)
    await producer.start()
    try:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            await _end(producer, commit=number % 2 == 0)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        consumer.assign([Partition(topic, 0)])
        assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"2", b"4"]
    finally:
        await consumer.stop()


async def test_aiokafka_commits_offsets_with_a_transaction(
    node: NodeProcess, new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic()
    group = f"group-{name}"
    producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=name)
    consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap, group_id=group, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        consumer.assign([Partition(topic, 0)])
        for offset, commit in ((3, True), (5, False), (4, True)):
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({Partition(topic, 0): offset}, group)
            await _end(producer, commit=commit)
        for _ in range(600):
            if await consumer.committed(Partition(topic, 0)) == 4:
                break
            await asyncio.sleep(0.1)
        assert await consumer.committed(Partition(topic, 0)) == 4
    finally:
        await consumer.stop()
        await producer.stop()


async def test_aiokafka_is_fenced(node: NodeProcess, new_topic: Callable[..., str], name: str) -> None:
    topic = new_topic()
    first = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=name)
    second = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=name)
    await first.start()
    try:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"of the first")
        await second.start()
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
    finally:
        await first.stop()
        await second.stop()


@pytest.fixture
def kafka_python_producer_of(node: NodeProcess) -> Iterator[Callable[[str], KafkaProducer]]:
    producers: list[KafkaProducer] = []

    def make(transactional_id: str) -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=transactional_id)
        producers.append(producer)
        producer.init_transactions()
        return producer

    yield make
    for producer in producers:
        producer.close(timeout=0)


@pytest.mark.slow
def test_kafka_python_commits_and_aborts(
    new_topic: Callable[..., str],
    kafka_python_producer_of: Callable[[str], KafkaProducer],
    reader: Callable[..., list[bytes]],
    name: str,
) -> None:
    topic = new_topic()
    producer = kafka_python_producer_of(name)
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert _eventually(lambda: reader(topic), [b"0", b"2", b"4"]) == [b"0", b"2", b"4"]
    assert reader(topic, isolation="read_uncommitted") == [b"%d" % number for number in range(6)]


def test_kafka_python_commits_offsets_with_a_transaction(
    node: NodeProcess,
    new_topic: Callable[..., str],
    kafka_python_producer_of: Callable[[str], KafkaProducer],
    name: str,
) -> None:
    place = KafkaPythonPartition(new_topic(), 0)
    group = f"group-{name}"
    producer = kafka_python_producer_of(name)
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        for offset, commit in ((3, True), (5, False), (4, True)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, group)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        deadline = time.monotonic() + 60
        while (committed := consumer.committed(place)) != 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert committed == 4
    finally:
        consumer.close()


def test_kafka_python_is_fenced(
    new_topic: Callable[..., str],
    kafka_python_producer_of: Callable[[str], KafkaProducer],
    reader: Callable[..., list[bytes]],
    name: str,
) -> None:
    topic = new_topic()
    first = kafka_python_producer_of(name)
    first.begin_transaction()
    first.send(topic, b"of the first", partition=0)
    first.flush(60)
    second = kafka_python_producer_of(name)
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    second.begin_transaction()
    second.send(topic, b"of the second", partition=0)
    second.commit_transaction()
    assert _eventually(lambda: reader(topic), [b"of the second"]) == [b"of the second"]


def _eventually(ask: Callable[[], list[bytes]], wanted: list[bytes]) -> list[bytes]:
    """Markers are written after EndTxn is answered."""
    deadline = time.monotonic() + 60
    while (got := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return got
