"""`python -m benchmarks.cluster`: three Ottla nodes beside three of Apache Kafka, on the same machine, in one run.

Every topic has three replicas and `min.insync.replicas=2`, every write asks for `acks=all`. Both clusters run the whole
time, and while one is measured the other idles; a case that kills or restarts nodes puts them back before it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from tests.oracle.apache_kafka import KafkaTools
from tests.oracle.clusters import Cluster, ClusterNode, KafkaCluster, OttlaCluster
from tests.oracle.ottla_node import ottla_command
from tests.wire_client import WireClient

from . import load, series, servers
from .cases import KB, Case, Metric, Sample
from .load import Batches, LoadFailed
from .runner import PATIENCE, Result
from .servers import Node, Side

REPETITIONS = 3
RUN_BYTES = 160e6
WIDE = 1000
TIMEOUTS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""Equal on both sides, and shorter than the defaults (9 s and 2 s), which would only make the run longer."""

SETTINGS = {"log.segment.delete.delay.ms": "0", "auto.create.topics.enable": "false", **TIMEOUTS}
WRITE_EVERY_S = 0.005
DOWNTIME_MAX_S = 60.0


class ClusterSide(Side):
    """One cluster, made when first asked for, and the figures of all its nodes together."""

    def __init__(self, name: str, directory: Path, make: Callable[[Path], Cluster]) -> None:
        super().__init__(name, directory)
        self._make_cluster = make
        self._cluster: Cluster | None = None

    def make(self, directory: Path) -> Node:
        raise NotImplementedError("a cluster has no single node")

    def fresh_cluster(self) -> Cluster:
        self._made += 1
        return self._make_cluster(self.directory / f"cluster-{self._made}")

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self.fresh_cluster()
            self._cluster.start()
        return self._cluster

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes.values() if node.is_running] if self._cluster else []

    def cpu_seconds(self) -> float:
        return sum(servers.cpu_seconds(pid) for pid in self.pids)

    def pss_bytes(self) -> int:
        return sum(servers.pss_bytes(pid) for pid in self.pids)

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        return self._admin

    def end(self) -> None:
        cluster, self._cluster, self._admin = self._cluster, None, None
        if cluster is not None:
            cluster.end()

    replace = end

    @contextmanager
    def topic(self, name: str, partitions: int) -> Iterator[str]:
        create(self.cluster, name, partitions)
        self.wait_in_sync(name)
        yield name
        if self._cluster is not None:
            delete(self.cluster, name)

    def wait_in_sync(self, topic: str, timeout: float = 90) -> None:
        """Until every partition has a leader and all its replicas in sync."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.cluster.metadata(topic).topics[0].partitions
            if found and all(each.leader_id > 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in found):
                return
            if time.monotonic() > deadline:
                raise LoadFailed(f"the replicas of {topic} are not in sync after {timeout:g} s")
            time.sleep(0.05)


def create(cluster: Cluster, name: str, partitions: int) -> None:
    """By one request and no client library, whose own pauses would be measured."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=3,
        configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
    )
    node = next(iter(cluster.nodes.values()))
    with WireClient(("127.0.0.1", node.port), timeout_s=90) as client:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        answer = client.call(request, CreateTopicsResponse).topics[0]
    if answer.error_code:
        raise LoadFailed(f"topic {name} was not created: {answer.error_message or answer.error_code}")


def delete(cluster: Cluster, name: str) -> None:
    """Likewise: a library forgets a node that was killed, and then its answer too."""
    node = next(iter(cluster.nodes.values()))
    with WireClient(("127.0.0.1", node.port), timeout_s=90) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
        answer = client.call(request, DeleteTopicsResponse).responses[0]
    if answer.error_code:
        raise LoadFailed(f"topic {name} was not deleted: {answer.error_message or answer.error_code}")


def _cluster(side: Side) -> ClusterSide:
    assert isinstance(side, ClusterSide)
    return side


# Throughput and latency.


def throughput(size: int, batch: int) -> Case:
    shape = Batches.filling(batch, size).options()

    def measure(side: Side, topic: str) -> Sample:
        nodes = _cluster(side)
        port = nodes.cluster.leader_of(topic).port
        os.sync()  # Nothing of the run before, which was the other's, is to be written back meanwhile.
        before = nodes.cpu_seconds()
        answer = load.run(
            "produce", port=port, topic=topic, acks=-1, idempotent=1, max_bytes=RUN_BYTES, seconds=3, **shape
        )
        return Sample(
            values=(answer["mb_s"],),
            server_cpu_s=nodes.cpu_seconds() - before,
            gigabytes=answer["payload_bytes"] / 1e9,
            client_cpu=answer["client_cpu"],
        )

    title = f"produce {'100 B' if size == 100 else '1 KB'}, {batch // KB} KB batches, acks=all, three replicas"
    return Case(title=title, metrics=(Metric(unit="MB/s", bar=2.0),), measure=measure, group="throughput")


def _latency(side: Side, topic: str) -> Sample:
    """The same leader asked for acks=1 and for acks=all: the difference is what replication adds."""
    port = _cluster(side).cluster.leader_of(topic).port
    paced: Mapping[str, float] = {"records": 1, "size": 100, "rate": 1000, "seconds": 4, "warm": 1}
    alone = load.run("produce", port=port, topic=topic, acks=1, **paced)
    every = load.run("produce", port=port, topic=topic, acks=-1, **paced)
    return Sample(values=(every["p50_ms"], every["p99_ms"], every["p50_ms"] - alone["p50_ms"]))


LATENCY = Case(
    title="1,000 records/s, acks=all, three replicas",
    metrics=(
        Metric(name="p50", unit="ms", better="less"),
        Metric(name="p99", unit="ms", better="less", bar=0.5),
        Metric(name="what acks=all adds to acks=1, p50", unit="ms", better="less"),
    ),
    measure=_latency,
    group="latency",
)


def _stalled_follower(side: Side, topic: str) -> Sample:
    """acks=1 with all replicas copying, and with a follower that stands still: what replication takes from writes."""
    nodes = _cluster(side)
    leader = nodes.cluster.leader_of(topic)
    shape = Batches.filling(16 * KB, KB).options()
    bounded: Mapping[str, float] = {"acks": 1, "seconds": 1, "max_bytes": RUN_BYTES / 4}
    load.run("produce", port=leader.port, topic=topic, **bounded, **shape)
    nodes.wait_in_sync(topic)
    flowing = load.run("produce", port=leader.port, topic=topic, **bounded, **shape)
    nodes.wait_in_sync(topic)
    follower = next(node for node in nodes.cluster.nodes.values() if node is not leader)
    follower.pause()
    try:
        stalled = load.run("produce", port=leader.port, topic=topic, **bounded, **shape)
    finally:
        follower.resume()
    nodes.wait_in_sync(topic)
    return Sample(values=(stalled["mb_s"], stalled["mb_s"] / flowing["mb_s"]))


STALLED_FOLLOWER = Case(
    title="produce 1 KB, acks=1, while a follower stands still",
    metrics=(
        Metric(unit="MB/s"),
        Metric(name="against all of them copying", unit="×", bar=0.9, of_itself=True),
    ),
    measure=_stalled_follower,
    group="throughput",
)


# Faults.


class Writer:
    """Writes a small record every few milliseconds, acks=all, and remembers when each was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self.acknowledged: list[float] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": int(DOWNTIME_MAX_S * 1000),
                # Often, so that the gap is the cluster's and not the time until the client asks who leads.
                "topic.metadata.refresh.interval.ms": 50,
                "log_level": 0,
            }
        )

    def write_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            self._producer.poll(WRITE_EVERY_S)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged.append(time.monotonic())

    def close(self) -> None:
        self._producer.flush(30)


def _downtime(side: Side, topic: str, victim: Callable[[ClusterSide, str], ClusterNode]) -> Sample:
    """Kill a node in mid-stream: the longest time between two acknowledgements from then on."""
    nodes = _cluster(side)
    writer = Writer(nodes.cluster.bootstrap, topic)
    warm = time.monotonic() + 2
    writer.write_until(lambda: time.monotonic() > warm)
    node = victim(nodes, topic)
    killed = time.monotonic()
    node.kill()
    deadline = killed + DOWNTIME_MAX_S

    def recovered() -> bool:
        """A steady stream again, for longer than the client takes to notice and the cluster to decide."""
        now = time.monotonic()
        if now > deadline:
            raise LoadFailed(f"no acknowledgement for {DOWNTIME_MAX_S:g} s after the kill")
        return now - killed > 6 and len(writer.acknowledged) > 100 and now - writer.acknowledged[-100] < 2

    writer.write_until(recovered)
    writer.close()
    times = [killed, *(at for at in writer.acknowledged if at > killed)]
    gap = max(after - before for before, after in itertools.pairwise(times))
    nodes.cluster.restart(node.node_id)
    nodes.wait_in_sync(topic)
    _elect_preferred(nodes, topic)
    return Sample(values=(gap,))


def _elect_preferred(nodes: ClusterSide, topic: str) -> None:
    """The killed leader leads again, so that every repetition begins alike."""
    from confluent_kafka import ElectionType, TopicPartition

    with contextlib.suppress(Exception):
        nodes.admin().elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(30)


def _leader(nodes: ClusterSide, topic: str) -> ClusterNode:
    """The leader of the partition, which is not the active controller: `_apart` saw to that."""
    return nodes.cluster.leader_of(topic)


def _controller(nodes: ClusterSide, _topic: str) -> ClusterNode:
    return nodes.cluster.active_controller()


def _kill_leader(side: Side, topic: str) -> Sample:
    return _downtime(side, _apart(_cluster(side), topic), _leader)


def _kill_controller(side: Side, topic: str) -> Sample:
    return _downtime(side, _apart(_cluster(side), topic), _controller)


def _apart(nodes: ClusterSide, topic: str) -> str:
    """A topic whose only partition is led by a node that is not the active controller now."""
    controller = nodes.cluster.active_controller().node_id
    others = [node for node in nodes.cluster.nodes if node != controller]
    name = f"{topic}-apart-{time.monotonic_ns()}"
    assignment = [[others[0], controller, others[1]]]
    new = NewTopic(name, num_partitions=1, replica_assignment=assignment, config={"min.insync.replicas": "2"})
    nodes.admin().create_topics([new], operation_timeout=60)[name].result(90)
    nodes.wait_in_sync(name)
    return name


# Start and memory.


def _first_write(side: Side, _topic: str) -> Sample:
    """From the start of three formatted nodes to the first acknowledged write to a topic with three replicas."""
    cluster = _cluster(side).fresh_cluster()
    cluster.format()
    began = time.monotonic()
    cluster.spawn()
    try:
        done = _create_and_write(cluster)
    finally:
        cluster.end()
    return Sample(values=(done - began,))


def _create_and_write(cluster: Cluster) -> float:
    quick = {"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}
    deadline = time.monotonic() + 60
    while True:
        try:
            create(cluster, "first", 1)
            break
        except (OSError, EOFError, LoadFailed):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    acknowledged: list[float] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            acknowledged.append(time.monotonic())

    producer = Producer({**quick, "acks": "all", "linger.ms": 0, "retry.backoff.ms": 10, "log_level": 0})
    producer.produce("first", b"x", on_delivery=delivered)
    producer.flush(60)
    if not acknowledged:
        raise LoadFailed("the first record was not acknowledged within 60 s")
    return acknowledged[0]


def _memory(side: Side, topic: str) -> Sample:
    nodes = _cluster(side)
    shape = Batches.filling(64 * KB, KB).options()
    port = nodes.cluster.leader_of(topic).port
    load.run("produce", port=port, topic=topic, acks=-1, idempotent=1, max_bytes=RUN_BYTES, seconds=3, **shape)
    return Sample(values=(nodes.pss_bytes() / 1e6,))


# Many partitions.


def _wide_topic(side: Side, topic: str) -> Sample:
    """Seconds to create topics of a quarter, half and all of the partitions, each until all replicas are in sync."""
    nodes = _cluster(side)
    took = []
    for partitions in (WIDE // 4, WIDE // 2, WIDE):
        name = f"{topic}-wide-{partitions}"
        began = time.monotonic()
        create(nodes.cluster, name, partitions)
        nodes.wait_in_sync(name)
        took.append(time.monotonic() - began)
        delete(nodes.cluster, name)
        time.sleep(1)
    return Sample(values=(took[2], took[2] / took[0]))


def _wide_restart(side: Side, topic: str) -> Sample:
    """A node that holds a replica of every partition is shut down and started: until all are in sync again."""
    nodes = _cluster(side)
    took = []
    for partitions in (WIDE // 4, WIDE):
        name = f"{topic}-held-{partitions}"
        create(nodes.cluster, name, partitions)
        nodes.wait_in_sync(name)
        node = nodes.cluster.nodes[3]
        node.terminate()
        node.wait(60)
        began = time.monotonic()
        nodes.cluster.restart(3)
        nodes.wait_in_sync(name)
        took.append(time.monotonic() - began)
        delete(nodes.cluster, name)
        time.sleep(1)
    return Sample(values=(took[1], took[1] / took[0]))


def all_cases() -> list[Case]:
    return [
        Case(
            title="three nodes, to the first acknowledged acks=all write",
            metrics=(Metric(unit="s", better="less", bar=0.25),),
            measure=_first_write,
            partitions=0,
            group="start",
        ),
        *(throughput(size, batch) for size in (100, KB) for batch in (16 * KB, 64 * KB)),
        STALLED_FOLLOWER,
        LATENCY,
        Case(
            title="memory of three nodes, loaded (PSS)",
            metrics=(Metric(unit="MB", better="less", bar=0.25),),
            measure=_memory,
            group="memory",
        ),
        Case(
            title="no acknowledged write after kill -9 of the leader",
            metrics=(Metric(unit="s", better="less", bar=1.0),),
            measure=_kill_leader,
            group="faults",
        ),
        Case(
            title="no acknowledged write after kill -9 of the active controller",
            metrics=(Metric(unit="s", better="less", bar=1.0),),
            measure=_kill_controller,
            group="faults",
        ),
        Case(
            title=f"a topic of {WIDE:,} partitions",
            metrics=(
                Metric(unit="s", better="less"),
                Metric(name="against a quarter of them", unit="×", better="less", bar=4.4, of_itself=True),
            ),
            measure=_wide_topic,
            group="partitions",
        ),
        Case(
            title=f"restart with {WIDE:,} partitions a node",
            metrics=(
                Metric(unit="s", better="less"),
                Metric(name="against a quarter of them", unit="×", better="less", bar=4.4, of_itself=True),
            ),
            measure=_wide_restart,
            group="partitions",
        ),
    ]


# Running.


def make_sides(options: argparse.Namespace, tools: KafkaTools, scratch: Path) -> tuple[Side, Side]:
    command = shlex.split(options.ottla) if options.ottla else ottla_command()

    def ottla(directory: Path) -> Cluster:
        return OttlaCluster(directory, overrides=SETTINGS, command=command, environment=series.COMPILED)

    def kafka(directory: Path) -> Cluster:
        return KafkaCluster(directory, tools, overrides=SETTINGS)

    return ClusterSide("Ottla", scratch / "ottla", ottla), ClusterSide("Apache Kafka", scratch / "kafka", kafka)


def warm_up(sides: Sequence[Side]) -> None:
    shape = Batches.filling(64 * KB, KB).options()
    for side in sides:
        with side.topic("warm-up", 1) as topic:
            port = _cluster(side).cluster.leader_of(topic).port
            for _ in range(6):
                load.run("produce", port=port, topic=topic, acks=-1, max_bytes=40e6, seconds=2, **shape)
                load.run("produce", port=port, topic=topic, acks=-1, records=1, size=100, seconds=1)


def run(options: argparse.Namespace, console: Console, scratch: Path) -> list[Result]:
    with contextlib.ExitStack() as stack:
        tools = stack.enter_context(KafkaTools())
        sides = make_sides(options, tools, scratch)
        for side in sides:
            stack.callback(side.end)
        cases = series.chosen(all_cases(), options.only)
        return series.run_series(cases, sides, options.repetitions, console, warm_up=lambda tick: warm_up(sides))


COMMAND = series.Command(
    name="cluster",
    description="Three nodes of each, side by side.",
    repetitions=REPETITIONS,
    cases=all_cases,
    run=run,
    facts=[
        "Three nodes a side, each broker and controller, both clusters up the whole time; topics have three replicas "
        "and `min.insync.replicas=2`, every write `acks=all`, idempotent where throughput is measured.",
        f"Equal timeouts: {', '.join(f'`{key}={value}`' for key, value in TIMEOUTS.items())}; the rest are defaults.",
        "A write gap is the longest time between two acknowledgements that a librdkafka producer saw after the kill, "
        "writing every 5 ms and asking every 50 ms who leads.",
        f"Medians of {REPETITIONS}, the sides taking turns, and of {PATIENCE} times as many where the pairs lie on "
        "both sides of a bar. CPU-seconds are those of all three nodes, user and system.",
        "What acks=all adds to acks=1 is said to be 2 to 5 ms in the documents that Ottla grew from, between machines; "
        "here all nodes are on one.",
    ],
)


if __name__ == "__main__":
    sys.exit(COMMAND.main(sys.argv[1:]))
