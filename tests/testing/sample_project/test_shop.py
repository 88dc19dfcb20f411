"""A shop's tests, as somebody would write them who has read docs/testing.md and nothing else of Ottla."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

if TYPE_CHECKING:
    from ottla.testing import Cluster, Node

PATIENCE_S = 60


class Shop:
    """The program under test: takes orders, and tells how many of each fruit are to be delivered."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "retry.backoff.ms": 10})

    def order(self, fruit: str, number: int) -> None:
        self._producer.produce("orders", key=fruit, value=json.dumps(number))
        assert self._producer.flush(PATIENCE_S) == 0

    def to_deliver(self, orders: int) -> dict[str, int]:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "delivery", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        total: dict[str, int] = {}
        for _ in range(orders):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            fruit = message.key().decode()
            total[fruit] = total.get(fruit, 0) + json.loads(message.value())
        consumer.close()
        return total


@pytest.fixture
def shop(ottla: Node) -> Shop:
    ottla.create_topic("orders", partitions=3)
    return Shop(ottla.bootstrap)


def test_orders_add_up(shop: Shop) -> None:
    shop.order("apple", 3)
    shop.order("pear", 2)
    shop.order("apple", 4)
    assert shop.to_deliver(3) == {"apple": 7, "pear": 2}


def test_each_test_begins_with_nothing(ottla: Node, shop: Shop) -> None:
    assert ottla.records("orders") == []
    assert ottla.topics() == {"orders": 3}


def test_an_order_outlives_a_leader_that_is_none(ottla: Node, shop: Shop) -> None:
    fault = ottla.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=3)
    shop.order("apple", 3)
    assert fault.seen == 3
    assert len(ottla.records("orders")) == 1


@pytest.mark.ottla(set={"auto.create.topics.enable": False})
def test_a_setting_holds_for_one_test(ottla: Node) -> None:
    metadata = AdminClient({"bootstrap.servers": ottla.bootstrap}).list_topics("nothing", timeout=PATIENCE_S)
    assert metadata.topics["nothing"].error is not None
    assert ottla.topics() == {}


class TestOfAClass:
    pytestmark = pytest.mark.ottla(set={"num.partitions": 5, "auto.create.topics.enable": True})

    @pytest.mark.ottla(set={"num.partitions": 2})
    def test_the_nearest_mark_counts(self, ottla: Node) -> None:
        producer = KafkaProducer(bootstrap_servers=ottla.bootstrap)
        producer.send("made", b"1").get(timeout=PATIENCE_S)
        producer.close()
        assert ottla.topics() == {"made": 2}


def test_kafka_python(ottla: Node) -> None:
    producer = KafkaProducer(bootstrap_servers=ottla.bootstrap)
    producer.send("orders", b"three apples").get(timeout=PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=ottla.bootstrap, group_id="readers", auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"three apples"
    consumer.close()


def test_aiokafka(ottla: Node) -> None:
    async def there_and_back() -> bytes | None:
        producer = AIOKafkaProducer(bootstrap_servers=ottla.bootstrap)
        await producer.start()
        await producer.send_and_wait("orders", b"three apples")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "orders", bootstrap_servers=ottla.bootstrap, group_id="readers", auto_offset_reset="earliest"
        )
        await consumer.start()
        record = await consumer.getone()
        await consumer.stop()
        value: bytes | None = record.value
        return value

    assert asyncio.run(there_and_back()) == b"three apples"


@pytest.mark.ottla(security="SASL_SSL", users={"shop": "open-sesame"})
def test_a_shop_behind_a_lock(ottla: Node) -> None:
    config = ottla.client_config("shop")
    producer = KafkaProducer(
        bootstrap_servers=ottla.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=config["ssl.ca.location"],
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=config["sasl.username"],
        sasl_plain_password=config["sasl.password"],
    )
    producer.send("orders", b"three apples").get(timeout=PATIENCE_S)
    producer.close()
    assert [record.value for record in ottla.records("orders")] == [b"three apples"]


def test_a_cluster_has_three_nodes(ottla_cluster: Cluster) -> None:
    ottla_cluster.create_topic("orders")
    Shop(ottla_cluster.bootstrap).order("apple", 3)
    assert len(AdminClient({"bootstrap.servers": ottla_cluster.bootstrap}).list_topics(timeout=PATIENCE_S).brokers) == 3
    assert len(ottla_cluster.records("orders")) == 1
