"""What is measured, and the bar for each line.

A case measures one side at a time and gives one value for each of its metrics; the runner interleaves the sides and
takes medians. Ratios are Ottla's figure over Kafka's, unless a line compares a server with itself.

No run of a case writes more than `RUN_BYTES`, no topic holds more than 2 GiB, and every topic is deleted after its
case.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from . import clients, load, servers
from .load import Batches, LoadFailed
from .servers import Side

KB = 1024
RUN_BYTES = 320e6
RUN_SECONDS = 0.9
FILL_BYTES = 400e6
EVICTIONS_MAX = 10
LARGE_BATCHES = Batches.filling(64 * KB, KB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a case. `bar` is the least (better=more) or the most (better=less) that the ratio may be."""

    unit: str
    better: Literal["more", "less"] = "more"
    bar: float | None = None
    name: str = ""
    of_itself: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement: a value for each metric, and what it cost."""

    values: tuple[float, ...]
    server_cpu_s: float = 0.0
    gigabytes: float = 0.0
    client_cpu: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A line of the table, or several that are measured together."""

    title: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Side, str], Sample]
    partitions: int = 1
    """Of the topic that the case is given; 0 when it needs none."""
    prepare: Callable[[Side, str], object] | None = None
    quick: bool = False
    group: str = field(default="")
    times: int = 1
    """How often for each repetition: the lines that spread most are measured more often."""


def produce(side: Side, topic: str, **options: float) -> tuple[dict[str, float], Sample]:
    """One run of the generator against a side; the sample's value is payload in MB/s."""
    settings: dict[str, float] = {"max_bytes": RUN_BYTES, "seconds": RUN_SECONDS, **options}
    pid = side.node.pid
    before = servers.cpu_seconds(pid)
    answer = load.run("produce", port=side.port, topic=topic, **settings)
    sample = Sample(
        values=(answer["mb_s"],),
        server_cpu_s=servers.cpu_seconds(pid) - before,
        gigabytes=answer["payload_bytes"] / 1e9,
        client_cpu=answer["client_cpu"],
    )
    return answer, sample


def fill(side: Side, topic: str, *, partitions: int = 1, max_bytes: float = FILL_BYTES) -> None:
    """Something to read, and nothing left to write back to the disk while it is read."""
    produce(side, topic, partitions=partitions, max_bytes=max_bytes, seconds=60, **LARGE_BATCHES.options())
    os.sync()


def fetch(side: Side, topic: str, **options: float) -> tuple[dict[str, float], Sample]:
    pid = side.node.pid
    before = servers.cpu_seconds(pid)
    answer = load.run("fetch", port=side.port, topic=topic, **options)
    sample = Sample(
        values=(answer["mb_s"],),
        server_cpu_s=servers.cpu_seconds(pid) - before,
        gigabytes=answer["bytes"] / 1e9,
        client_cpu=answer["client_cpu"],
    )
    return answer, sample


def produce_matrix() -> list[Case]:
    """{100 B, 1 KB} × {16 KB, 64 KB} × {1, 6 partitions} × acks {1, all} × idempotence {off, on}."""
    cases = []
    for size in (100, KB):
        for batch in (16 * KB, 64 * KB):
            for partitions in (1, 6):
                for acks in (1, -1):
                    for idempotent in (0, 1):
                        cases.append(_produce_case(size, batch, partitions, acks, idempotent))
    return cases


def _produce_case(size: int, batch: int, partitions: int, acks: int, idempotent: int) -> Case:
    shape = Batches.filling(batch, size).options()

    def measure(side: Side, topic: str) -> Sample:
        return produce(side, topic, partitions=partitions, acks=acks, idempotent=idempotent, **shape)[1]

    words = [
        f"produce {'100 B' if size == 100 else '1 KB'}",
        f"{batch // KB} KB batches",
        f"{partitions} partition{'s' if partitions > 1 else ''}",
        f"acks={'all' if acks < 0 else acks}",
        *(["idempotent"] if idempotent else []),
    ]
    quick = (size, batch, partitions, acks, idempotent) in {
        (100, 64 * KB, 1, 1, 0),
        (KB, 64 * KB, 1, -1, 1),
        (KB, 16 * KB, 6, -1, 1),
        (100, 16 * KB, 6, 1, 0),
    }
    metric = Metric(unit="MB/s", bar=2.0)
    return Case(
        title=", ".join(words), metrics=(metric,), measure=measure, partitions=partitions, quick=quick, group="produce"
    )


def one_record(connections: int) -> Case:
    def measure(side: Side, topic: str) -> Sample:
        answer, sample = produce(side, topic, records=1, size=100, connections=connections)
        return Sample(values=(answer["requests_s"],), server_cpu_s=sample.server_cpu_s, client_cpu=sample.client_cpu)

    title = f"one-record requests, {connections} connection{'s' if connections > 1 else ''}"
    return Case(
        title=title, metrics=(Metric(unit="req/s", bar=3.0),), measure=measure, quick=True, group="requests", times=3
    )


def cached_fetch(partitions: int, bar: float) -> Case:
    def measure(side: Side, topic: str) -> Sample:
        return fetch(side, topic, partitions=partitions)[1]

    title = f"fetch, page-cached, {partitions} partition{'s' if partitions > 1 else ''}"
    return Case(
        title=title,
        metrics=(Metric(unit="MB/s", bar=bar),),
        measure=measure,
        partitions=partitions,
        prepare=lambda side, topic: fill(side, topic, partitions=partitions),
        quick=True,
        group="fetch",
        times=3,
    )


def _cold_fetch(side: Side, topic: str) -> Sample:
    for _ in range(EVICTIONS_MAX):
        total, resident = load.evict(side.segments(topic, 0))
        if resident <= total // 100:
            break
        time.sleep(1)  # The kernel still holds some of it for whoever read it last.
    if total < FILL_BYTES * 0.9 or resident > total // 100:
        raise LoadFailed(f"not cold: {resident} of {total} bytes stayed in the page cache")
    return fetch(side, topic, passes=1)[1]


def _random_fetch(side: Side, topic: str) -> Sample:
    answer, sample = fetch(side, topic, lookups=3000, partition_max_bytes=KB, seed=time.monotonic_ns() % 1_000_000)
    return Sample(
        values=(answer["requests_s"], answer["p99_ms"]), server_cpu_s=sample.server_cpu_s, client_cpu=sample.client_cpu
    )


def _latency(side: Side, topic: str) -> Sample:
    answer, _ = produce(side, topic, records=1, size=100, acks=-1, rate=1000, seconds=4, warm=1)
    return Sample(values=(answer["p50_ms"], answer["p99_ms"]))


def _start(side: Side, _topic: str) -> Sample:
    """A node of its own, formatted beforehand where the server asks for that; the topic is created on first use."""
    node = side.fresh()
    started = time.monotonic()
    node.spawn()
    try:
        answer = load.run("first-ack", port=node.port, topic="first", timeout=45)
        time.sleep(2)
        idle = servers.pss_bytes(node.pid) / 1e6
        node.stop()
    except BaseException:
        node.kill()
        raise
    return Sample(values=(answer["monotonic"] - started, idle))


def _loaded_memory(side: Side, topic: str) -> Sample:
    produce(side, topic, partitions=6, connections=8, idempotent=1, acks=-1, **LARGE_BATCHES.options())
    fetch(side, topic, partitions=6, seconds=0.5)
    return Sample(values=(servers.pss_bytes(side.node.pid) / 1e6,))


def _many_open(side: Side, topic: str) -> Sample:
    shape = LARGE_BATCHES.options()
    alone = produce(side, topic, max_bytes=RUN_BYTES / 2, **shape)[1].values[0]
    crowded = produce(side, topic, max_bytes=RUN_BYTES / 2, idle=999, **shape)[1].values[0]
    return Sample(values=(crowded / alone,))


def _many_active(side: Side, topic: str) -> Sample:
    shape = LARGE_BATCHES.options()
    alone = produce(side, topic, max_bytes=RUN_BYTES / 2, **shape)[1].values[0]
    crowded = produce(side, topic, max_bytes=RUN_BYTES / 2, connections=1000, in_flight=1, **shape)[1].values[0]
    return Sample(values=(crowded / alone,))


WIDE = 1000


def _touch_all(side: Side, topic: str) -> None:
    """The first batches of every partition: creating its files and index pages is not what the case asks about."""
    shape = Batches.filling(16 * KB, KB).options()
    produce(side, topic, partitions=WIDE, max_bytes=3 * WIDE * 16e3, seconds=60, **shape)


def _many_partitions(side: Side, topic: str) -> Sample:
    shape = LARGE_BATCHES.options()
    one = produce(side, topic, max_bytes=RUN_BYTES / 2, **shape)[1].values[0]
    all_of_them = produce(side, topic, max_bytes=RUN_BYTES / 2, partitions=WIDE, **shape)[1].values[0]
    return Sample(values=(all_of_them / one,))


def _client(act: Callable[[Side, str], float]) -> Callable[[Side, str], Sample]:
    def measure(side: Side, topic: str) -> Sample:
        return Sample(values=(act(side, topic),))

    return measure


def real_clients() -> list[Case]:
    """Where the client may be the limit: never below Kafka."""
    bar = (Metric(unit="MB/s", bar=1.0),)

    def case(title: str, act: Callable[[Side, str], float], *, filled: bool = False, quick: bool = False) -> Case:
        return Case(
            title=title,
            metrics=bar,
            measure=_client(act),
            prepare=fill if filled else None,
            quick=quick,
            group="real clients",
        )

    filled_records = int(FILL_BYTES / (KB + 10)) - LARGE_BATCHES.records
    return [
        case(
            "confluent-kafka producer, 100 B",
            lambda side, topic: clients.librdkafka("produce", side.node.bootstrap, topic, 400_000, 100),
            quick=True,
        ),
        case(
            "confluent-kafka producer, 1 KB",
            lambda side, topic: clients.librdkafka("produce", side.node.bootstrap, topic, 250_000, KB),
        ),
        case(
            "confluent-kafka consumer, 1 KB",
            lambda side, topic: clients.librdkafka("consume", side.node.bootstrap, topic, filled_records, KB),
            filled=True,
            quick=True,
        ),
        case(
            "Java producer (kafka-producer-perf-test), 100 B",
            lambda side, topic: clients.java_producer(side.node.bootstrap, topic, 1_500_000, 100),
        ),
        case(
            "Java producer (kafka-producer-perf-test), 1 KB",
            lambda side, topic: clients.java_producer(side.node.bootstrap, topic, 450_000, KB),
        ),
        case(
            "Java consumer by assignment, 1 KB",
            lambda side, topic: clients.java_consumer(side.node.bootstrap, topic, 1, filled_records),
            filled=True,
        ),
    ]


def _first_start(side: Side, topic: str) -> None:
    """One start that does not count: it compiles and caches whatever is kept between starts."""
    _start(side, topic)


START = Case(
    title="start",
    metrics=(
        Metric(name="to the first acknowledged record", unit="s", better="less", bar=0.15),
        Metric(name="memory idle (PSS)", unit="MB", better="less", bar=0.15),
    ),
    measure=_start,
    prepare=_first_start,
    partitions=0,
    quick=True,
    group="start and memory",
)


def all_cases() -> list[Case]:
    """In the order of measurement: starts first, while nothing else runs."""
    crowd = (Metric(unit="of its own", bar=0.7, of_itself=True),)
    return [
        START,
        *produce_matrix(),
        one_record(1),
        one_record(8),
        cached_fetch(1, bar=1.5),
        cached_fetch(6, bar=1.0),
        Case(
            title="fetch, cold, 1 partition",
            metrics=(Metric(unit="MB/s", bar=1.0),),
            measure=_cold_fetch,
            prepare=fill,
            quick=True,
            group="fetch",
            times=3,
        ),
        Case(
            title="fetch at random offsets",
            metrics=(
                Metric(name="one 64 KB batch each", unit="req/s"),
                Metric(name="p99", unit="ms", better="less"),
            ),
            measure=_random_fetch,
            prepare=fill,
            group="fetch",
        ),
        Case(
            title="1,000 records/s, linger 0, acks=all",
            metrics=(
                Metric(name="p50", unit="ms", better="less", bar=0.6),
                Metric(name="p99", unit="ms", better="less", bar=0.6),
            ),
            measure=_latency,
            quick=True,
            group="latency",
        ),
        Case(
            title="memory loaded (PSS)",
            metrics=(Metric(unit="MB", better="less", bar=0.15),),
            measure=_loaded_memory,
            partitions=6,
            quick=True,
            group="start and memory",
        ),
        Case(
            title="1,000 open connections, one producing, against 1",
            metrics=crowd,
            measure=_many_open,
            quick=True,
            group="scale",
        ),
        Case(title="1,000 connections, all producing, against 1", metrics=crowd, measure=_many_active, group="scale"),
        Case(
            title="1,000 partitions, all produced to, against 1",
            metrics=crowd,
            measure=_many_partitions,
            partitions=WIDE,
            prepare=_touch_all,
            quick=True,
            group="scale",
        ),
        *real_clients(),
    ]
