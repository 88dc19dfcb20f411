"""Real clients as processes of their own: librdkafka by confluent-kafka, and Java's producer and consumer.

Run as `python -m benchmarks.clients produce|consume BOOTSTRAP TOPIC RECORDS SIZE [SETTINGS]`, the module is the
confluent-kafka client itself; imported, it starts that process or a JVM, and parses what they print. The clients keep
their defaults but for one, named where it is set.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka

from tests.oracle.apache_kafka import REPOSITORY, TOOLS, compiled, run_java

from .load import LoadFailed


def librdkafka(
    action: str, bootstrap: str, topic: str, records: int, size: int, settings: Mapping[str, str] | None = None
) -> float:
    """MB/s of `action` (produce or consume) through confluent-kafka; `settings` are the client's own."""
    command = [sys.executable, "-m", "benchmarks.clients", action, bootstrap, topic, str(records), str(size)]
    command.append(json.dumps(dict(settings or {})))
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"confluent-kafka {action}: {done.stderr.strip()[-500:]}")
    return float(json.loads(done.stdout)["mb_s"])


def java_producer(bootstrap: str, topic: str, records: int, size: int) -> float:
    """MB/s (10⁶ bytes) of kafka-producer-perf-test after a warm-up of a third of the records."""
    load = ["--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
    warm = ["--warmup-records", str(records // 3), "--bootstrap-server", bootstrap]
    done = run_java(TOOLS["kafka-producer-perf-test"], "--topic", topic, *load, *warm, timeout=120).check()
    rates = re.findall(r"([0-9.]+) records/sec", done.out)
    return float(rates[-1]) * size / 1e6


def java_consumer(bootstrap: str, topic: str, partitions: int, records: int) -> float:
    """MB/s of the Java consumer by assignment after a warm-up of a third of the records."""
    cp = compiled(Path(__file__).with_name("AssignedConsumer.java"))
    arguments = [bootstrap, topic, str(partitions), str(records // 3), str(records)]
    done = run_java("AssignedConsumer", *arguments, cp=cp, timeout=120).check()
    return float(json.loads(done.lines[-1])["mb_s"])


def _produce(bootstrap: str, topic: str, records: int, size: int, settings: Mapping[str, str]) -> float:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    value = bytes(97 + index % 26 for index in range(size))
    producer.produce(topic, value)
    if producer.flush(30):
        raise LoadFailed("the first record was not acknowledged")
    start = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(60):
        raise LoadFailed("records were not acknowledged within 60 s")
    return time.perf_counter() - start


def _consume(bootstrap: str, topic: str, records: int, size: int, settings: Mapping[str, str]) -> float:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default librdkafka fetches nothing for a second once its queue is full, which it is the sooner the
            # faster the server: the figure would be that of the pause.
            "fetch.queue.backoff.ms": 1,
            **settings,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    start, seen = 0.0, 0
    while seen < records:
        messages = consumer.consume(min(10_000, records - seen), timeout=10)
        if not messages:
            raise LoadFailed(f"no record for 10 s after {seen}")
        if not start:
            start = time.perf_counter()
        seen += len(messages)
    elapsed = time.perf_counter() - start
    consumer.close()
    return elapsed


def _main(action: str, bootstrap: str, topic: str, records: str, size: str, settings: str = "{}") -> None:
    act = {"produce": _produce, "consume": _consume}[action]
    elapsed = act(bootstrap, topic, int(records), int(size), json.loads(settings))
    print(json.dumps({"mb_s": int(records) * int(size) / elapsed / 1e6}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
