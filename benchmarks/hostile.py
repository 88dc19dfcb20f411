"""`python -m benchmarks.hostile`: what a cluster stands, and what locks cost beside Apache Kafka's.

**attack**: three nodes. The well-behaved client (`tests/hostile/canary`) produces record after record with `acks=all`
to three replicas, reads them back, and times every answer: first while nobody disturbs the cluster, then while those of
`attackers` do, one kind after the other:

- requests by the hundred thousand that are spoilt: cut, twisted, with lengths that lie, of every API and version;
- ten thousand connections that are opened and held;
- a thousand that send one byte a second;
- consumers that fetch without end and never read an answer.

The bars: no node dies or calls anything an internal error, the canary's records are whole at the end, its 99th
percentile is at most twice that of the idle cluster, and no node takes more than `MEMORY_MB_MAX` at any time.

**locks** and **quotas**: TLS, logins and rates, one node a side (`locked`).

Each part keeps its section of `hostile-results.md` in `.cache`, so that they may run at different times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.hostile.canary import batch_of, produce
from tests.oracle.apache_kafka import OracleTimeout, OracleUnavailable
from tests.oracle.clusters import HOST, Cluster, ClusterNode, OttlaCluster
from tests.oracle.ottla_node import OttlaFailed

from . import attackers, load, locked, report
from .attackers import LARGE_TOPIC, Tick
from .load import LoadFailed

BAR = 2.0
MEMORY_MB_MAX = 600
MILLION = 1_000_000
TOPIC = "canary"
TOPICS = (TOPIC, LARGE_TOPIC)
LARGE_BYTES = 900_000
SETTINGS = {"auto.create.topics.enable": "false", "broker.session.timeout.ms": "9000"}
SETTLING_S = 2.0
PARTS = ("attack", "locks", "quotas")
_COMPLAINT = re.compile(r"Traceback|a request from|a background task failed")
_ROOT = Path(__file__).parents[1]
_PAGE = Path(__file__).with_name("hostile-results.md")


class Phase(NamedTuple):
    name: str
    did: str
    latencies: dict[str, float]
    peak_mb: float


# The well-behaved one.


class Canary:
    def __init__(self, address: tuple[str, int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.canary", address[0], str(address[1]), TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def mark(self) -> dict[str, float]:
        """Its latencies since the last mark."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("mark\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"the canary died with status {self._process.wait(10)}")
        found: dict[str, float] = json.loads(line)
        return found

    def finish(self) -> dict[str, float]:
        output, _ = self._process.communicate(timeout=300)
        if self._process.returncode:
            raise LoadFailed(f"the canary died with status {self._process.returncode}")
        found: dict[str, float] = json.loads(output.splitlines()[-1])
        return found

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


# What it cost.


def _memory_mb(pid: int, key: str) -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _forget_peaks(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        Path(f"/proc/{node.pid}/clear_refs").write_text("5")


class Watch:
    """Looks after the nodes, at what they have said since the last look: more would be felt by those who are timed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read: dict[int, int] = {}

    def look(self) -> None:
        for node in self._cluster.nodes.values():
            if not node.is_running:
                raise LoadFailed(f"node {node.node_id} died:\n{node.printed()}")
            if complaint := _COMPLAINT.search(self._said_by(node)):
                raise LoadFailed(f"node {node.node_id} speaks of an internal error: {complaint[0]}\n{node.printed()}")

    def _said_by(self, node: ClusterNode) -> str:
        """Whole lines."""
        with node.output.open("rb") as output:
            output.seek(self._read.get(node.node_id, 0))
            said, newline, _ = output.read().rpartition(b"\n")
        self._read[node.node_id] = self._read.get(node.node_id, 0) + len(said) + len(newline)
        return said.decode(errors="replace")


def attack(options: argparse.Namespace, console: Console) -> tuple[list[str], list[str]]:
    """The section of the page, and the bars that were missed."""
    with tempfile.TemporaryDirectory(prefix="ottla-hostile-") as directory:
        cluster = OttlaCluster(Path(directory), overrides=SETTINGS)
        canary: Canary | None = None
        try:
            cluster.start()
            with cluster.client() as client:
                topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=3) for name in TOPICS]
                answer = client.call(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
                assert not any(topic.error_code for topic in answer.topics)
            with cluster.client(cluster.leader_of(LARGE_TOPIC).node_id) as client:
                assert produce(client, LARGE_TOPIC, batch_of(bytes(LARGE_BYTES)))[0] == 0
            corpus = Path(directory) / "corpus"
            attackers.write_corpus(corpus)
            canary = Canary((HOST, cluster.leader_of(TOPIC).port))
            time.sleep(SETTLING_S)
            watch = Watch(cluster)
            phases = _measure(cluster, watch, canary, corpus, options, console)
            end = canary.finish()
            watch.look()
        finally:
            if canary is not None:
                canary.kill()
            cluster.end()
    return section(phases, end), missed(phases, end)


def _measure(
    cluster: Cluster, watch: Watch, canary: Canary, corpus: Path, options: argparse.Namespace, console: Console
) -> list[Phase]:
    def idle(tick: Tick) -> str:
        attackers.wait(options.seconds, tick)
        return f"{options.seconds:.0f} s without anybody else"

    parts: list[tuple[str, Callable[[Tick], str]]] = [
        ("idle", idle),
        (
            "spoilt requests",
            lambda tick: attackers.spoilt_requests(cluster, corpus, options.requests, options.rate, tick),
        ),
        (
            "held connections",
            lambda tick: attackers.held_connections(cluster, options.connections, options.seconds, tick),
        ),
        ("creeping", lambda tick: attackers.creeping_connections(cluster, options.slow, options.seconds, tick)),
        ("never reading", lambda tick: attackers.deaf_clients(cluster, options.deaf, options.seconds, tick)),
    ]
    phases: list[Phase] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        for name, work in parts:
            task = progress.add_task(name, total=1.0)

            def tick(done: float, task: int = task) -> None:
                watch.look()
                progress.update(task, completed=done)  # type: ignore[arg-type]

            _forget_peaks(cluster)
            canary.mark()
            did = work(tick)
            latencies = canary.mark()
            tick(1.0)
            peak_mb = max(_memory_mb(node.pid, "VmHWM") for node in cluster.nodes.values())
            phases.append(Phase(name, did, latencies, peak_mb))
            console.print(f"{name}: {did}; p99 {latencies['p99_ms']:.1f} ms, {peak_mb:.0f} MB", highlight=False)
            time.sleep(SETTLING_S)
    return phases


def missed(phases: Sequence[Phase], end: dict[str, float]) -> list[str]:
    idle_ms = phases[0].latencies["p99_ms"]
    found = [
        f"{phase.name}: p99 is {phase.latencies['p99_ms'] / idle_ms:.2f} times the idle one"
        for phase in phases
        if phase.latencies["p99_ms"] > BAR * idle_ms
    ]
    found += [f"{phase.name}: {phase.peak_mb:.0f} MB" for phase in phases if phase.peak_mb > MEMORY_MB_MAX]
    if not end["complete"]:
        found.append("records are missing")
    return found


def section(phases: Sequence[Phase], end: dict[str, float]) -> list[str]:
    idle_ms = phases[0].latencies["p99_ms"]
    lines = [
        "## Under attack",
        "",
        f"| while | answers | p50 | p99 | p99 ÷ idle (≤ {BAR:g}) | longest | largest node (≤ {MEMORY_MB_MAX} MB) |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for phase in phases:
        found = phase.latencies
        ratio = found["p99_ms"] / idle_ms
        cells = [
            phase.name,
            f"{found['count']:,.0f}",
            f"{found['p50_ms']:.1f} ms",
            f"{found['p99_ms']:.1f} ms",
            f"{ratio:.2f}" if ratio <= BAR else f"**{ratio:.2f}, missed**",
            f"{found['max_ms']:.0f} ms",
            f"{phase.peak_mb:.0f} MB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    whole = "all of them are there" if end["complete"] else "**NOT all of them are there**"
    return [
        *lines,
        "",
        *(f"- {phase.name}: {phase.did}." for phase in phases),
        f"- The well-behaved client sent {end['sent']:,.0f} records with acks=all to three replicas; {whole}. No node "
        "died or spoke of an internal error, which is looked at twice a second.",
        "",
    ]


# The page.


def write_page(target: Path) -> None:
    """Of the newest sections that were made."""
    setting = report.Setting(names=("Ottla", "Apache Kafka"), repetitions=0, data=load.CACHE, pure=False, ceiling={})
    sections = [_kept(part).read_text() for part in PARTS if _kept(part).exists()]
    facts = [f"- {fact}\n" for fact in report.surroundings(setting)]
    head = "# Locked doors and hostile neighbours\n\nWritten by `make bench-hostile`.\n\n"
    target.write_text(head + "\n".join(sections) + "\n## Where\n\n" + "".join(facts))


def _kept(part: str) -> Path:
    return load.CACHE / f"hostile-{part}.md"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    add = parser.add_argument
    add("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}; all of them unless said")
    add("--requests", type=int, default=MILLION, help="spoilt ones, of all attackers together")
    add("--rate", type=float, default=2_500, help="spoilt requests a second, at most")
    add("--connections", type=int, default=10_000)
    add("--slow", type=int, default=1_000)
    add("--deaf", type=int, default=10)
    add("--seconds", type=float, default=30, help="of every kind of attack but the spoilt requests")
    add("--repetitions", type=int, default=locked.REPETITIONS, help="of each line beside Apache Kafka")
    add("--only", metavar="PATTERN", help="only lines beside Apache Kafka whose title holds PATTERN")
    add("--output", type=Path, help="where the page goes, instead of beside the benchmarks")
    add("--check", action="store_true", help="exit with 1 if a bar is missed")
    options = parser.parse_args(given)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}: choose from {', '.join(PARTS)}")
    console = Console() if sys.stdout.isatty() else Console(width=180)
    load.CACHE.mkdir(parents=True, exist_ok=True)
    all_missed: list[str] = []
    for part in options.parts:
        began_s = time.monotonic()
        try:
            lines, short = attack(options, console) if part == "attack" else locked.compare(part, options, console)
        except (LoadFailed, OracleUnavailable, OracleTimeout, OttlaFailed) as failure:
            console.print(f"{part} failed: {failure}", style="red", highlight=False)
            return 1
        made = f"Made on {time.strftime('%Y-%m-%d')} in {time.monotonic() - began_s:.0f} s.\n"
        with contextlib.suppress(ValueError):
            lines.insert(lines.index("") + 1, made)
        _kept(part).write_text("\n".join(lines))
        console.print("\n".join(lines), highlight=False, markup=False)
        all_missed += short
    write_page(options.output or _PAGE)
    for line in all_missed:
        console.print(f"missed: {line}", style="red", highlight=False)
    return int(options.check and bool(all_missed))


if __name__ == "__main__":
    sys.exit(main())
