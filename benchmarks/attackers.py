"""Those who mean no good, for `benchmarks.hostile`: each takes a cluster and does its worst for a while.

They share the machine with whom they attack, which nobody who means harm would have to: so each is a process of its own
(`python -m benchmarks.attackers KIND`), which takes only what others leave (`ottla.runtime.modesty`), and says how far
it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ottla.runtime.modesty import make_modest, take_only_what_is_left
from ottla.wire.frames import request_frame
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.hostile.test_fuzz import inputs, is_answered
from tests.oracle.clusters import HOST, Cluster, ClusterNode

from .load import LoadFailed

LARGE_TOPIC = "large"
"""What those who never read are fetching."""
TELLS_EVERY_S = 0.5
MAKES_TOPICS = (19, 37)
"""What would only fill the disk, and does so for whoever is allowed to."""

Address = tuple[str, int]
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
_CREEPING = request_frame(3, 12, 7, "x" * 2000, b"\0\0\0\0")
_ROOT = Path(__file__).parents[1]


# On the benchmark's side.


class Attacker:
    """A process that attacks some nodes, and what it has said last: how much is `done`, and counts of its own."""

    def __init__(self, kind: str, nodes: Sequence[ClusterNode], **options: object) -> None:
        self.said: dict[str, float] = {"done": 0.0}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.attackers", kind),
                *(f"{HOST}:{node.port}" for node in nodes),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            start_new_session=True,
        )
        make_modest(self.process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said = json.loads(line)

    def end(self) -> int:
        """The status, once all that it said is read."""
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def _sum_of(attackers: Sequence[Attacker], tick: Tick) -> dict[str, float]:
    """What they have counted together, when all are done."""
    try:
        while any(attacker.process.poll() is None for attacker in attackers):
            tick(sum(attacker.said["done"] for attacker in attackers) / len(attackers))
            time.sleep(TELLS_EVERY_S)
    finally:
        statuses = [attacker.end() for attacker in attackers]
    if any(statuses):
        raise LoadFailed("an attacker could not go on: a node has died, or does not accept")
    return {name: sum(attacker.said[name] for attacker in attackers) for name in attackers[0].said}


def spoilt_requests(cluster: Cluster, corpus: Path, count: int, rate: float, tick: Tick) -> str:
    """From one attacker a node."""
    nodes = list(cluster.nodes.values())
    share = -(-count // len(nodes))
    began_s = time.monotonic()
    found = _sum_of(
        [
            Attacker("spoilt", [node], corpus=corpus, seed=node.node_id, count=share, rate=rate / len(nodes))
            for node in nodes
        ],
        tick,
    )
    took_s = time.monotonic() - began_s
    tried = found["answered"] + found["closed"] + found["waited"]
    if tried < count:
        raise LoadFailed(f"only {tried:,} spoilt requests were sent")
    return (
        f"{tried:,} requests in {took_s:.0f} s ({tried / took_s:,.0f}/s): {found['answered']:,} answered, "
        f"{found['closed']:,} hung up on, {found['waited']:,} waited for the rest"
    )


def held_connections(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    found = _sum_of([Attacker("held", list(cluster.nodes.values()), count=count, seconds=seconds)], tick)
    if gone := found["gone"]:
        raise LoadFailed(f"{gone:,} of {count:,} connections were closed while they were held")
    return f"{count:,} connections opened in {found['opened_s']:.1f} s and held for {seconds:.0f} s; none was closed"


def creeping_connections(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    found = _sum_of([Attacker("creeping", list(cluster.nodes.values()), count=count, seconds=seconds)], tick)
    return f"{count:,} connections sent a byte a second for {seconds:.0f} s, {found['sent']:,} bytes in all"


def deaf_clients(cluster: Cluster, count: int, seconds: float, tick: Tick) -> str:
    found = _sum_of([Attacker("deaf", [cluster.leader_of(LARGE_TOPIC)], count=count, seconds=seconds)], tick)
    return f"{count} consumers fetched {found['asked']:,} times in {seconds:.0f} s, and read nothing"


def wait(seconds: float, tick: Tick) -> None:
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < seconds:
        tick(passed_s / seconds)
        time.sleep(min(TELLS_EVERY_S, seconds - passed_s))


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


# In the attacker's process.


def _tell(done: float, **counts: float) -> None:
    print(json.dumps({"done": done, **counts}), flush=True)


def spoil(address: Address, corpus_file: Path, seed: int, count: int, rate: float) -> None:
    """Requests one by one, each followed by one that has to be answered or hung up on."""
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
            _tell(tried / count, **tally)
            told_s = now_s
        if tried == count:
            break
        ahead_s = tried / rate - (now_s - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
    sock.close()


@contextlib.contextmanager
def opened(
    addresses: Sequence[Address], count: int, receive_buffer: int | None = None
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
            sock.connect(addresses[number % len(addresses)])
        yield socks
    finally:
        for sock in socks:
            sock.close()


def hold(addresses: Sequence[Address], count: int, seconds: float) -> None:
    began_s = time.monotonic()
    with opened(addresses, count) as socks:
        opened_s = time.monotonic() - began_s
        wait(seconds, _tell)
        _tell(1.0, opened_s=opened_s, gone=sum(_is_closed(sock) for sock in socks))


def creep(addresses: Sequence[Address], count: int, seconds: float) -> None:
    sent = 0
    with opened(addresses, count) as socks:
        began_s = time.monotonic()
        for second in range(round(seconds)):
            _tell(second / seconds, sent=sent)
            for sock in socks:
                with contextlib.suppress(OSError):
                    sent += sock.send(_CREEPING[second : second + 1])
            time.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
    _tell(1.0, sent=sent)


def fetch_without_reading(addresses: Sequence[Address], count: int, seconds: float) -> None:
    asked = 0
    with opened(addresses, count, receive_buffer=4096) as socks, selectors.DefaultSelector() as ready:
        for sock in socks:
            sock.setblocking(False)
            ready.register(sock, selectors.EVENT_WRITE)
        began_s = told_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + seconds:
            if now_s > told_s + TELLS_EVERY_S:
                _tell((now_s - began_s) / seconds, asked=asked)
                told_s = now_s
            for key, _ in ready.select(0.1) if ready.get_map() else ():
                assert isinstance(key.fileobj, socket.socket)
                try:
                    asked += key.fileobj.send(_FETCH_ALL) // len(_FETCH_ALL)
                except BlockingIOError:
                    pass
                except OSError:
                    ready.unregister(key.fileobj)
            time.sleep(0.005)
    _tell(1.0, asked=asked)


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
    parser.add_argument("kind", choices=("spoilt", "held", "creeping", "deaf"))
    parser.add_argument("addresses", metavar="HOST:PORT", nargs="+")
    parser.add_argument("--count", type=int, default=1_000, help="requests, or connections")
    parser.add_argument("--seconds", type=float, default=30, help="that connections are kept")
    parser.add_argument("--corpus", type=Path, help="what to spoil")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1_000, help="spoilt requests a second, at most")
    options = parser.parse_args()
    take_only_what_is_left()
    named = [address.rpartition(":") for address in options.addresses]
    addresses = [(host, int(port)) for host, _, port in named]
    match options.kind:
        case "spoilt":
            spoil(addresses[0], options.corpus, options.seed, options.count, options.rate)
        case "held":
            hold(addresses, options.count, options.seconds)
        case "creeping":
            creep(addresses, options.count, options.seconds)
        case "deaf":
            fetch_without_reading(addresses, options.count, options.seconds)


if __name__ == "__main__":
    _main()
