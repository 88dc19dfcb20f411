"""What the tests of the seeds ask a cluster with: one partition at a time, by the leader's or any node's own word."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, TopicPartition

from ottla.errors import ErrorCode
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.behaviour.client import Client, Topic, batch
from tests.cluster.harness import PATIENCE_S, eventually
from tests.cluster.layout import HOST, LaidOut

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
ALL = -1


def create(cluster: LaidOut, name: str, *replicas: Sequence[int], **configs: str) -> Topic:
    """A topic with a partition for each list of replicas; returns when all of them are in sync."""
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(each)) for index, each in enumerate(replicas)
    ]
    topic.configs = [CreatableTopicConfig(name=key.replace("_", "."), value=each) for key, each in configs.items()]
    answer = cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
    (created,) = answer.topics
    assert created.error_code == 0, f"{ErrorCode(created.error_code).name}: {created.error_message}"
    made = Topic(name, created.topic_id)
    for index, each in enumerate(replicas):
        cluster.wait_in_sync(name, each, index)
        # The leader may hear of it a moment after the node that was asked.
        with Client(cluster.nodes[each[0]].address) as client:
            eventually(
                lambda index=index, client=client: client.fetch(made, 0, partition=index).error_code == 0 or None,  # type: ignore[misc]
                f"a leader that serves {name}-{index}",
            )
    return made


@contextmanager
def at(cluster: LaidOut, node_id: int) -> Iterator[Client]:
    with Client(cluster.nodes[node_id].address) as client:
        yield client


def write(cluster: LaidOut, topic: Topic, *values: bytes, acks: int = ALL) -> int:
    """One batch to whoever leads; its first offset. Goes to the next leader when the first is gone, as clients do."""

    def attempt() -> int | None:
        leader = cluster.leader_of(topic.name)
        try:
            with at(cluster, leader) as client:
                answer = client.produce(topic, batch(*values), acks=acks)
        except (OSError, EOFError):
            return None
        return answer.base_offset if answer.error_code == 0 else None

    return eventually(attempt, f"a write to {topic.name}")


def values_at(cluster: LaidOut, topic: Topic, *, of: int | None = None) -> list[bytes | None]:
    """All that a consumer may see of partition 0."""
    with at(cluster, cluster.leader_of(topic.name) if of is None else of) as client:
        return [record.value for record in client.read_all(topic)]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def alter(cluster: LaidOut, kind: int, name: str, **configs: str) -> None:
    entries = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    whom = int(name) if kind == BROKER_RESOURCE else None
    answer = cluster.ask(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, of=whom)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def alter_and_wait(cluster: LaidOut, kind: int, name: str, *, of: int, **configs: str) -> None:
    """The same, until node `of` has heard of it."""
    alter(cluster, kind, name, **configs)
    wanted = {key.replace("_", "."): value for key, value in configs.items()}
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(wanted))

    def heard() -> bool | None:
        (told,) = cluster.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, of=of).results
        return {each.name: each.value for each in told.configs} == wanted or None

    eventually(heard, f"{wanted} on node {of}")


def metric(cluster: LaidOut, node_id: int, name: str, **labels: str) -> float:
    """A node's figure, 0 if it has none yet."""
    host, port = cluster.nodes[node_id].address
    with urlopen(f"http://{host}:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found is not None and wanted <= set((found[1] or "").split(",")):
            return float(found[2])
    return 0.0


def connections(pid: int, port: int) -> int:
    """How many connections a process holds to a port of this machine."""
    sockets: set[str] = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[3] == "01" and int(columns[2].partition(":")[2], 16) == port:
            sockets.add(f"socket:[{columns[9]}]")
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return sum(link in sockets for link in links)


def reader(bootstrap: str, topic: str, **settings: str) -> Consumer:
    """librdkafka, at the beginning of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "topic.metadata.refresh.interval.ms": 1000,
            "enable.metrics.push": False,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def poll_values(consumer: Consumer, count: int, seconds: float = PATIENCE_S) -> list[bytes]:
    """The next `count` values, or as many as came in time."""
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


class SlowLink:
    """A port that leads to another, and takes its time: every byte arrives so much later, in both directions."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.target: int | None = None
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._ended = asyncio.Event()

    def __enter__(self) -> SlowLink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._carry, sock=self._listening)
        await self._ended.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await source.read(1 << 18):
            loop.call_later(self.delay_s, sink.write, chunk)
        loop.call_later(self.delay_s, sink.close)
