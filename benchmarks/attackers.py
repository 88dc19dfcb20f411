"""Those who mean no good, for `benchmarks.hostile`: each takes a cluster and does its worst for a while.

They run at the lowest priority (`giving_way`), since they share the machine with whom they attack. Whoever sends spoilt
requests is a process of its own, one a node (`python -m benchmarks.attackers`), which says how far it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ottla.wire.frames import request_frame
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.hostile.test_fuzz import inputs, is_answered
from tests.oracle.clusters import HOST, Cluster, ClusterNode

from .load import LoadFailed

LARGE_TOPIC = "large"
"""What those who never read are fetching."""
TELLS_EVERY_S = 0.5
LOWEST = 19
"""The priority that gives way to all others."""
MAKES_TOPICS = (19, 37)
"""What would only fill the disk, and does so for whoever is allowed to."""

Tick = Callable[[float], None]
"""Told how much of the work is done, from 0 to 1; raises if a node has died meanwhile."""

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
_ROOT = Path(__file__).parents[1]


def giving_way(work: Callable[[], str]) -> str:
    """What `work` returns, done at the lowest priority: in a thread, since a process could not get its own back."""
    done: list[str] = []
    failed: list[BaseException] = []

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        try:
            done.append(work())
        except BaseException as failure:
            failed.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


# Spoilt requests.


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
    names = {True: "answered", False: "closed", None: "waited"}
    tally = dict.fromkeys(names.values(), 0)
    sock = socket.create_connection(address, timeout=30)
    began_s = told_s = time.monotonic()
    for tried, data in enumerate(inputs(seed, corpus), 1):
        verdict = is_answered(sock, data, 0.1)
        tally[names[verdict]] += 1
        if verdict is not True:
            sock.close()
            sock = socket.create_connection(address, timeout=30)
        now_s = time.monotonic()
        if tried == count or now_s > told_s + TELLS_EVERY_S:
            print(json.dumps(tally), flush=True)
            told_s = now_s
        if tried == count:
            break
        ahead_s = tried / rate - (now_s - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
    sock.close()


class Attacker:
    """A process that sends spoilt requests to one node, and what it has said last."""

    def __init__(self, node: ClusterNode, corpus: Path, count: int, rate: float) -> None:
        self.tally = {"answered": 0, "closed": 0, "waited": 0}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.attackers", f"{HOST}:{node.port}", str(corpus)),
                *("--seed", str(node.node_id), "--requests", str(count), "--rate", str(rate)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.tally = json.loads(line)

    @property
    def tried(self) -> int:
        return sum(self.tally.values())

    def end(self) -> int:
        """The status, once all that it said is read."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def spoilt_requests(cluster: Cluster, corpus: Path, count: int, rate: float, tick: Tick) -> str:
    """From one attacker a node."""
    nodes = list(cluster.nodes.values())
    share = -(-count // len(nodes))
    attackers = [Attacker(node, corpus, share, rate / len(nodes)) for node in nodes]
    began_s = time.monotonic()
    try:
        while any(attacker.process.poll() is None for attacker in attackers):
            tick(sum(attacker.tried for attacker in attackers) / (share * len(nodes)))
            time.sleep(TELLS_EVERY_S)
    finally:
        took_s = time.monotonic() - began_s
        statuses = [attacker.end() for attacker in attackers]
    if any(statuses):
        raise LoadFailed("an attacker could not go on: a node has died, or does not accept")
    tried = sum(attacker.tried for attacker in attackers)
    if tried < count:
        raise LoadFailed(f"only {tried:,} spoilt requests were sent")
    answered, closed, waited = (
        sum(attacker.tally[verdict] for attacker in attackers) for verdict in ("answered", "closed", "waited")
    )
    return (
        f"{tried:,} requests in {took_s:.0f} s ({tried / took_s:,.0f}/s): {answered:,} answered, {closed:,} hung up "
        f"on, {waited:,} waited for the rest"
    )


# Connections.


@contextlib.contextmanager
def opened(
    nodes: Sequence[ClusterNode], count: int, receive_buffer: int | None = None
) -> Iterator[list[socket.socket]]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    socks: list[socket.socket] = []
    try:
        for number in range(count):
            sock = socket.socket()
            socks.append(sock)
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(60)
            sock.connect((HOST, nodes[number % len(nodes)].port))
        yield socks
    finally:
        for sock in socks:
            sock.close()


def wait(seconds: float, tick: Tick) -> None:
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < seconds:
        tick(passed_s / seconds)
        time.sleep(min(TELLS_EVERY_S, seconds - passed_s))


def held_connections(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    began_s = time.monotonic()
    with opened(list(cluster.nodes.values()), count) as socks:
        took_s = time.monotonic() - began_s
        wait(seconds, tick)
        gone = sum(_is_closed(sock) for sock in socks)
    if gone:
        raise LoadFailed(f"{gone:,} of {count:,} connections were closed while they were held")
    return f"{count:,} connections opened in {took_s:.1f} s and held for {seconds:.0f} s; none was closed"


def creeping_connections(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    frame = request_frame(3, 12, 7, "x" * 2000, b"\0\0\0\0")
    with opened(list(cluster.nodes.values()), count) as socks:
        sent = 0
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < seconds:
            tick(passed_s / seconds)
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(frame[sent : sent + 1])
            sent += 1
            time.sleep(max(0.0, began_s + sent - time.monotonic()))
    return f"{count:,} connections sent a byte a second for {seconds:.0f} s"


def deaf_clients(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    asked = 0
    nodes = [cluster.leader_of(LARGE_TOPIC)]
    with opened(nodes, count, receive_buffer=4096) as socks, selectors.DefaultSelector() as ready:
        for sock in socks:
            sock.setblocking(False)
            ready.register(sock, selectors.EVENT_WRITE)
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < seconds:
            tick(passed_s / seconds)
            for key, _ in ready.select(0.1) if ready.get_map() else ():
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


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attackers", description="One attacker.")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=1_000)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    attack((host, int(port)), options.corpus, options.seed, options.requests, options.rate)


if __name__ == "__main__":
    _main()
