"""A stream processor without any framework: reads, computes, writes, exactly once.

    python examples/stream_processing.py

Payments become balances. What was read, what was written and how far the group has come are committed in one
transaction: whoever reads the balances with `read_committed` sees all of it or nothing. In the middle the processor
breaks off with a transaction half done, and another goes on: no payment is lost, and none is counted twice.
"""

from __future__ import annotations

import os
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")
CLIENT = {"bootstrap.servers": BOOTSTRAP, "enable.metrics.push": False}
AS_JAVA = {"partitioner": "murmur2_random"}
"""Keys go where Java's clients send them, however many partitions there are."""
PAYMENTS, BALANCES, GROUP = "payments", "balances", "balances-of-payments"
SETTLED = {**CLIENT, "isolation.level": "read_committed", "enable.auto.commit": False}


class Broken(Exception):
    """The processor dies here."""


def balances() -> Counter[str]:
    """What was committed: the last value of each key."""
    found: Counter[str] = Counter()
    consumer = Consumer({**SETTLED, "group.id": "lookup", "enable.partition.eof": True})
    consumer.assign([TopicPartition(BALANCES, 0, 0)])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error():
            break  # The end of the partition.
        if message is not None:
            found[message.key().decode()] = int(message.value())
    consumer.close()
    return found


def process(count: int, *, break_at: int | None = None) -> None:
    """The next `count` payments, each in a transaction. A new processor fences the one before it."""
    producer = Producer({**CLIENT, **AS_JAVA, "transactional.id": "balances-1"})
    producer.init_transactions(30)
    state = balances()
    consumer = Consumer({**SETTLED, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([PAYMENTS])
    done = 0
    while done < count:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        account = message.key().decode()
        state[account] += int(message.value())
        producer.begin_transaction()
        producer.produce(BALANCES, key=account, value=str(state[account]))
        if done == break_at:
            producer.flush(30)
            consumer.close()
            raise Broken
        position = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        done += 1
    consumer.close()


def main() -> None:
    topics = [NewTopic(PAYMENTS, 1), NewTopic(BALANCES, 1, config={"cleanup.policy": "compact"})]
    admin = AdminClient(CLIENT)
    for created in admin.create_topics(topics).values():
        created.result(30)
    payments = [("ann", 10), ("bob", 5), ("ann", 20), ("cleo", 7), ("bob", 1), ("ann", -4)]
    producer = Producer({**CLIENT, **AS_JAVA})
    for account, amount in payments:
        producer.produce(PAYMENTS, key=account, value=str(amount))
    producer.flush(30)
    try:
        process(len(payments), break_at=3)
    except Broken:
        print("the first processor broke off at its fourth payment")
    process(len(payments) - 3)
    for account, balance in sorted(balances().items()):
        print(f"{account} has {balance}")


if __name__ == "__main__":
    main()
