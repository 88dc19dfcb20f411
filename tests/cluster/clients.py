"""A producer that remembers what was acknowledged, and a reader of all there is."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.cluster.harness import PATIENCE_S, Cluster


class Writer:
    """Writes numbers with acks=all; `acknowledged` are those that the cluster has promised to keep."""

    def __init__(self, cluster: Cluster, topic: str, *, idempotent: bool = False) -> None:
        self._topic = topic
        self._next = 0
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "linger.ms": 1,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "request.timeout.ms": 3000,
                "socket.timeout.ms": 3000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                "enable.metrics.push": False,
                "log_level": 0,
            }
        )

    def write(self, count: int) -> None:
        """Returns when all are acknowledged, or will never be."""
        for number in range(self._next, self._next + count):
            self._producer.produce(self._topic, str(number).encode(), partition=0, on_delivery=self._on_delivery)
            self._producer.poll(0)
        self._next += count
        assert self._producer.flush(PATIENCE_S + 5) == 0

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
        else:
            self.acknowledged.append(int(message.value()))


def read_all(cluster: Cluster, topic: str, count: int) -> list[int]:
    """Everything in partition 0, from the beginning; fails unless `count` records come in time."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.metrics.push": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records were read"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(int(message.value()))
        tail = consumer.poll(0.5)
        while tail is not None and tail.error() is None:
            found.append(int(tail.value()))
            tail = consumer.poll(0.2)
    finally:
        consumer.close()
    return found
