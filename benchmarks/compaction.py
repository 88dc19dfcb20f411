"""`python -m benchmarks.compaction`: what a producer feels while its node compacts a log of 1 GiB.

One node, one core busy at most with compaction. A producer sends 1,000 records a second, one request each, `acks=all`,
and times every answer: first while the node has nothing else to do, then while it compacts. A request that could not be
sent when it was due, because the answer before it was late, is timed from when it was due. A compaction takes two or
three seconds, of which a few stalls of the machine are the 99th percentile: several rounds are taken together. The bar:
the 99th percentile during the compactions is at most twice that of the idle node.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from ottla.records import BatchBuilder
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.oracle.ottla_node import OttlaNode
from tests.wire_client import WireClient

from .servers import remove

MIB = 1 << 20
BAR = 2.0
RATE = 1000
IDLE_S = 15.0
ROUNDS = 7
VALUE_BYTES = 1000
KEYS = 100_000
BATCH_RECORDS = 800
SEGMENT_BYTES = 256 * MIB
TOPIC = 2
PRODUCE_VERSION = 12
RESULTS = Path(__file__).parent / "results-compaction.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of one stretch of time, in milliseconds, sorted."""

    sorted_ms: list[float]
    took_s: float

    def percentile(self, share: float) -> float:
        return self.sorted_ms[min(len(self.sorted_ms) - 1, int(share * len(self.sorted_ms)))]


def together(all_of: Sequence[Latencies]) -> Latencies:
    return Latencies(
        sorted_ms=sorted(ms for each in all_of for ms in each.sorted_ms), took_s=sum(each.took_s for each in all_of)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    idle: Latencies
    busy: Latencies
    before_bytes: int
    after_bytes: int

    @property
    def ratio(self) -> float:
        return self.busy.percentile(0.99) / self.idle.percentile(0.99)

    @property
    def mb_per_s(self) -> float:
        return self.before_bytes / 1e6 / self.busy.took_s


class Bench:
    """One node and one connection to it."""

    def __init__(self, node: OttlaNode) -> None:
        self.node = node
        self.client = WireClient((node.host, node.port), timeout_s=60)

    def create(self, topic: str, **configs: str) -> None:
        settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)
        answer = self.client.call(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def alter(self, topic: str, name: str, value: str) -> None:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = self.client.call(request, IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == 0, answer.responses[0].error_message

    def fill(self, topic: str, size: int, random: Random) -> None:
        """Keys at random, most of them many times: what compaction is for."""
        value = random.randbytes(VALUE_BYTES)
        written = 0
        while written < size:
            builder = BatchBuilder()
            for _ in range(BATCH_RECORDS):
                builder.append(_now_ms(), b"key-%08d" % random.randrange(KEYS), value)
            batch = bytes(builder.build())
            answer = self.client.call(produce(topic, batch), ProduceResponse, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
            written += len(batch)

    def time_produces(self, going_on: Callable[[float], bool]) -> Latencies:
        """Send at the rate for as long as `going_on`, which is told the seconds so far and asked ten times a second."""
        builder = BatchBuilder()
        builder.append(_now_ms(), b"key", b"x" * 100)
        request = produce("probe", bytes(builder.build()))
        client, clock = self.client, time.perf_counter
        latencies: list[float] = []
        gc.collect()
        gc.disable()
        began = due = answered = clock()
        try:
            while len(latencies) % (RATE // 10) or going_on(clock() - began):
                now = clock()
                if due > now:
                    time.sleep(due - now)
                sent = due if answered > due else clock()
                client.call(request, ProduceResponse, PRODUCE_VERSION)
                answered = clock()
                latencies.append(1000 * (answered - sent))
                due += 1 / RATE
        finally:
            gc.enable()
        return Latencies(sorted_ms=sorted(latencies), took_s=answered - began)


def produce(topic: str, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def run_round(bench: Bench, number: int, size: int, console: Console) -> Round:
    topic = f"filled-{number}"
    directory = bench.node.log_dir / f"{topic}-0"
    checkpoint = bench.node.log_dir / "cleaner-offset-checkpoint"
    bench.create(
        topic, cleanup_policy="compact", segment_bytes=str(SEGMENT_BYTES), min_cleanable_dirty_ratio="1", flush_ms="500"
    )
    console.print(f"round {number}: writing {size / MIB:,.0f} MiB")
    bench.fill(topic, size + SEGMENT_BYTES, Random(number))
    time.sleep(5)  # What is still on its way to the disk would count against the idle node.
    before = log_bytes(directory)
    idle = bench.time_produces(lambda seconds: seconds < IDLE_S)

    def is_compacting(seconds: float) -> bool:
        assert seconds < 600, "the compaction does not end"
        return not (checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text())

    bench.alter(topic, "min.cleanable.dirty.ratio", "0")
    busy = bench.time_produces(is_compacting)
    return Round(idle=idle, busy=busy, before_bytes=before, after_bytes=log_bytes(directory))


def all_together(rounds: Sequence[Round]) -> Round:
    return Round(
        idle=together([each.idle for each in rounds]),
        busy=together([each.busy for each in rounds]),
        before_bytes=sum(each.before_bytes for each in rounds),
        after_bytes=sum(each.after_bytes for each in rounds),
    )


def table_of(rounds: Sequence[Round]) -> list[list[str]]:
    rows = []
    for number, each in [*enumerate(rounds, 1), ("all", all_together(rounds))]:
        for name, found in (("idle", each.idle), ("compacting", each.busy)):
            rows.append(
                [
                    str(number),
                    name,
                    f"{len(found.sorted_ms):,}",
                    *(f"{found.percentile(share):.3f}" for share in (0.5, 0.99, 0.999)),
                    f"{found.sorted_ms[-1]:.1f}",
                    f"{each.ratio:.2f} ×" if found is each.busy else "",
                    f"{each.mb_per_s:,.0f} MB/s" if found is each.busy else "",
                ]
            )
    return rows


HEADINGS = ("round", "node", "requests", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "p99 ratio", "compacted")


def write_page(rounds: Sequence[Round], path: Path) -> None:
    shrunk = ", ".join(f"{each.before_bytes / MIB:,.0f} → {each.after_bytes / MIB:,.0f} MiB" for each in rounds)
    lines = [
        "# Compaction and latency",
        "",
        f"`make bench-compaction`: produce requests at {RATE:,} a second, one record each, `acks=all`, on a node that "
        "is idle and then compacts a log. The bar is a p99 of at most twice the idle one, over all rounds.",
        "",
        f"Python {platform.python_version()}, {platform.system()} on {platform.machine()}. Logs: {shrunk}.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(row) + " |" for row in table_of(rounds)),
        "",
    ]
    path.write_text("\n".join(lines))


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.compaction", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="how much there is to compact")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the page goes")
    parser.add_argument("--check", action="store_true", help="end with status 1 when the bar was missed")
    options = parser.parse_args(given)
    console = Console()
    scratch = Path(tempfile.mkdtemp(prefix="ottla-compaction-"))
    rounds: list[Round] = []
    try:
        node = OttlaNode(scratch, overrides={"log.cleaner.backoff.ms": "500"})
        node.spawn()
        try:
            node.wait_ready()
            bench = Bench(node)
            bench.create("probe")
            bench.time_produces(lambda seconds: seconds < 3)
            for number in range(1, options.rounds + 1):
                rounds.append(run_round(bench, number, options.mib * MIB, console))
        finally:
            node.stop()
    finally:
        remove(scratch)
    table = Table(*HEADINGS)
    for row in table_of(rounds):
        table.add_row(*row)
    console.print(table)
    write_page(rounds, options.output)
    return int(options.check and all_together(rounds).ratio > BAR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
