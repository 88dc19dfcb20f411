"""One consumer of a group in a process of its own, that a test can end politely (SIGTERM) or not (SIGKILL).

    python -m tests.clients.group_worker <library> <bootstrap> <group> <topic> [instance=…] [strategy=…]

It tells on its standard output, one JSON value a line: `["owns", [partitions]]` whenever that has changed, and
`["saw", partition, offset, value]` for each record, whose offset it has committed by then.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Protocol

SESSION_MS = 3_000
HEARTBEAT_MS = 200


class Worker(Protocol):
    def run(self) -> None: ...


class _Teller:
    def __init__(self) -> None:
        self._owned: list[int] | None = None
        self.ended = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.ended = True

    def owns(self, partitions: list[int]) -> None:
        if partitions != self._owned:
            self._owned = partitions
            print(json.dumps(["owns", partitions]), flush=True)

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        print(json.dumps(["saw", partition, offset, value.decode()]), flush=True)


def confluent(bootstrap: str, group: str, topic: str, options: dict[str, str], teller: _Teller) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            **({"group.instance.id": options["instance"]} if "instance" in options else {}),
            **({"partition.assignment.strategy": options["strategy"]} if "strategy" in options else {}),
        }
    )
    consumer.subscribe([topic])
    while not teller.ended:
        message = consumer.poll(0.05)
        teller.owns(sorted(partition.partition for partition in consumer.assignment()))
        if message is not None and message.error() is None:
            consumer.commit(message, asynchronous=False)
            teller.saw(message.partition(), message.offset(), message.value())
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, options: dict[str, str], teller: _Teller) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=options.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    # Version 3.0.12 forgets an assignment that comes while no poll waits for it, and then never asks again: so it knows
    # the topic before it joins, and polls with patience.
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])
    while not teller.ended:
        polled = consumer.poll(timeout_ms=1_000)
        teller.owns(sorted(partition.partition for partition in consumer.assignment()))
        if polled:
            consumer.commit()
            for records in polled.values():
                for record in records:
                    teller.saw(record.partition, record.offset, record.value)
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, options: dict[str, str], teller: _Teller) -> None:
    from aiokafka import AIOKafkaConsumer

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=options.get("instance"),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        while not teller.ended:
            polled = await consumer.getmany(timeout_ms=50)
            teller.owns(sorted(partition.partition for partition in consumer.assignment()))
            if polled:
                await consumer.commit()
                for records in polled.values():
                    for record in records:
                        teller.saw(record.partition, record.offset, record.value)
        await consumer.stop()

    asyncio.run(run())


LIBRARIES = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    library, bootstrap, group, topic, *options = sys.argv[1:]
    LIBRARIES[library](bootstrap, group, topic, dict(option.split("=", 1) for option in options), _Teller())
