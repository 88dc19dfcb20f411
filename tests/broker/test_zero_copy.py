"""The bytes of a fetch go from the page cache to the socket: Python sees none of them."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path

import pytest

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.node import NodeConfig
from ottla.records import BatchBuilder
from ottla.runtime.system import system_runtime
from ottla.wire.frames import request_frame
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData


class Exchange:
    """One connection to the node, in the same loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Message, version: int) -> bytes:
        assert request.API_KEY is not None
        self._writer.write(request_frame(request.API_KEY, version, 1, None, request.encode(version)))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)


async def test_a_fetch_is_sent_by_sendfile_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "log.dirs": str(tmp_path),
            "message.max.bytes": "4000000",
        }
    )
    runtime = system_runtime()
    format_node(runtime.disk, config, FormatOptions(standalone=True), random=runtime.random, now_ms=0)
    node = Node(config, runtime)
    await node.start()
    reader, writer = await asyncio.open_connection(*node.client_addresses[0])
    exchange = Exchange(reader, writer)
    try:
        await exchange.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        builder = BatchBuilder()
        for _ in range(1000):
            builder.append(runtime.clock.wall_ms(), None, os.urandom(1000))
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        for _ in range(4):
            request = ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
            )
            await exchange.ask(request, 9)

        sent: list[int] = []
        read: list[int] = []
        real_sendfile, real_pread, real_preadv = os.sendfile, os.pread, os.preadv

        def sendfile(out: int, source: int, position: int, size: int) -> int:
            sent.append(real_sendfile(out, source, position, size))
            return sent[-1]

        def pread(fd: int, size: int, position: int) -> bytes:
            found = real_pread(fd, size, position)
            read.append(len(found))
            return found

        def preadv(fd: int, buffers: tuple[bytearray], position: int, flags: int = 0) -> int:
            read.append(real_preadv(fd, buffers, position, flags))
            return read[-1]

        monkeypatch.setattr(os, "sendfile", sendfile)
        monkeypatch.setattr(os, "pread", pread)
        monkeypatch.setattr(os, "preadv", preadv)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
        answer = await exchange.ask(
            FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=10_000_000,
                topics=[FetchTopic(topic="t", partitions=[partition])],
            ),
            11,
        )
    finally:
        monkeypatch.undo()
        writer.close()
        await writer.wait_closed()
        await node.stop()
        runtime.offload.close()
    assert len(answer) > 4_000_000
    assert sum(sent) >= 4_000_000
    assert sum(read) < 1000  # Probes of the page cache, a byte each, and nothing else.
