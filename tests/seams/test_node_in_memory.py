"""The very same node, with nothing real under it: no file, no socket, no thread."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NoReturn, TypeVar

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.records import BatchBuilder, batches, iterate
from ottla.runtime import Connection, Runtime
from ottla.wire.apis import APIS
from ottla.wire.frames import read_response_header, request_frame
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.log.faulty_disk import FaultyDisk, Survival
from tests.seams.surroundings import LoopClock, MemoryNetwork, memory_runtime

R = TypeVar("R", bound=Message)

CONFIG = NodeConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://memory:9092,CONTROLLER://memory:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "memory:9093",
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    }
)


class Client:
    """Sends requests and waits for their answers."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._view = memoryview(bytearray(1 << 16))
        self._received = bytearray()
        self._arrived = asyncio.Event()
        self.lost = False

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection

    def get_buffer(self) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        self._received += self._view[:size]
        self._arrived.set()

    def write_blocked(self) -> None: ...

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self.lost = True
        self._arrived.set()

    def send(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.write(data)

    def hang_up(self) -> None:
        assert self._connection is not None
        self._connection.abort()

    async def next_frame(self) -> bytes:
        """The next answer, without its length."""
        while len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            if self.lost:
                raise ConnectionResetError
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), 60)
        end = 4 + int.from_bytes(self._received[:4], "big")
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame

    async def ask(self, request: Message, response: type[R], version: int) -> R:
        assert request.API_KEY is not None
        self.send(request_frame(request.API_KEY, version, 7, "test", request.encode(version)))
        frame = await self.next_frame()
        head = read_response_header(frame, APIS[request.API_KEY].response_header_version(version) == 1)
        return response.read(frame, head.body_position, version)[0]


@pytest.fixture
def nothing_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a file or a socket, or starts a thread, fails the test."""

    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError(f"the machine was touched: {arguments}")

    # A module that is imported for the first time is the interpreter's business; but it would be compiled, and written.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for name in ("open", "replace", "unlink", "makedirs", "pwrite", "pread", "sendfile", "statvfs"):
        monkeypatch.setattr(os, name, refuse)


@asynccontextmanager
async def serving(runtime: Runtime, network: MemoryNetwork) -> AsyncIterator[tuple[Node, Client]]:
    node = Node(CONFIG, runtime)
    await node.start()
    client = Client()
    await network.connect("memory", 9092, client)
    yield node, client
    await node.stop()


def batch(*values: bytes, producer_id: int = -1) -> bytes:
    idempotent = producer_id >= 0
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0 if idempotent else -1, base_sequence=0 if idempotent else -1
    )
    for value in values:
        builder.append(1_800_000_000_000, None, value)
    return bytes(builder.build())


def produce(*values: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(*values))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


async def fetch(client: Client) -> list[bytes | None]:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])],
    )
    response = await client.ask(request, FetchResponse, 12)
    records = response.responses[0].partitions[0].records
    assert records is not None
    return [record.value for _, found in batches(memoryview(records)) for record in iterate(found)]


def fresh(disk: FaultyDisk, clock: LoopClock, network: MemoryNetwork) -> Runtime:
    runtime = memory_runtime(disk, clock, network)
    options = FormatOptions(standalone=True, ignore_formatted=True)
    format_node(disk, CONFIG, options, random=runtime.random, now_ms=clock.wall_ms())
    return runtime


async def test_a_node_serves_without_touching_the_machine(nothing_real: None) -> None:
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    async with serving(fresh(disk, clock, network), network) as (_, client):
        created = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
            CreateTopicsResponse,
            7,
        )
        assert created.topics[0].error_code == 0
        answer = await client.ask(produce(b"one", b"two"), ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        assert await fetch(client) == [b"one", b"two"]
    async with serving(memory_runtime(disk, clock, network), network) as (_, client):
        assert await fetch(client) == [b"one", b"two"]


async def test_a_topic_and_flushed_records_outlive_a_power_cut() -> None:
    """The controller answers only when its records are durable; with flush.messages=1 so does the partition."""
    disk, clock, network = FaultyDisk(), LoopClock(), MemoryNetwork()
    node = Node(CONFIG, fresh(disk, clock, network))
    await node.start()
    client = Client()
    await network.connect("memory", 9092, client)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    topic.configs = [CreatableTopicConfig(name="flush.messages", value="1")]
    await client.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
    for number in range(5):
        answer = await client.ask(produce(b"%d" % number), ProduceResponse, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0
    after = disk.after_power_loss(Survival.NOTHING, Random(1))
    await node.stop()
    async with serving(memory_runtime(after, clock, network), network) as (_, client):
        assert await fetch(client) == [b"0", b"1", b"2", b"3", b"4"]
