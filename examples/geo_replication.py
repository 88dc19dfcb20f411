"""Two clusters, one of which mirrors the other: records, topics and the positions of groups.

    python examples/geo_replication.py

Both clusters are started here and gone afterwards. In real life the mirror is one command,
`ottla pipeline mirror --from prague:9092 --to brno:9092`, which goes on until it is stopped.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from confluent_kafka import Consumer

import ottla.testing
from ottla.spark.pipelines.home import Home
from ottla.spark.pipelines.mirror import MirrorEnd, mirror
from ottla.spark.pipelines.runner import run_pipeline


def read(bootstrap: str, count: int) -> list[str]:
    """As a member of the group `billing`, from where the group stands; commits what it has read."""
    found: list[str] = []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            found.append(message.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def text(record: ottla.testing.Record) -> str:
    assert record.value is not None
    return record.value.decode()


def main() -> None:
    with ottla.testing.node() as brno:
        with ottla.testing.node() as prague, tempfile.TemporaryDirectory() as directory:
            prague.create_topic("orders", partitions=1, config={"retention.ms": 86_400_000})
            for number in range(6):
                prague.produce("orders", f"order {number}", key=f"customer {number % 2}")
            print("Prague bills", ", ".join(read(prague.bootstrap, 4)))
            made = mirror(MirrorEnd(prague.bootstrap), MirrorEnd(brno.bootstrap), topics="orders", groups="billing")
            run_pipeline(made, Home(Path(directory) / made.name), once=True, interval_s=0.0, tell=lambda status: None)
        print("Prague is gone. Brno has", ", ".join(map(text, brno.records("orders"))))
        print("Brno bills", ", ".join(read(brno.bootstrap, 2)))


if __name__ == "__main__":
    main()
