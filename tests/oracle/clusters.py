"""Clusters of real processes, ours and Apache Kafka's, as one kind of thing: formatted, started, killed, asked, ended.

Every node has its own directory and process group, is known by its node id, and is broker and controller in one unless
other roles are asked for. Both kinds read the very same properties, so that what differs between them is the server
alone. Driven by the benchmarks of clusters and by tests that hold the two beside each other.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.oracle.apache_kafka import (
    BROKER_HEAP,
    BROKER_JVM_FLAGS,
    LOG_FLAGS,
    KafkaTools,
    OracleTimeout,
    classpath,
    free_ports,
    java,
    random_cluster_id,
    wait_for_api_versions,
)
from tests.oracle.ottla_node import ottla_command
from tests.wire_client import WireClient

HOST = "127.0.0.1"


class ClusterNode:
    """One process. `spawn` may be called again after `kill` or `stop`: the data stays."""

    def __init__(self, node_id: int, directory: Path, port: int, controller_port: int) -> None:
        self.node_id = node_id
        self.directory = directory
        self.port = port
        self.controller_port = controller_port
        self.directory_id = _random_id()
        self.data = directory / "data"
        self.properties_file = directory / "server.properties"
        self.output = directory / "output"
        self.command: tuple[Sequence[str], Mapping[str, str]] = ((), {})
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"node {self.node_id} is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        assert self._process is None, f"node {self.node_id} is running"
        self.command = (command, environment)
        with open(self.output, "ab") as output:
            self._process = subprocess.Popen(
                [*command, str(self.properties_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
                env={**os.environ, **environment},
            )

    def wait_ready(self, timeout: float = 90) -> None:
        try:
            wait_for_api_versions(HOST, self.port, alive=lambda: self.is_running, timeout=timeout)
        except Exception as failure:
            self.kill()
            raise type(failure)(f"{failure}\n{self.printed()}") from None

    def printed(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9 does."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def terminate(self) -> None:
        """Ask the node to shut down; `wait` tells how it ended."""
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float = 40) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise OracleTimeout(
                f"node {self.node_id} did not end within {timeout} s of SIGTERM\n{self.printed()}"
            ) from None


class Cluster:
    """`size` nodes, all with the same roles, that know one another. Use it as a context manager, or call `end`."""

    name = "a cluster"

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        roles: str = "broker,controller",
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        ports = free_port_pairs(size)
        self.cluster_id = random_cluster_id()
        self.nodes = {
            index + 1: ClusterNode(index + 1, directory / f"node-{index + 1}", port, port + 1000)
            for index, port in enumerate(ports)
        }
        servers = ",".join(f"{HOST}:{node.controller_port}" for node in self.nodes.values())
        replicas = str(min(3, size))
        self._shared = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            **(overrides or {}),
        }
        for node in self.nodes.values():
            self._write_properties(node, roles)

    def _write_properties(self, node: ClusterNode, roles: str) -> None:
        places = {
            "broker": f"PLAINTEXT://{HOST}:{node.port}",
            "controller": f"CONTROLLER://{HOST}:{node.controller_port}",
        }
        properties = {
            "process.roles": roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(places[role] for role in roles.split(",")),
            "log.dirs": str(node.data),
            **self._shared,
        }
        node.properties_file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    # Both kinds.

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def format_node(self, node: ClusterNode, *options: str) -> None:
        raise NotImplementedError

    def format(self) -> None:
        for node in self.nodes.values():
            self.format_node(node, "--initial-controllers", self.initial_controllers)

    def newcomer(self, directory: Path, *, roles: str, kind: Cluster | None = None) -> ClusterNode:
        """One more node of this cluster, formatted and started; of another kind of server, if one is named."""
        server = kind or self
        (port,) = free_port_pairs(1)
        node = ClusterNode(max(self.nodes, default=0) + 1, directory, port, port + 1000)
        self._write_properties(node, roles)
        server.cluster_id = self.cluster_id
        server.format_node(node, "--no-initial-controllers")
        self.nodes[node.node_id] = node
        node.spawn(server.command(), server.environment())
        return node

    @property
    def initial_controllers(self) -> str:
        return ",".join(
            f"{node.node_id}@{HOST}:{node.controller_port}:{node.directory_id}" for node in self.nodes.values()
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes.values())

    def spawn(self) -> None:
        """Start every node that is not running, and return at once."""
        for node in self.nodes.values():
            if not node.is_running:
                node.spawn(self.command(), self.environment())

    def start(self) -> None:
        self.format()
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every node answers and all brokers are known."""
        for node in self.nodes.values():
            node.wait_ready()
        deadline = time.monotonic() + 60
        while len(self.metadata().brokers) < len(self.nodes):
            if time.monotonic() > deadline:
                raise OracleTimeout(f"{len(self.metadata().brokers)} of {len(self.nodes)} brokers are known after 60 s")
            time.sleep(0.02)

    def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.spawn(self.command(), self.environment())
        node.wait_ready()

    def stop(self) -> list[int]:
        """Shut all down at once, cleanly; the statuses."""
        for node in self.nodes.values():
            node.terminate()
        return [node.wait() for node in self.nodes.values()]

    def end(self) -> None:
        for node in self.nodes.values():
            node.kill()

    # Questions.

    @contextlib.contextmanager
    def client(self, node_id: int | None = None) -> Iterator[WireClient]:
        """A connection to that node, or to the first that runs."""
        running = [node for node in self.nodes.values() if node.is_running]
        node = self.nodes[node_id] if node_id is not None else running[0]
        with WireClient((HOST, node.port)) as client:
            yield client

    def metadata(self, *topics: str) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
        )
        with self.client() as client:
            return client.call(request, MetadataResponse)

    def leader_of(self, topic: str, partition: int = 0, *, timeout: float = 30) -> ClusterNode:
        deadline = time.monotonic() + timeout
        while True:
            for found in self.metadata(topic).topics[0].partitions:
                if found.partition_index == partition and found.leader_id in self.nodes:
                    return self.nodes[found.leader_id]
            if time.monotonic() > deadline:
                raise OracleTimeout(f"{topic}-{partition} has no leader after {timeout} s")
            time.sleep(0.02)

    def active_controller(self, *, timeout: float = 30) -> ClusterNode:
        request = DescribeQuorumRequest(
            topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
        )
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError), self.client() as client:
                answer = client.call(request, DescribeQuorumResponse)
                if not answer.error_code and not answer.topics[0].partitions[0].error_code:
                    leader = answer.topics[0].partitions[0].leader_id
                    if leader in self.nodes:
                        return self.nodes[leader]
            if time.monotonic() > deadline:
                raise OracleTimeout(f"no active controller after {timeout} s")
            time.sleep(0.02)


class OttlaCluster(Cluster):
    name = "Ottla"

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        roles: str = "broker,controller",
        overrides: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, size=size, roles=roles, overrides=overrides)
        self._command = list(command) or ottla_command()
        self._environment = environment or {}

    def command(self) -> list[str]:
        return [*self._command, "node"]

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def format_node(self, node: ClusterNode, *options: str) -> None:
        command = [*self._command, "format", "--cluster-id", self.cluster_id, *options, str(node.properties_file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OracleTimeout(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


class KafkaCluster(Cluster):
    name = "Apache Kafka"

    def __init__(
        self,
        directory: Path,
        tools: KafkaTools,
        *,
        size: int = 3,
        overrides: Mapping[str, str] | None = None,
        heap: Sequence[str] = BROKER_HEAP,
    ) -> None:
        super().__init__(directory, size=size, overrides=overrides)
        self._tools = tools
        self._heap = heap

    def command(self) -> list[str]:
        return [java(), *self._heap, *BROKER_JVM_FLAGS, *LOG_FLAGS, "-cp", classpath(), "kafka.Kafka"]

    def format_node(self, node: ClusterNode, *options: str) -> None:
        self._tools.check("kafka-storage", "format", "-t", self.cluster_id, *options, "-c", str(node.properties_file))


def free_port_pairs(count: int) -> list[int]:
    """Ports whose thousandth successors are free as well."""
    found: list[int] = []
    if not count:
        return found
    candidates = free_ports(500)
    random.shuffle(candidates)
    taken = set(candidates)
    for port in candidates:
        if port + 1000 in taken or any(abs(port - other) in (0, 1000) for other in found):
            continue
        if port + 1000 <= 31_000 and _is_free(port + 1000):
            found.append(port)
        if len(found) == count:
            return found
    raise OracleTimeout(f"no {count} free pairs of ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _random_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
