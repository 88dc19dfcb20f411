"""`python -m benchmarks.gateway`: what it costs to reach a cluster of three by one node's gateway listener.

The same clients, records and topics, straight to the leaders and through the gateway, in turn: confluent-kafka's
producer and consumer in bulk, and one record at a time, each waited for. Medians, and their ratios, go to
`benchmarks/gateway-results.md`. There is no bar: a gateway is a way in for those who have no other.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.harness import Cluster, give_gateway

from .clients import librdkafka

REPORT = Path(__file__).with_name("gateway-results.md")
REPETITIONS = 5
PARTITIONS = 6
RECORDS, RECORD_BYTES = 200_000, 1_000
SINGLE_RECORDS = 1_000


@contextmanager
def running() -> Iterator[tuple[str, str]]:
    """The addresses of three nodes, and that of the first one's gateway."""
    with TemporaryDirectory(prefix="ottla-gateway-") as directory:
        cluster = Cluster(Path(directory))
        port = give_gateway(cluster)
        try:
            cluster.start()
            yield cluster.bootstrap, f"127.0.0.1:{port}"
            cluster.stop_all()
        finally:
            cluster.close()


def consumed_mb_s(bootstrap: str, topic: str) -> float:
    """By assignment, of all partitions, from the first record on."""
    # Once its queue is full librdkafka would rest for a second, and the figure would be that of the rest.
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    began, seen = 0.0, 0
    while seen < RECORDS:
        messages = consumer.consume(10_000, timeout=30)
        if not messages:
            raise TimeoutError(f"no record for 30 s after {seen}")
        began = began or time.perf_counter()
        seen += len(messages)
    elapsed = time.perf_counter() - began
    consumer.close()
    return RECORDS * RECORD_BYTES / elapsed / 1e6


def one_by_one_ms(bootstrap: str, topic: str) -> float:
    """The median from `produce` to its acknowledgement by all in sync."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    taken: list[float] = []
    for number in range(SINGLE_RECORDS):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        if producer.flush(60):
            raise TimeoutError("a record was not acknowledged")
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken[SINGLE_RECORDS // 10 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    repetitions: int = parser.parse_args().repetitions
    lines: dict[str, tuple[str, Callable[[str, str], float]]] = {
        "producer, acks=all, 1,000-byte records": (
            "MB/s",
            lambda bootstrap, topic: librdkafka("produce", bootstrap, topic, RECORDS, RECORD_BYTES),
        ),
        "consumer of the same": (
            "MB/s",
            consumed_mb_s,
        ),
        "one record, acks=all, at the median": ("ms", one_by_one_ms),
    }
    measured: dict[str, tuple[list[float], list[float]]] = {line: ([], []) for line in lines}
    with running() as addresses:
        admin = AdminClient({"bootstrap.servers": addresses[0]})
        for number in range(repetitions):
            for side, bootstrap in enumerate(addresses):
                topic = f"gateway-{number}-{side}"
                admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
                for line, (unit, measure) in lines.items():
                    found = measure(bootstrap, topic)
                    measured[line][side].append(found)
                    print(
                        f"{number + 1}/{repetitions} {'gateway' if side else 'direct'}, {line}: {found:.2f} {unit}",
                        flush=True,
                    )
    rows = []
    for line, (unit, _) in lines.items():
        direct, gateway = (median(each) for each in measured[line])
        rows.append(f"| {line} | {direct:.2f} {unit} | {gateway:.2f} {unit} | {gateway / direct:.2f} |")
    REPORT.write_text(
        "# What a gateway listener costs\n\n"
        f"`make bench-gateway`, medians of {repetitions}, sides taking turns; three nodes, three copies, "
        f"{PARTITIONS} partitions, {os.cpu_count()} processors for nodes and clients together.\n\n"
        "| | straight to the leaders | through the gateway | ratio |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    print(REPORT.read_text())


if __name__ == "__main__":
    main()
