"""Three nodes of one cluster, a real process each, that a test can kill, pause and start again one by one.

Owns the processes it starts, and ends only those. The nodes are placed and formatted as `ottla up --nodes` does it, and
then run by `ottla node`, so that each can be dealt with by itself. What a test asks about the cluster is asked of the
nodes over the wire, through whichever of them answers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import TypeVar

from ottla.cli.cluster import configure, make_plan, settle
from ottla.config.properties import format_properties, parse_properties
from ottla.errors import ErrorCode
from ottla.runtime.system import free_ports, system_runtime
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from tests.wire_client import WireClient

R = TypeVar("R", bound=Message)
T = TypeVar("T")

QUICK = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
}
"""Timeouts so short that a death is noticed within seconds."""

PATIENCE_S = 60.0


class NodeProcess:
    """One node, `ottla node`, running or not."""

    def __init__(self, node_id: int, properties: Path, address: tuple[str, int], log: Path) -> None:
        self.node_id = node_id
        self.address = address
        self._properties = properties
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        assert not self.is_running
        command = [sys.executable, "-m", "ottla.cli", "node", str(self._properties), "--log-level", "warning"]
        with self._log.open("a") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)

    def wait_ready(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = self._process.stdout.readline() if ready else b""
        assert line.startswith(b"ready: "), f"node {self.node_id} said {line!r} and then:\n{self.log()}"

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        self.paused = number == signal.SIGSTOP

    def wait(self) -> int:
        assert self._process is not None
        status = self._process.wait(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status


class Cluster:
    def __init__(self, directory: Path, *, nodes: int = 3, settings: Mapping[str, str] | None = None) -> None:
        runtime = system_runtime(durable=False)
        plan = make_plan(runtime, data=str(directory), host="127.0.0.1", port=0, nodes=nodes)
        self.directory = directory
        self.nodes: dict[int, NodeProcess] = {}
        for node_id, config in configure(plan, {**QUICK, **(settings or {})}).items():
            settle(runtime, plan, config)
            place = plan.places[node_id - 1]
            self.nodes[node_id] = NodeProcess(
                node_id,
                directory / f"node-{node_id}.properties",
                (place.host, place.port),
                directory / f"node-{node_id}.stderr",
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in (node.address for node in self.nodes.values()))

    # Life and death.

    def start(self) -> None:
        """All at once; returns when all of them serve."""
        for node in self.nodes.values():
            node.start()
        deadline = time.monotonic() + PATIENCE_S
        for node in self.nodes.values():
            node.wait_ready(deadline)

    def kill(self, node_id: int) -> None:
        """As a power cut would: no goodbye."""
        self.nodes[node_id].send_signal(signal.SIGKILL)
        self.nodes[node_id].wait()

    def pause(self, node_id: int) -> None:
        """Alive, and deaf: its connections stay open and nothing is answered."""
        self.nodes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].send_signal(signal.SIGCONT)

    def stop(self, node_id: int) -> int:
        """In order, with goodbye; the status of the process."""
        self.nodes[node_id].send_signal(signal.SIGTERM)
        return self.nodes[node_id].wait()

    def restart(self, node_id: int) -> None:
        """Start a node that is down; returns when it serves."""
        self.nodes[node_id].start()
        self.nodes[node_id].wait_ready(time.monotonic() + PATIENCE_S)

    def stop_all(self) -> None:
        """All at once, in order, each by itself as far as it knows."""
        running = [node for node in self.nodes.values() if node.is_running]
        for node in running:
            if node.paused:
                node.send_signal(signal.SIGCONT)
            node.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while any(node.is_running for node in running) and time.monotonic() < deadline:
            time.sleep(0.02)
        for node in running:
            if node.is_running:
                node.send_signal(signal.SIGKILL)
            node.wait()

    def close(self) -> None:
        """End what still runs."""
        for node in self.nodes.values():
            if node.is_running:
                node.send_signal(signal.SIGKILL)
                node.wait()

    def complaints(self) -> str:
        return "\n".join(f"node {node.node_id}:\n{log}" for node in self.nodes.values() if (log := node.log()))

    # Questions.

    @property
    def listening(self) -> list[int]:
        """The nodes that run and are not paused."""
        return [node_id for node_id in self.nodes if self.is_up(node_id)]

    def is_up(self, node_id: int) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.is_running and not node.paused

    def ask(self, request: Message, response: type[R], *, of: int | None = None) -> R:
        """The answer of one node, or of the first that gives one."""
        refusal: OSError | EOFError | None = None
        for node_id in self.listening if of is None else [of]:
            try:
                with WireClient(self.nodes[node_id].address, timeout_s=PATIENCE_S) as client:
                    return client.call(request, response)
            except (OSError, EOFError) as error:
                refusal = error
        raise AssertionError(f"no node answers: {refusal}\n{self.complaints()}")

    def create_topic(self, name: str, *, partitions: int = 1, replicas: int = 3, **configs: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        topic.configs = [CreatableTopicConfig(name=key.replace("_", "."), value=each) for key, each in configs.items()]
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        created = answer.topics[0]
        assert created.error_code == 0, f"{ErrorCode(created.error_code).name}: {created.error_message}"

    def metadata(self, *topics: str, of: int | None = None) -> MetadataResponse:
        wanted = [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.ask(request, MetadataResponse, of=of)

    def partition(self, topic: str, partition: int = 0, *, of: int | None = None) -> MetadataResponsePartition:
        (found,) = self.metadata(topic, of=of).topics
        return next(each for each in found.partitions if each.partition_index == partition)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Waits until there is one that listens."""

        def leader() -> int | None:
            found = self.metadata(topic).topics[0]
            for each in found.partitions:
                if each.partition_index == partition and each.leader_id in self.listening:
                    return each.leader_id
            return None

        return eventually(leader, f"a leader of {topic}-{partition}")

    def active_controller(self) -> int:
        """Waits until there is one that listens."""
        wanted = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]

        def controller() -> int | None:
            answer = self.ask(DescribeQuorumRequest(topics=wanted), DescribeQuorumResponse)
            if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
                return None
            leader = answer.topics[0].partitions[0].leader_id
            return leader if self.is_up(leader) else None

        return eventually(controller, "an active controller")

    def wait_in_sync(self, topic: str, nodes: Iterable[int], partition: int = 0) -> None:
        """Until the ISR is exactly `nodes`."""
        wanted = sorted(nodes)
        eventually(
            lambda: sorted(self.partition(topic, partition).isr_nodes) == wanted or None,
            f"an ISR of {wanted} for {topic}-{partition}",
        )


def eventually(ask: Callable[[], T | None], what: str, seconds: float = PATIENCE_S) -> T:
    """What `ask` says when it says something."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer is not None:
            return answer
        assert time.monotonic() < deadline, f"{what} did not come about in {seconds} s"
        time.sleep(0.05)


def give_gateway(
    cluster: Cluster, *, public: int | None = None, protocol: str = "PLAINTEXT", more: Mapping[str, str] | None = None
) -> int:
    """The first node, which has not started yet, gets the gateway listener GATE: its port. Clients are told of
    `public`, if that is another."""
    (port,) = free_ports("127.0.0.1", 1)
    path = cluster.directory / "node-1.properties"
    properties = parse_properties(path.read_text())
    listeners = properties["listeners"]
    properties |= {
        "listeners": f"{listeners},GATE://127.0.0.1:{port}",
        "advertised.listeners": f"{listeners.partition(',')[0]},GATE://127.0.0.1:{public or port}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GATE:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ottla.gateway.listeners": "GATE",
        **(more or {}),
    }
    path.write_text(format_properties(properties))
    return port


@contextmanager
def running_cluster(directory: Path, *, nodes: int = 3, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    cluster = Cluster(directory, nodes=nodes, settings=settings)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        print(cluster.complaints())
        raise
    finally:
        cluster.close()
    assert "Traceback" not in cluster.complaints(), cluster.complaints()
