"""`ottla up --nodes 3` as a person meets it: one command, one line, and three processes of which any may be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.harness import QUICK
from tests.oracle.apache_kafka import free_ports

READY = re.compile(r"ready: ((?:127\.0\.0\.1:\d+,){2}127\.0\.0\.1:\d+) in [\d.]+ s")


class Up:
    """The command, running."""

    def __init__(self, directory: Path, *arguments: str, port: int = 0) -> None:
        self.data = directory / "data"
        self.log = directory / "stderr.txt"
        directory.mkdir(parents=True, exist_ok=True)
        settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
        # Whoever runs the tests apart from a terminal may ignore the very signals that they are about.
        command = [
            "env",
            "--default-signal",
            sys.executable,
            "-m",
            "ottla.cli",
            "up",
            "--nodes",
            "3",
            "--port",
            str(port),
        ]
        with self.log.open("a") as stderr:
            self.process = subprocess.Popen(
                [*command, "--data", str(self.data), *settings, *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "TMPDIR": str(directory)},
            )

    def wait_ready(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.fullmatch(line.strip())
        assert found is not None, f"it said {line!r} and then:\n{self.log.read_text()}"
        return found[1]

    def pid_of(self, node_id: int) -> int:
        return int((self.data / f"node-{node_id}.pid").read_text())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextmanager
def up(directory: Path, *arguments: str, port: int = 0) -> Iterator[tuple[Up, str]]:
    running = Up(directory, *arguments, port=port)
    try:
        yield running, running.wait_ready()
    finally:
        if running.process.poll() is None:
            running.stop()


def produce(bootstrap: str, value: bytes) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.timeout.ms": 30_000,
            "retry.backoff.ms": 50,
            "enable.metrics.push": False,
        }
    )
    failures: list[object] = []
    producer.produce("t", value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(35) == 0
    assert failures == []


def is_alive(pid: int) -> bool:
    """Does it run? A process that nobody has asked about since it ended does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def complaints(running: Up) -> list[str]:
    """What it says on standard error, but for where its registries are."""
    return [line for line in running.log.read_text().splitlines() if not line.startswith(("schemas: ", "console: "))]


def test_one_command_one_line_three_nodes(tmp_path: Path) -> None:
    with up(tmp_path) as (running, bootstrap):
        assert len(set(bootstrap.split(","))) == 3
        produce(bootstrap, b"hello")
        pids = [running.pid_of(node_id) for node_id in (1, 2, 3)]
        assert all(is_alive(pid) for pid in pids)
        assert running.stop(signal.SIGINT) == 0
        assert not any(is_alive(pid) for pid in pids)
        assert complaints(running) == []


@pytest.mark.slow
def test_a_killed_node_is_one_sentence_and_the_others_go_on(tmp_path: Path) -> None:
    with up(tmp_path) as (running, bootstrap):
        produce(bootstrap, b"before")
        os.kill(running.pid_of(2), signal.SIGKILL)
        produce(bootstrap, b"after")
        deadline = time.monotonic() + 60
        while not complaints(running) and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = complaints(running)
        assert len(lines) == 1
        assert "node 2 was killed by SIGKILL. The others go on" in lines[0]
        assert f"ottla node {running.data}/node-2.properties" in lines[0]
        # And that command brings it back.
        again = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli", "node", str(running.data / "node-2.properties")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert again.stdout is not None
        assert again.stdout.readline().startswith("ready: ")
        again.terminate()
        assert again.wait(30) == 0
        again.stdout.close()
        assert running.stop() == 0


@pytest.mark.slow
def test_the_same_data_is_the_same_cluster_again(tmp_path: Path) -> None:
    with up(tmp_path) as (running, bootstrap):
        produce(bootstrap, b"one")
        identity = (running.data / "node-3" / "meta.properties").read_text()
        assert running.stop() == 0
    with up(tmp_path) as (running, bootstrap):
        produce(bootstrap, b"two")
        assert (running.data / "node-3" / "meta.properties").read_text() == identity
        assert running.stop() == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


@pytest.mark.slow
def test_ports_are_those_that_were_promised(tmp_path: Path) -> None:
    port = next(port for port in free_ports(200) if all(_is_free(port + n) for n in (1, 2, 1000, 1001, 1002)))
    with up(tmp_path, "--ephemeral", port=port) as (running, bootstrap):
        assert bootstrap == ",".join(f"127.0.0.1:{port + n}" for n in range(3))
        for n in range(3):
            socket.create_connection(("127.0.0.1", port + 1000 + n), timeout=5).close()
        assert running.stop() == 0
        assert not running.data.exists()


def test_a_port_in_use_is_one_sentence_and_leaves_nothing_running(tmp_path: Path) -> None:
    for attempt in range(10):
        (directory := tmp_path / str(attempt)).mkdir()
        with socket.socket() as holder:
            port = free_ports(1)[0]
            holder.bind(("127.0.0.1", port))
            holder.listen()
            running = Up(directory, port=port - 1)
            assert running.wait() == 1
        if f"Port {port - 1} " not in running.log.read_text():
            break  # Else somebody else has the port before it, by chance.
    lines = running.log.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"ottla: node 2: Port {port} ")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_nodes_do_not_outlive_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    running = Up(tmp_path, "--ephemeral")
    running.wait_ready()
    children = _children_of(running.process.pid)
    assert len(children) == 3
    running.process.send_signal(number)
    running.wait()
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in children)


def _children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def files_of(directory: Path) -> dict[str, bytes]:
    """What lies beside the directories of the nodes, and which of those there are."""
    return {path.name: b"" if path.is_dir() else path.read_bytes() for path in directory.iterdir()}


def refusal(data: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli", "up", "--data", str(data), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.stderr


def test_a_start_that_is_refused_changes_nothing_of_the_cluster_that_runs(tmp_path: Path) -> None:
    with up(tmp_path) as (running, _):
        before = files_of(running.data)
        assert {"cluster.properties", "node-1.pid", "node-2.pid", "node-3.pid"} < before.keys()
        for nodes in ("3", "4"):
            said = refusal(running.data, "--nodes", nodes, "--port", "0")
            assert "is in use by another" in said
            assert files_of(running.data) == before
        assert running.stop() == 0


def test_nodes_whose_command_is_gone_are_not_disturbed_either(tmp_path: Path) -> None:
    """One of them was started by itself, so that it lives on without the command."""
    with up(tmp_path) as (running, _):
        assert running.stop() == 0
    command = [sys.executable, "-m", "ottla.cli", "node", str(running.data / "node-3.properties")]
    alone = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_locked(running.data / "node-3" / ".lock", alone.pid):
            assert alone.poll() is None
            time.sleep(0.02)
        before = files_of(running.data)
        said = refusal(running.data, "--nodes", "3", "--port", "0")
        assert f"{running.data}/node-3 is in use by another node" in said
        assert files_of(running.data) == before
    finally:
        alone.kill()
        alone.wait()


def is_locked(path: Path, pid: int) -> bool:
    """Does this process hold the lock on it?"""
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[4] == str(pid) and words[5].endswith(f":{path.stat().st_ino}") for words in held)


def test_a_first_start_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    """Else its controllers would have been promised ports that they can never have."""
    data = tmp_path / "data"
    port = free_ports(1)[0] % 20_000 + 20_000
    with socket.create_server(("127.0.0.1", port + 1001)):
        said = refusal(data, "--nodes", "3", "--port", str(port), "--registry", "off", "--no-console")
        assert f"Port {port + 1001} of 127.0.0.1 cannot be used" in said
        assert not data.exists()
        refusal(data, "--nodes", "3", "--port", "0", "--set", "num.partitions=many")
        assert not data.exists()
