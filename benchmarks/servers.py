"""The two sides of the comparison as one kind of thing: started, asked for CPU time and memory, given topics, ended.

Both run with their defaults, but for two settings that keep a long run tidy: deleted topics leave the disk at once, and
nothing is deleted by age. Apache Kafka's JVM has the flags of its own scripts (1 GiB heap, G1).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.oracle.apache_kafka import ApacheKafka, KafkaTools, free_ports
from tests.oracle.ottla_node import OttlaNode

from . import load

SETTINGS = {"log.segment.delete.delay.ms": "0"}
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Node(Protocol):
    """What the benchmarks need of a node; both helpers of the oracle tests have it."""

    host: str
    port: int

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def log_dir(self) -> Path: ...
    def spawn(self) -> None: ...
    def wait_ready(self) -> None: ...
    def stop(self) -> int: ...
    def kill(self) -> None: ...


class Side:
    """One side: knows how to make nodes, and holds the one that most cases share."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self._made = 0
        self._node: Node | None = None
        self._admin: AdminClient | None = None

    def make(self, directory: Path) -> Node:
        """A node that is ready to be spawned, on a port that is known."""
        raise NotImplementedError

    def fresh(self) -> Node:
        self._made += 1
        return self.make(self.directory / f"node-{self._made}")

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self.fresh()
            self._node.spawn()
            self._node.wait_ready()
        return self._node

    @property
    def port(self) -> int:
        return self.node.port

    def cpu_seconds(self) -> float:
        """Of the shared node so far; 0 while there is none."""
        return cpu_seconds(self._node.pid) if self._node is not None else 0.0

    def end(self) -> None:
        node, self._node, self._admin = self._node, None, None
        if node is not None:
            node.stop()

    def replace(self) -> None:
        """After a failure: end the node at once, so that the next case gets a new one."""
        node, self._node, self._admin = self._node, None, None
        if node is not None:
            node.kill()

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[str]:
        """A topic for one case; gone from the disk afterwards, unless the case failed and its node goes as well."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.node.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([topic])[name].result(60)
        yield name
        self._admin.delete_topics([name])[name].result(60)
        deadline = time.monotonic() + 30
        while self._on_disk(name) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _on_disk(self, topic: str) -> bool:
        """Whether a partition's directory is left, under its own name or renamed for deletion."""
        return any(name.startswith(f"{topic}-") for name in os.listdir(self.node.log_dir))

    def segments(self, topic: str, partition: int) -> list[Path]:
        return sorted((self.node.log_dir / f"{topic}-{partition}").glob("*.log"))


class OttlaSide(Side):
    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        super().__init__("Ottla", directory)
        self._command = command
        self._environment = environment
        self._settings = settings

    def make(self, directory: Path) -> Node:
        return OttlaNode(
            directory,
            overrides=self._settings,
            command=self._command,
            environment=self._environment,
            port=_port_with_controller(),
        )


class KafkaSide(Side):
    def __init__(
        self,
        directory: Path,
        tools: KafkaTools,
        name: str = "Apache Kafka",
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        super().__init__(name, directory)
        self._tools = tools
        self._settings = settings

    def make(self, directory: Path) -> Node:
        node = ApacheKafka(directory, overrides=self._settings)
        node.format(self._tools)
        return node


def _port_with_controller() -> int:
    """A free port whose thousandth successor, the controller's, is free as well."""
    for port in free_ports(50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port + 1000))
            return port
    raise load.LoadFailed("no free pair of ports")


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants so far."""
    ticks = 0
    for member in family(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def busy_seconds() -> float:
    """CPU time that the whole machine has spent on anything so far."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_SECOND


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process and its descendants: shared pages count by their share."""
    total = 0
    for member in family(pid):
        try:
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total * 1024


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).splitlines()[0]
