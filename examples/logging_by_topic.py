"""Logs of many services, each in a topic of its own; whoever cares follows the topics that it cares about.

    python examples/logging_by_topic.py

A handler of Python's `logging` sends what a logger says to the topic `logs.NAME`. A reader subscribes to all of them by
a pattern and picks out the errors. The topics keep a day, and nobody has to tell the services who reads.
"""

from __future__ import annotations

import json
import logging
import os

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
CLIENT = {"bootstrap.servers": BOOTSTRAP, "enable.metrics.push": False}
DAY_MS = 24 * 60 * 60 * 1000


class TopicHandler(logging.Handler):
    """What a logger says goes to a topic of its name."""

    def __init__(self) -> None:
        super().__init__()
        self._producer = Producer(
            {**CLIENT, "partitioner": "murmur2_random", "linger.ms": 50, "compression.type": "zstd"}
        )

    def emit(self, record: logging.LogRecord) -> None:
        said = {"level": record.levelname, "service": record.name, "message": record.getMessage()}
        self._producer.produce(f"logs.{record.name}", key=record.name, value=json.dumps(said))
        self._producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(30)


def create_topics(services: list[str]) -> None:
    topics = [
        NewTopic(f"logs.{name}", num_partitions=1, config={"retention.ms": str(DAY_MS), "compression.type": "zstd"})
        for name in services
    ]
    admin = AdminClient(CLIENT)
    for created in admin.create_topics(topics).values():
        created.result(30)


def errors(count: int) -> list[str]:
    """The first so many errors in all topics of logs."""
    found: list[str] = []
    consumer = Consumer({**CLIENT, "group.id": "on-call", "auto.offset.reset": "earliest"})
    consumer.subscribe(["^logs\\..*"])
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        said = json.loads(message.value())
        if said["level"] == "ERROR":
            found.append(f"{said['service']}: {said['message']}")
    consumer.close()
    return sorted(found)


def main() -> None:
    create_topics(["checkout", "search"])
    handler = TopicHandler()
    for name in ("checkout", "search"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    logging.getLogger("checkout").info("order 17 was paid")
    logging.getLogger("checkout").error("order 18: the card was refused")
    logging.getLogger("search").info("42 results for apples")
    logging.getLogger("search").error("the index is a day old")
    handler.flush()
    for line in errors(2):
        print(line)


if __name__ == "__main__":
    main()
