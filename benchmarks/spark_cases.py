"""What is measured of topics as DataFrames: both formats on the same broker, in the same Spark session, taking turns.

`spark_worker` is the session; `benchmarks.spark` runs the cases and writes the page.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.records import BatchBuilder, CompressionType
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.oracle.apache_kafka import spark_connector
from tests.wire_client import WireClient

from . import series, servers
from .cases import Case, Metric, Sample
from .load import LoadFailed
from .servers import Node, Side

PARTITIONS = 2
BATCH_BYTES = 64 * 1024
DISTINCT_BATCHES = 32
"""Batches that are made, and then sent again and again: enough that none is in a cache when it comes again."""
LATENCY_BATCHES = 40
PRODUCE_VERSION = 12
MASTERS = ("local[1]", "local[2]")
SHARES = (16, 4, 1)
QUARTER = 4

TUNED_READING = {
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "1048576",
}
TUNED_WRITING = {
    "kafka.batch.size": "262144",
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": "134217728",
    "kafka.send.buffer.bytes": "1048576",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is read and written."""

    small: int
    large: int
    sink_small: int
    sink_large: int


class Session:
    """A process of `spark_worker`."""

    def __init__(self, scratch: Path, master: str, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        jars = ",".join(str(jar) for jar in spark_connector())
        command = [sys.executable, "-m", "benchmarks.spark_worker", master, jars, *flags]
        self._log = scratch / "session.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **series.COMPILED, **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, **arguments: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # Who has ended gives no answer, either.
            self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"the Spark session has ended: {self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise LoadFailed(answer["failure"])
        return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class World:
    """The brokers and the sessions, which both formats share."""

    def __init__(self, broker: Side, kafka: Side, scratch: Path) -> None:
        self.broker = broker
        self.kafka = kafka
        self.scratch = scratch
        self._sessions: dict[str, Session] = {}

    def session(self, master: str = MASTERS[-1]) -> Session:
        if master not in self._sessions:
            self._sessions[master] = Session(self.scratch, master)
        return self._sessions[master]

    def cpu_seconds(self) -> float:
        running = sum(servers.cpu_seconds(each.pid) for each in self._sessions.values())
        return self.broker.cpu_seconds() + self.kafka.cpu_seconds() + running

    def end_sessions(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1].end()


class FormatSide(Side):
    """One of the two formats. What Spark and the broker do, they do for both: it is counted with the first."""

    def __init__(
        self, name: str, world: World, format: str, reading: Mapping[str, str], writing: Mapping[str, str]
    ) -> None:
        super().__init__(name, world.scratch)
        self.world = world
        self.format = format
        self._reading = reading
        self._writing = writing

    @property
    def node(self) -> Node:
        return self.world.broker.node

    def cpu_seconds(self) -> float:
        return self.world.cpu_seconds() if self.format == "ottla" else 0.0

    def replace(self) -> None:
        self.world.end_sessions()

    def end(self) -> None:
        self.world.end_sessions()

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[str]:
        with super().topic(f"{name}-{self.format}", partitions) as made:
            yield made

    def source(self, topic: str, broker: Side | None = None, **more: str) -> dict[str, str]:
        bootstrap = (broker or self.world.broker).node.bootstrap
        return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **self._reading, **more}

    def sink(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.node.bootstrap, "topic": topic, **self._writing}


# What is read.


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A topic with records in it."""

    topic: str
    records: int
    size: int
    compression: CompressionType
    broker: Side


def fill(broker: Side, topic: str, records: int, size: int, compression: CompressionType) -> Filled:
    """Values of text that packs to about half, in batches of 64 KB, as producers send them."""
    node = broker.node
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(60)
    random = Random(size)
    in_batch = max(1, BATCH_BYTES // (size + 10))
    now_ms = int(time.time() * 1000)

    def batch(count: int) -> bytes:
        builder = BatchBuilder(compression=compression)
        for place in range(count):
            builder.append(now_ms + place, None, random.randbytes(size // 2).hex().encode())
        return bytes(builder.build())

    made = [batch(in_batch) for _ in range(DISTINCT_BATCHES)]
    with WireClient((node.host, node.port)) as client:
        for partition in range(PARTITIONS):
            left = records // PARTITIONS
            for each in itertools.cycle(made):
                if left < in_batch:
                    break
                _produce(client, topic, partition, each)
                left -= in_batch
            if left:
                _produce(client, topic, partition, batch(left))
    whole = records // PARTITIONS * PARTITIONS
    return Filled(topic=topic, records=whole, size=size // 2 * 2, compression=compression, broker=broker)


def _produce(client: WireClient, topic: str, partition: int, batch: bytes) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    answer = client.call(request, ProduceResponse, PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code
    if code:
        raise LoadFailed(f"{topic} did not take a batch: error {code}")


# What is measured.


class Bench:
    """The cases; topics are filled when the first case that reads them is prepared."""

    def __init__(self, world: World, sizes: Sizes) -> None:
        self._world = world
        self._sizes = sizes
        self._filled: dict[str, Filled] = {}
        self._seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        """Of queries by what they do, by whose format, and of how many records."""
        self.rate_ms: list[float] = []

    def cases(self) -> list[Case]:
        return [
            *(
                self._reading(size, compression)
                for size in (100, 1024)
                for compression in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD)
            ),
            self._reading(100, CompressionType.NONE, self._world.kafka),
            *(self._sinking(size) for size in (100, 1024)),
            self._sinking(100, share=QUARTER),
            *(self._following(into_topic) for into_topic in (False, True)),
            *(self._scaling(master, share) for master in MASTERS for share in SHARES),
            *(self._starting(keep_classes) for keep_classes in (False, True)),
        ]

    def split(self, what: str, format: str) -> tuple[float, float] | None:
        """What a query costs whatever its size, in seconds, and what a record costs, in microseconds: by the times for
        N records and for a quarter of them. None where one of them was not measured."""
        records = self._sizes.small if what == "read" else self._sizes.sink_small
        whole, quarter = (self._seconds.get((what, format, records // share)) for share in (1, QUARTER))
        if not whole or not quarter:
            return None
        each_s = (statistics.median(whole) - statistics.median(quarter)) / (records - records // QUARTER)
        return statistics.median(whole) - records * each_s, each_s * 1e6

    def _topic(self, size: int, compression: CompressionType, broker: Side) -> Filled:
        records = self._sizes.small if size == 100 else self._sizes.large
        name = f"filled-{size}-{compression.name.lower()}-{broker.name.replace(' ', '-').lower()}"
        if name not in self._filled:
            self._filled[name] = fill(broker, name, records, size, compression)
        return self._filled[name]

    def _read(self, side: Side, filled: Filled, master: str, share: int = 1) -> Sample:
        assert isinstance(side, FormatSide)
        end = filled.records // PARTITIONS // share
        ends = json.dumps({filled.topic: dict.fromkeys(map(str, range(PARTITIONS)), end)})
        options = side.source(filled.topic, filled.broker, endingOffsets=ends)
        session = self._world.session(master)
        before = self._world.cpu_seconds()
        answer = session.ask("read", format=side.format, options=options)
        cost = self._world.cpu_seconds() - before
        rows, size = end * PARTITIONS, end * PARTITIONS * filled.size
        if (answer["rows"], answer["bytes"]) != (rows, size):
            raise LoadFailed(f"{side.name} read {answer['rows']} rows of {rows}")
        seconds = answer["seconds"]
        return Sample(values=(rows / seconds / 1e6, seconds), server_cpu_s=cost, gigabytes=size / 1e9)

    def _warm(self, side: Side, filled: Filled, master: str) -> None:
        """Code that is compiled, connections that are open, pages that are cached."""
        for _ in range(2):
            self._read(side, filled, master)

    def _reading(self, size: int, compression: CompressionType, broker: Side | None = None) -> Case:
        source = broker or self._world.broker
        packed = "" if compression is CompressionType.NONE else f", {compression.name.lower()}"
        records = self._sizes.small if size == 100 else self._sizes.large
        return Case(
            group="read",
            title=f"read {records:,} of {size} B{packed}{', from Apache Kafka' if broker else ''}",
            metrics=(Metric(unit="M/s", bar=1.5),),
            partitions=0,
            prepare=lambda side, _: self._warm(side, self._topic(size, compression, source), MASTERS[-1]),
            measure=lambda side, _: self._read(side, self._topic(size, compression, source), MASTERS[-1]),
        )

    def _sinking(self, size: int, share: int = 1) -> Case:
        rows = (self._sizes.sink_small if size == 100 else self._sizes.sink_large) // share

        def write(side: Side, topic: str) -> Sample:
            assert isinstance(side, FormatSide)
            session = self._world.session()
            os.sync()  # What was written before is not to go to the disk while this is measured.
            before = self._world.cpu_seconds()
            answer = session.ask(
                "write",
                format=side.format,
                options=side.sink(f"{topic}-{side.format}"),
                rows=rows,
                size=size,
                parts=PARTITIONS,
            )
            cost = self._world.cpu_seconds() - before
            return Sample(values=(rows / answer["seconds"] / 1e6,), server_cpu_s=cost, gigabytes=rows * size / 1e9)

        def measure(side: Side, topic: str) -> Sample:
            assert isinstance(side, FormatSide)
            sample = write(side, topic)
            if size == 100:
                self._seconds["write", side.format, rows].append(rows / 1e6 / sample.values[0])
            return sample

        return Case(
            group="sink",
            title=f"write {rows:,} of {size} B (exactly once, against at least once)",
            metrics=(Metric(unit="M/s", bar=1.0 if share == 1 else None),),
            partitions=PARTITIONS,
            prepare=write,
            measure=measure,
        )

    def _following(self, into_topic: bool) -> Case:
        def follow(side: Side, topic: str) -> Sample:
            assert isinstance(side, FormatSide)
            name = f"{topic}-{side.format}"
            answer = self._world.session().ask(
                "latency",
                format=side.format,
                options={"kafka.bootstrap.servers": side.node.bootstrap, "subscribe": name},
                sink=side.format if into_topic else "noop",
                sink_options={"kafka.bootstrap.servers": side.node.bootstrap, "topic": "copied"} if into_topic else {},
                batches=LATENCY_BATCHES,
            )
            if not into_topic:
                self.rate_ms.append(self._world.session().ask("rate", batches=LATENCY_BATCHES)["p50_ms"])
            return Sample(values=(answer["p50_ms"],))

        return Case(
            group="latency",
            title=f"micro-batch of one record{', into a topic' if into_topic else ''}, p50",
            metrics=(Metric(unit="ms", better="less"),),
            measure=follow,
        )

    def _scaling(self, master: str, share: int) -> Case:
        records = self._sizes.small // share

        def measure(side: Side, topic: str) -> Sample:
            assert isinstance(side, FormatSide)
            sample = _second(self._read(side, self._plain(), master, share))
            if master == MASTERS[-1]:
                self._seconds["read", side.format, records].append(sample.values[0])
            return sample

        return Case(
            group="scale",
            title=f"read {records:,} of 100 B, {master}",
            metrics=(Metric(unit="s", better="less"),),
            partitions=0,
            prepare=lambda side, _: self._warm(side, self._plain(), master),
            measure=measure,
        )

    def _plain(self) -> Filled:
        return self._topic(100, CompressionType.NONE, self._world.broker)

    def _starting(self, keep_classes: bool) -> Case:
        flags = ["--keep-classes"] if keep_classes else []
        environment = {"XDG_CACHE_HOME": str(self._world.scratch / "cache")}

        def start(side: Side, topic: str) -> Sample:
            assert isinstance(side, FormatSide)
            filled = self._plain()
            self._world.end_sessions()
            ends = json.dumps({filled.topic: dict.fromkeys(map(str, range(PARTITIONS)), 1)})
            began = time.perf_counter()
            session = Session(self._world.scratch, MASTERS[-1], *flags, environment=environment)
            try:
                session.ask("read", format=side.format, options=side.source(filled.topic, endingOffsets=ends))
                took = time.perf_counter() - began
            finally:
                session.end()
            return Sample(values=(took,))

        return Case(
            group="start",
            title=f"start of a session to the first rows{', classes kept' if keep_classes else ''}",
            metrics=(Metric(unit="s", better="less"),),
            partitions=0,
            prepare=start,
            measure=start,
        )


def _second(sample: Sample) -> Sample:
    return Sample(values=sample.values[1:], server_cpu_s=sample.server_cpu_s, gigabytes=sample.gigabytes)
