"""The bytes of a fetch go from the page cache to the socket: Python sees none of them.

Shown twice: by the system calls that a node of its own makes, as the kernel's tracer counts them (strace), and in
process, by what Python itself is asked to do.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
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
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse
from tests.node_process import start_node
from tests.wire_client import WireClient

MIB = 1 << 20
TRACED = "sendfile,read,readv,pread64,preadv,preadv2,mmap,splice,copy_file_range,write,writev,sendto,sendmsg,sendmmsg"
CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+|0x[0-9a-f]+)")
UNFINISHED, RESUMED = " <unfinished ...>", re.compile(r"<\.\.\. \w+ resumed>")


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


def can_trace() -> bool:
    """Is strace installed, and may it trace? Containers often forbid it."""
    return (
        shutil.which("strace") is not None
        and not subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, stderr=subprocess.DEVNULL).returncode
    )


def whole_calls(trace: Path) -> Iterator[str]:
    """Each call in one line; the tracer cuts one in two where a call of another thread comes between."""
    begun: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        call = call.lstrip()
        if call.endswith(UNFINISHED):
            begun[thread] = call.removesuffix(UNFINISHED)
        elif resumed := RESUMED.match(call):
            yield begun.pop(thread, "") + call[resumed.end() :]
        else:
            yield call


class Calls:
    """What a trace says of one segment's file and of the sockets: how many bytes went which way."""

    def __init__(self, trace: Path, segment: str) -> None:
        self.sent_by_sendfile = self.sendfiles = self.read_by_python = self.written_to_sockets = 0
        self.mapped = 0
        for line in whole_calls(trace):
            found = CALL.match(line)
            if found is None:
                continue
            name, arguments, result = found["name"], found["arguments"], int(found["result"], 0)
            if name == "mmap":
                self.mapped += segment in arguments
            elif result <= 0:
                continue
            elif name in ("sendfile", "splice", "copy_file_range"):
                assert name == "sendfile", line
                if segment in arguments:
                    self.sendfiles += 1
                    self.sent_by_sendfile += result
            elif "read" in name:
                self.read_by_python += result if segment in arguments else 0
            elif "<TCP" in arguments or "<socket" in arguments:
                self.written_to_sockets += result


@pytest.mark.skipif(not can_trace(), reason="needs strace, and leave to use it")
def test_by_the_kernel_s_count_64_mib_leave_by_sendfile_and_none_is_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    # As a detached grandchild, so that the process we started, and stop, is the node itself.
    strace = ["strace", "-D", "-f", "-yy", "-s", "0", "-e", f"trace={TRACED}", "-o", str(trace)]
    node = start_node(tmp_path, under=strace)
    try:
        with WireClient(node.address) as client:
            sent = fetched = 0
            client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse, 9)
            builder = BatchBuilder()
            for _ in range(900):
                builder.append(int(time.time() * 1000), None, os.urandom(1000))
            records = bytes(builder.build())
            while sent < 64 * MIB:
                data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
                request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data])
                answer = client.call(request, ProduceResponse, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
                sent += len(records)
            offset = 0
            while fetched < sent:
                partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=16 * MIB)
                topics = [FetchTopic(topic="t", partitions=[partition])]
                client.send(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=16 * MIB, topics=topics), 11)
                size = len(client.receive_frame())
                assert size > len(records)
                batches = size // len(records)
                fetched += batches * len(records)
                offset += batches * 900
    except BaseException:
        node.kill()
        raise
    assert node.stop() == 0
    deadline_s = time.monotonic() + 60
    ended = re.compile(rf"^{node.pid} +\+\+\+ exited", re.MULTILINE)
    while not ended.search(trace.read_text(errors="replace")):
        assert time.monotonic() < deadline_s, "the trace has no end"
        time.sleep(0.05)
    calls = Calls(trace, "/t-0/00000000000000000000.log>")
    assert calls.sent_by_sendfile == sent >= 64 * MIB
    assert calls.sendfiles < 1000
    assert calls.mapped == 0
    assert calls.read_by_python < 1000  # Probes of the page cache, a byte each, and nothing else.
    assert calls.written_to_sockets < 64 * 1024
