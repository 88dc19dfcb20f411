"""Which partition a record goes to: in turns, by its key, or as you say.

    python examples/partitioners.py

In turns, the load is even and there is no order. By key, all records of a key are in one partition, in their order. A
function of your own can do anything else: here, orders that are urgent have a partition to themselves.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
PARTITIONS = 3
BY_KEY = -1
"""No partition: the client takes the one that the key's hash says, as all of Kafka's clients do."""


class Order(NamedTuple):
    customer: str
    number: int
    urgent: bool


def in_turns() -> Callable[[Order], int]:
    turns = itertools.cycle(range(PARTITIONS))
    return lambda order: next(turns)


def by_key(order: Order) -> int:
    return BY_KEY


def urgent_apart(order: Order) -> int:
    """Partition 0 is for those who cannot wait; the others are shared by customer."""
    return 0 if order.urgent else 1 + sum(order.customer.encode()) % (PARTITIONS - 1)


def orders() -> Iterator[Order]:
    for number in range(12):
        yield Order(("ann", "bob", "cleo")[number % 3], number, urgent=number % 4 == 0)


def send(topic: str, partition_of: Callable[[Order], int]) -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "partitioner": "murmur2_random"})
    for order in orders():
        value = f"{order.number}{'!' if order.urgent else ''}"
        producer.produce(topic, key=order.customer, value=value, partition=partition_of(order))
    producer.flush(30)


def read(topic: str) -> dict[int, list[tuple[str, str]]]:
    """(key, value) of each partition, in order."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[tuple[str, str]]] = {partition: [] for partition in range(PARTITIONS)}
    while sum(map(len, found.values())) < 12:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            found[message.partition()].append((message.key().decode(), message.value().decode()))
    consumer.close()
    return found


def main() -> None:
    for topic, partition_of in (("in-turns", in_turns()), ("by-key", by_key), ("urgent-apart", urgent_apart)):
        send(topic, partition_of)
        print(topic)
        for partition, records in read(topic).items():
            customers = Counter(customer for customer, _ in records)
            shares = ", ".join(f"{count} of {customer}" for customer, count in sorted(customers.items()))
            print(f"  {partition}: {' '.join(value for _, value in records) or '-'}  ({shares or 'nothing'})")


if __name__ == "__main__":
    main()
