"""The node under attack: a real process, watched from outside, with a canary that must notice nothing.

A test attacks through sockets and frames; `Target` tells what it cost the node (work of its event loop's thread, peak
of its resident memory), whether the node has called anything an internal error, and how the canary fared meanwhile.

Work is counted in rounds of a plain loop, which is timed here just before and just after: so a bound is the same on a
slow machine as on a fast one, and beside whatever else is running.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.wire.frames import request_frame
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.node_process import NodeProcess, start_node
from tests.wire_client import WireClient

from .canary import read_all

CANARY_TOPIC = "canary"
VICTIM_TOPIC = "victim"
"""What hostile clients aim at, with two partitions."""

INTERNAL_ERROR = re.compile(r"Traceback|a request from|a background task failed")


ROUNDS = 300_000


class Cost(NamedTuple):
    work: float
    """Processor time of the event loop's thread, in millions of rounds of a plain loop."""
    peak_mb: float
    """Highest resident memory, above what it was before."""


class Target:
    def __init__(self, directory: Path, *arguments: str) -> None:
        self._directory = directory
        self._arguments = arguments
        self.node: NodeProcess = start_node(directory, *arguments)
        self.peak_mb = 0.0
        with self.client() as client:
            for name, partitions in ((CANARY_TOPIC, 1), (VICTIM_TOPIC, 2)):
                topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
                answer = client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
                assert answer.topics[0].error_code == 0
        host, port = self.node.address
        self._canary: subprocess.Popen[str] | None = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.canary", host, str(port), CANARY_TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    # Attacking.

    def client(self, timeout_s: float = 20) -> WireClient:
        return WireClient(self.node.address, timeout_s=timeout_s)

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(60)
        sock.connect(self.node.address)
        return sock

    def outcome(self, *chunks: bytes, timeout_s: float = 20) -> bytes | None:
        """Send bytes on a new connection: the first answer (without its length), or none if the node hung up."""
        with self.connect() as sock:
            sock.settimeout(timeout_s)
            return exchange(sock, b"".join(chunks))

    # Watching.

    @contextlib.contextmanager
    def costing(self) -> Iterator[list[Cost]]:
        """What the body cost the node: the one item of the list, once the body is done."""
        Path(f"/proc/{self.node.pid}/clear_refs").write_text("5")  # Forget the peak.
        round_s = seconds_of_a_round()
        before_s, before_mb = self._loop_seconds(), self._memory_mb("VmRSS")
        costs: list[Cost] = []
        yield costs
        peak = self._memory_mb("VmHWM")
        self.peak_mb = max(self.peak_mb, peak)
        spent_s = self._loop_seconds() - before_s
        round_s = max(round_s, seconds_of_a_round())
        costs.append(Cost(spent_s / round_s / 1e6, peak - before_mb))

    def _loop_seconds(self) -> float:
        return int(Path(f"/proc/{self.node.pid}/schedstat").read_text().split()[0]) / 1e9

    def _memory_mb(self, key: str) -> float:
        found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{self.node.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def resident_mb(self) -> float:
        return self._memory_mb("VmRSS")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.node.pid}/fd").iterdir()))

    def check_alive(self) -> None:
        """The node runs, answers, and has called nothing an internal error."""
        assert self.node.process.poll() is None, f"the node died:\n{self.node.log()}"
        complaints = [line for line in self.node.log().splitlines() if INTERNAL_ERROR.search(line)]
        assert not complaints, self.node.log()[-4000:]

    def mark(self) -> dict[str, float]:
        """The canary's latencies since the last mark. It has had at least one answer since."""
        assert self._canary is not None
        assert self._canary.stdin is not None
        assert self._canary.stdout is not None
        self._canary.stdin.write("mark\n")
        self._canary.stdin.flush()
        line = self._canary.stdout.readline()
        assert line, f"the canary died, status {self._canary.wait(10)}; the node's log:\n{self.node.log()[-4000:]}"
        marked: dict[str, float] = json.loads(line)
        return marked

    # The end of the story.

    def finish(self) -> dict[str, float]:
        """The canary's data is whole, now and after a restart; returns its figures."""
        figures = self.stop_canary()
        self.check_alive()
        self.peak_mb = max(self.peak_mb, self._memory_mb("VmHWM"))
        assert self.node.stop() == 0, self.node.log()
        self._close_output()
        self.node = start_node(self._directory, *self._arguments)
        try:
            with self.client() as client:
                assert read_all(client, CANARY_TOPIC) == [b"%d" % number for number in range(int(figures["sent"]))]
        finally:
            self.end()
        return figures

    def stop_canary(self) -> dict[str, float]:
        assert self._canary is not None
        output, _ = self._canary.communicate(timeout=60)
        self._canary = None
        figures: dict[str, float] = json.loads(output.splitlines()[-1])
        assert figures["complete"], "the canary's records are not what it sent"
        return figures

    def end(self) -> None:
        """Nothing that was started is left running."""
        if self._canary is not None:
            self._canary.kill()
            self._canary.communicate()
            self._canary = None
        if self.node.process.poll() is None:
            self.node.kill()
        self._close_output()

    def _close_output(self) -> None:
        if self.node.process.stdout is not None:
            self.node.process.stdout.close()


def seconds_of_a_round() -> float:
    """The processor time of one round of a plain loop, here and now."""
    began_s = time.thread_time()
    total = 0
    for number in range(ROUNDS):
        total += number * number % 7
    assert total
    return (time.thread_time() - began_s) / ROUNDS


@contextlib.contextmanager
def watched(directory: Path, *arguments: str) -> Iterator[Target]:
    """A target whose canary has noticed nothing when it is done with."""
    target = Target(directory, *arguments)
    try:
        yield target
        figures = target.finish()
        print(f"canary {figures}, node's peak {target.peak_mb:.0f} MB")
    finally:
        target.end()


def exchange(sock: socket.socket, data: bytes) -> bytes | None:
    """Send, and read one answer without its length; none if the peer hung up instead."""
    try:
        if data:
            sock.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return None  # It hung up before it had heard everything.
    head = read_exactly(sock, 4)
    return None if head is None else read_exactly(sock, int.from_bytes(head, "big"))


def read_exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            got = sock.recv(min(size - len(data), 1 << 20))
        except ConnectionResetError:
            return None
        if not got:
            return None
        data += got
    return bytes(data)


def is_hung_up(sock: socket.socket, seconds: float) -> bool:
    """Does the peer hang up within so long? What it still sends is read and dropped."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if not sock.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True
    return False


def frame(api_key: int, version: int, body: bytes, *, correlation_id: int = 7) -> bytes:
    return request_frame(api_key, version, correlation_id, "hostile", body)
