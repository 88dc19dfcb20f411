"""`ottla bench`: how quick a cluster is, in a moment: a topic of its own is written, read and deleted."""

from __future__ import annotations

import random
import time
from typing import Annotated, Any

import typer

from ottla.admin import topics
from ottla.cli.librdkafka import librdkafka_config, sentence
from ottla.cli.output import plural
from ottla.cli.session import Session, command, single
from ottla.errors import StartupError

app = single()

_STALLED_S = 60.0


@command(app, "bench", examples=["ottla bench", "ottla bench -n 1000000 --size 100 -p 6 -r 3 --acks all"])
def bench(
    session: Session,
    records: Annotated[int, typer.Option("--records", "-n", help="So many.")] = 200_000,
    record_bytes: Annotated[int, typer.Option("--size", "-s", help="Bytes in each.")] = 1_000,
    partitions: Annotated[int, typer.Option("--partitions", "-p")] = 4,
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="-1 is the cluster's default.")] = -1,
    acks: Annotated[str, typer.Option(help="Who must have a record: all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", "-z")] = "none",
    round_trips: Annotated[int, typer.Option(help="Records sent one by one, for the latency.")] = 200,
) -> None:
    """Measure how quickly records go in and come out, and how long one takes."""
    if min(records, record_bytes, partitions, round_trips) < 1:
        raise typer.BadParameter("--records, --size, --partitions and --round-trips must be at least 1.")
    topic = f"ottla-bench-{random.SystemRandom().getrandbits(32):08x}"
    config = librdkafka_config(session.properties, session.settings)
    with session.client() as client:
        topics.create_topic(client, topic, partitions=partitions, replication_factor=replicas)
        try:
            produced_s = _produce(config, topic, records, record_bytes, acks, compression)
            latencies_ms = sorted(_round_trips(config, topic, round_trips, record_bytes, acks))
            consumed_s = _consume(config, topic, partitions, records)
        finally:
            topics.delete_topic(client, topic)
    megabytes = records * record_bytes / 1e6
    item = {
        "records": records,
        "record_bytes": record_bytes,
        "produce_records_per_s": round(records / produced_s),
        "produce_mb_per_s": round(megabytes / produced_s, 1),
        "consume_records_per_s": round(records / consumed_s),
        "consume_mb_per_s": round(megabytes / consumed_s, 1),
        "latency_ms_p50": round(latencies_ms[len(latencies_ms) // 2], 2),
        "latency_ms_p99": round(latencies_ms[len(latencies_ms) * 99 // 100], 2),
    }
    text = (
        f"produce  {item['produce_records_per_s']} records/s, {item['produce_mb_per_s']} MB/s\n"
        f"consume  {item['consume_records_per_s']} records/s, {item['consume_mb_per_s']} MB/s\n"
        f"latency  {item['latency_ms_p50']} ms at the median, {item['latency_ms_p99']} ms at 99 % (acks={acks})"
    )
    session.out.item(item, text)


def _produce(config: dict[str, Any], topic: str, records: int, record_bytes: int, acks: str, compression: str) -> float:
    # Half of it is random: neither as compressible as zeros nor as incompressible as noise.
    value = random.Random(7).randbytes(record_bytes // 2) + bytes(record_bytes - record_bytes // 2)
    sending = _Sending({**config, "acks": acks, "compression.type": compression, "linger.ms": 5}, topic, value)
    started_s = time.perf_counter()
    sending.send(records)
    sending.finish()
    return time.perf_counter() - started_s


def _round_trips(config: dict[str, Any], topic: str, count: int, record_bytes: int, acks: str) -> list[float]:
    sending = _Sending({**config, "acks": acks, "linger.ms": 0}, topic, bytes(record_bytes))
    taken: list[float] = []
    for _ in range(count + 1):
        started_s = time.perf_counter()
        sending.send(1)
        sending.finish()
        taken.append((time.perf_counter() - started_s) * 1000)
    return taken[1:]  # The first opens connections.


class _Sending:
    """A producer that sends one value again and again. What is not confirmed is `StartupError`."""

    def __init__(self, config: dict[str, Any], topic: str, value: bytes) -> None:
        from confluent_kafka import KafkaException, Producer

        self._topic = topic
        self._value = value
        self._failed: list[Any] = []
        try:
            self._producer = Producer(config)
        except KafkaException as error:
            raise StartupError(f"The producer cannot be made: {sentence(error.args[0])}") from None

    def send(self, count: int) -> None:
        """Hands so many over, as there is room for them."""
        from confluent_kafka import KafkaException

        produce, topic, value, on_delivery = self._producer.produce, self._topic, self._value, self._on_delivery
        for _ in range(count):
            while True:
                try:
                    produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    self._make_room()
                except KafkaException as error:
                    why = sentence(error.args[0])
                    raise StartupError(f"Records of {len(value)} bytes are not taken: {why} See --size.") from None

    def finish(self) -> None:
        """Until all are confirmed."""
        self._check(stalled=self._producer.flush(_STALLED_S) > 0)

    def _make_room(self) -> None:
        deadline_s = time.perf_counter() + _STALLED_S
        while not self._producer.poll(0.05):
            self._check(stalled=time.perf_counter() > deadline_s)
        self._check(stalled=False)

    def _check(self, *, stalled: bool) -> None:
        if not self._failed and not stalled:
            return
        left = len(self._producer)
        self._producer.purge()
        self._producer.poll(0)  # What waits for records that are on their way lets go of this.
        if self._failed:
            raise StartupError(f"Records were not taken: {sentence(self._failed[0])}")
        raise StartupError(f"The cluster does not confirm {plural(left, 'record')}: see `ottla doctor`.")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)


def _consume(config: dict[str, Any], topic: str, partitions: int, records: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**config, "group.id": "ottla-bench", "enable.auto.commit": "false"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        started_s = last_s = time.perf_counter()
        seen = 0
        while seen < records:
            messages = consumer.consume(10_000, 0.1)
            errors = [each.error() for each in messages if each.error() is not None]
            if errors:
                raise StartupError(f"The topic cannot be read: {sentence(errors[0])}")
            seen += len(messages)
            now_s = time.perf_counter()
            if messages:
                last_s = now_s
            elif now_s - last_s > _STALLED_S:
                raise StartupError(f"Only {seen} of {records} records came back.")
        return time.perf_counter() - started_s
    finally:
        consumer.close()
