"""`python -m benchmarks.hostile`: a million hostile requests, and what a well-behaved client beside them feels.

Three nodes. The well-behaved client (`tests/hostile/canary`) produces record after record with `acks=all` to three
replicas, reads them back, and times every answer: first while nobody disturbs the cluster, then while these do:

- requests by the hundred thousand that are spoilt: cut, twisted, with lengths that lie, of every API and version;
- ten thousand connections that are opened and held;
- a thousand that send one byte a second;
- consumers that fetch without end and never read an answer.

The bars: no node dies or calls anything an internal error, the canary's records are whole at the end, its 99th
percentile is at most twice that of the idle cluster, and no node takes more than `MEMORY_MB_MAX` at any time. The
attackers run at the lowest priority, since they share the machine with whom they attack.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from ottla.wire.frames import request_frame
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.hostile.canary import batch_of, produce
from tests.hostile.test_fuzz import inputs, is_answered
from tests.oracle.clusters import HOST, Cluster, ClusterNode, OttlaCluster

BAR = 2.0
MEMORY_MB_MAX = 600
MILLION = 1_000_000
TOPIC = "canary"
SETTINGS = {"auto.create.topics.enable": "false", "broker.session.timeout.ms": "9000"}
MAKES_TOPICS = (19, 37)
"""What would only fill the disk, and does so for whoever is allowed to."""

LARGE_TOPIC = "large"
LARGE_BYTES = 900_000
TOPICS = (TOPIC, LARGE_TOPIC)
_FETCH_ALL = request_frame(
    1,
    12,
    7,
    "deaf",
    FetchRequest(
        max_wait_ms=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=LARGE_TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])],
    ).encode(12),
)
_COMPLAINT = re.compile(r"Traceback|a request from|a background task failed")
_ROOT = Path(__file__).parents[1]


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
            raise SystemExit(f"the canary died with status {self._process.wait(10)}")
        found: dict[str, float] = json.loads(line)
        return found

    def finish(self) -> dict[str, float]:
        output, _ = self._process.communicate(timeout=300)
        found: dict[str, float] = json.loads(output.splitlines()[-1])
        return found

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


# The others.


def write_corpus(path: Path) -> None:
    """Sound requests of every API and version, a line each, for the attackers to spoil."""
    from tests.hostile.requests import SERVED, drawn, meaningful

    corpus: list[bytes] = []
    for key, version in SERVED:
        if key not in MAKES_TOPICS:
            bodies = [*drawn(key, version, 3)]
            sound = meaningful(key, version)
            bodies += [] if sound is None else [sound] * 5
            corpus += [request_frame(key, version, 7, "hostile", body)[4:] for body in bodies]
    path.write_text("".join(f"{data.hex()}\n" for data in corpus))


def attack(address: tuple[str, int], corpus_file: Path, seed: int, count: int, rate: float) -> None:
    """One attacker: its requests one by one, each followed by one that has to be answered or hung up on."""
    corpus = [bytes.fromhex(line) for line in corpus_file.read_text().splitlines()]
    tally = {True: 0, False: 0, None: 0}
    sock = socket.create_connection(address, timeout=30)
    began_s = time.monotonic()
    for tried, data in enumerate(inputs(seed, corpus), 1):
        verdict = is_answered(sock, data, 0.1)
        tally[verdict] += 1
        if verdict is not True:
            sock.close()
            sock = socket.create_connection(address, timeout=30)
        if tried == count:
            break
        ahead_s = tried / rate - (time.monotonic() - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
    sock.close()
    print(json.dumps({"answered": tally[True], "closed": tally[False], "waited": tally[None]}))


def spoilt_requests(cluster: Cluster, corpus: Path, count: int, rate: float) -> str:
    """From one attacker a node."""
    nodes = list(cluster.nodes.values())
    share = -(-count // len(nodes))
    attackers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.hostile", "--attack", f"{HOST}:{node.port}"),
                *("--corpus", str(corpus)),
                *("--seed", str(node.node_id), "--requests", str(share), "--rate", str(rate / len(nodes))),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            preexec_fn=_give_way,
        )
        for node in nodes
    ]
    began_s = time.monotonic()
    total = {"answered": 0, "closed": 0, "waited": 0}
    try:
        for attacker in attackers:
            output, _ = attacker.communicate()
            if attacker.returncode:
                raise SystemExit("an attacker could not go on: a node has died, or does not accept")
            for key, value in json.loads(output).items():
                total[key] += value
    finally:
        for attacker in attackers:
            if attacker.poll() is None:
                attacker.kill()
                attacker.wait()
    took_s = time.monotonic() - began_s
    tried = sum(total.values())
    return (
        f"{tried:,} requests in {took_s:.0f} s ({tried / took_s:,.0f}/s): {total['answered']:,} answered, "
        f"{total['closed']:,} hung up on, {total['waited']:,} waited for the rest"
    )


def _give_way() -> None:
    os.nice(19)


@contextlib.contextmanager
def opened(
    nodes: Sequence[ClusterNode], count: int, receive_buffer: int | None = None
) -> Iterator[list[socket.socket]]:
    socks: list[socket.socket] = []
    try:
        for number in range(count):
            sock = socket.socket()
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(60)
            sock.connect((HOST, nodes[number % len(nodes)].port))
            socks.append(sock)
        yield socks
    finally:
        for sock in socks:
            sock.close()


def held_connections(cluster: Cluster, count: int, seconds: float) -> str:
    began_s = time.monotonic()
    with opened(list(cluster.nodes.values()), count) as socks:
        took_s = time.monotonic() - began_s
        time.sleep(seconds)
        gone = sum(_is_closed(sock) for sock in socks)
    return f"{count:,} connections opened in {took_s:.1f} s, held for {seconds:.0f} s; {gone} were closed meanwhile"


def creeping_connections(cluster: Cluster, count: int, seconds: float) -> str:
    frame = request_frame(3, 12, 7, "x" * 2000, b"\0\0\0\0")
    with opened(list(cluster.nodes.values()), count) as socks:
        sent = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            until_s = time.monotonic() + 1
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(frame[sent : sent + 1])
            sent += 1
            time.sleep(max(0.0, until_s - time.monotonic()))
    return f"{count:,} connections sent a byte a second for {seconds:.0f} s"


def deaf_clients(cluster: Cluster, count: int, seconds: float) -> str:
    asked = 0
    nodes = [cluster.leader_of(LARGE_TOPIC)]
    with opened(nodes, count, receive_buffer=4096) as socks, selectors.DefaultSelector() as ready:
        for sock in socks:
            sock.setblocking(False)
            ready.register(sock, selectors.EVENT_WRITE)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for key, _ in ready.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    asked += key.fileobj.send(_FETCH_ALL) // len(_FETCH_ALL)
                except BlockingIOError:
                    pass
                except OSError:
                    ready.unregister(key.fileobj)
            time.sleep(0.005)
    return f"{count} consumers fetched {asked:,} times in {seconds:.0f} s, and read nothing"


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# What it cost.


def _memory_mb(pid: int, key: str) -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def _forget_peaks(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        Path(f"/proc/{node.pid}/clear_refs").write_text("5")


def _check_nodes(cluster: Cluster) -> list[str]:
    wrong: list[str] = []
    for node in cluster.nodes.values():
        if not node.is_running:
            wrong.append(f"node {node.node_id} died:\n{node.printed()}")
        elif complaint := _COMPLAINT.search(node.output.read_text(errors="replace")):
            wrong.append(f"node {node.node_id} speaks of an internal error: {complaint[0]}")
    return wrong


def run(options: argparse.Namespace, console: Console) -> int:
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
            write_corpus(corpus)
            canary = Canary((HOST, cluster.leader_of(TOPIC).port))
            time.sleep(2)
            return _measure(cluster, canary, corpus, options, console)
        finally:
            if canary is not None:
                canary.kill()
            cluster.end()


def _measure(cluster: Cluster, canary: Canary, corpus: Path, options: argparse.Namespace, console: Console) -> int:
    def idle() -> str:
        time.sleep(options.seconds)
        return f"{options.seconds:.0f} s without anybody else"

    parts: list[tuple[str, Callable[[], str]]] = [
        ("idle", idle),
        ("spoilt requests", lambda: spoilt_requests(cluster, corpus, options.requests, options.rate)),
        ("held connections", lambda: held_connections(cluster, options.connections, options.seconds)),
        ("creeping", lambda: creeping_connections(cluster, options.slow, options.seconds)),
        ("never reading", lambda: deaf_clients(cluster, options.deaf, options.seconds)),
    ]
    phases: list[Phase] = []
    for name, work in parts:
        _forget_peaks(cluster)
        canary.mark()
        did = work()
        latencies = canary.mark()
        peak_mb = max(_memory_mb(node.pid, "VmHWM") for node in cluster.nodes.values() if node.is_running)
        phases.append(Phase(name, did, latencies, peak_mb))
        console.print(f"{name}: {did}")
        if wrong := _check_nodes(cluster):
            console.print("\n".join(wrong))
            return 1
    end = canary.finish()
    _show(phases, end, console)
    return _judge(phases, end, console) if options.check else 0


def _show(phases: Sequence[Phase], end: dict[str, float], console: Console) -> None:
    table = Table(title="the well-behaved client, and the largest node", title_justify="left")
    for title in ("while", "answers", "p50", "p99", "p99 ÷ idle", "max", "peak memory"):
        table.add_column(title, justify="left" if title == "while" else "right")
    for phase in phases:
        found = phase.latencies
        table.add_row(
            phase.name,
            f"{found['count']:,.0f}",
            f"{found['p50_ms']:.1f} ms",
            f"{found['p99_ms']:.1f} ms",
            f"{found['p99_ms'] / phases[0].latencies['p99_ms']:.2f}",
            f"{found['max_ms']:.0f} ms",
            f"{phase.peak_mb:.0f} MB",
        )
    console.print(table)
    console.print(f"{end['sent']:,.0f} records were sent, and {'all' if end['complete'] else 'NOT all'} are there.")


def _judge(phases: Sequence[Phase], end: dict[str, float], console: Console) -> int:
    idle_ms = phases[0].latencies["p99_ms"]
    missed = [
        f"{phase.name}: p99 is {phase.latencies['p99_ms'] / idle_ms:.2f} times the idle one"
        for phase in phases
        if phase.latencies["p99_ms"] > BAR * idle_ms
    ]
    missed += [f"{phase.name}: {phase.peak_mb:.0f} MB" for phase in phases if phase.peak_mb > MEMORY_MB_MAX]
    if not end["complete"]:
        missed.append("records are missing")
    for line in missed:
        console.print(f"missed: {line}")
    return 1 if missed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=MILLION, help="spoilt ones, of all attackers together")
    parser.add_argument("--rate", type=float, default=2_000, help="spoilt requests a second, at most")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--deaf", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60, help="of every part but the spoilt requests")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--attack", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.attack:
        host, _, port = options.attack.rpartition(":")
        attack((host, int(port)), options.corpus, options.seed, options.requests, options.rate)
        return 0
    return run(options, Console())


if __name__ == "__main__":
    sys.exit(main())
