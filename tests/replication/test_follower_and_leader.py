"""Both halves together: a real node leads, in memory, and real fetchers copy it over its own protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar, cast

from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode
from ottla.metadata.images import ClusterImage, MetadataImage
from ottla.runtime import Connection
from ottla.wire.apis import APIS
from ottla.wire.frames import read_response_header, request_frame
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchRequest
from tests.log.story import all_batches, append, batch
from tests.replication import leader_stage
from tests.replication.follower_stage import Stage as FollowerStage
from tests.replication.follower_stage import _registered
from tests.seams.surroundings import MemoryNetwork

M = TypeVar("M", bound=Message)


class _Call(NamedTuple):
    api_key: int
    version: int
    response: type[Message]
    future: asyncio.Future[Message]


class MemoryPeer:
    """One connection, pipelined: answers come in the order of the requests."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._connection: Connection | None = None
        self._view = memoryview(bytearray(1 << 16))
        self._received = bytearray()
        self._calls: deque[_Call] = deque()
        self.closed = False

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        if self._connection is None:
            await self._network.connect("memory", 9092, self)
        assert self._connection is not None
        assert request.API_KEY is not None
        version = min(request.VERSIONS[-1], max_version)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls.append(_Call(request.API_KEY, version, response, future))
        self._connection.write(request_frame(request.API_KEY, version, 1, "replica", request.encode(version)))
        return cast(M, await future)

    def close(self) -> None:
        self.closed = True
        if self._connection is not None:
            self._connection.abort()

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection

    def get_buffer(self) -> memoryview:
        return self._view

    def buffer_updated(self, size: int) -> None:
        self._received += self._view[:size]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            call = self._calls.popleft()
            head = read_response_header(frame, APIS[call.api_key].response_header_version(call.version) == 1)
            if not call.future.done():
                call.future.set_result(call.response.read(frame, head.body_position, call.version)[0])

    def write_blocked(self) -> None: ...

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self._connection = None
        while self._calls:
            call = self._calls.popleft()
            if not call.future.done():
                call.future.set_exception(PeerLost(ErrorCode.NETWORK_EXCEPTION, "hung up"))


class MemoryPeers:
    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.made: list[MemoryPeer] = []

    def at(self, host: str, port: int) -> MemoryPeer:
        self.made.append(MemoryPeer(self._network))
        return self.made[-1]


class Both(NamedTuple):
    leader: leader_stage.Stage
    follower: FollowerStage
    peers: MemoryPeers


@asynccontextmanager
async def both(**config: str) -> AsyncIterator[Both]:
    async with leader_stage.stage() as leading:
        peers = MemoryPeers(leading._network)
        following = FollowerStage(leaders=(), node_id=2, broker_epoch=902, clock=leading.clock, peers=peers, **config)
        following.image = MetadataImage(cluster=ClusterImage(brokers={1: _registered(1)}))
        try:
            yield Both(leading, following, peers)
            assert not following.bugs
        finally:
            await following.stop()


async def test_acks_all_waits_for_the_follower_and_no_longer() -> None:
    async with both() as (leading, following, _):
        leading.create(isr=(1, 2), replicas=(1, 2))
        partition = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        following.fetchers.follow(partition, 1, 5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(20):
            answer = await leading.produce(b"record %d" % number, acks=-1)
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert loop.time() - began < 2, "twenty round trips, not twenty waits"
        assert leading.partition.log.high_watermark == 20
        await following.until(lambda: partition.log.log_end_offset == 20)
        assert all_batches(partition.log) == all_batches(leading.partition.log)


async def test_a_follower_that_was_away_catches_up_and_joins() -> None:
    async with both() as (leading, following, _):
        leading.create(isr=(1,), replicas=(1, 2))
        for _ in range(10):
            await leading.produce(b"x" * 1000)
        partition = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        following.fetchers.follow(partition, 1, 5)
        await leading.settle(lambda: bool(leading.controller.asked))
        joined = leading.controller.asked[-1].new_isr_with_epochs
        assert [(member.broker_id, member.broker_epoch) for member in joined][-1] == (2, 902)
        await following.until(lambda: partition.log.log_end_offset == 10)


async def test_histories_that_part_meet_again() -> None:
    async with both() as (leading, following, _):
        leading.create(isr=(1,), replicas=(1, 2))
        await leading.produce(b"of epoch 5")
        partition = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        for _ in range(3):
            append(partition.log, batch(1, value=b"of nobody"), epoch=3)
        following.fetchers.follow(partition, 1, 5)
        await following.until(lambda: following.fetchers.truncations > 0)
        await following.until(lambda: all_batches(partition.log) == all_batches(leading.partition.log))
        assert partition.log.epochs.entries == leading.partition.log.epochs.entries


async def test_out_of_range_is_put_right() -> None:
    async with both() as (leading, following, _):
        leading.create(isr=(1,), replicas=(1, 2))
        for _ in range(10):
            await leading.produce(b"x")
        leading.partition.log.advance_log_start(6)
        partition = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        append(partition.log, batch(1), epoch=5)
        following.fetchers.follow(partition, 1, 5)
        await following.until(lambda: partition.log.log_end_offset == 10)
        assert partition.log.log_start_offset == 6


async def test_a_partition_that_comes_while_a_fetch_waits_is_served_at_once() -> None:
    """The leader ends the wait of the earlier request of the session, since answers leave in order."""
    async with both(replica_fetch_wait_max_ms="8000") as (leading, following, peers):
        leading.create(isr=(1, 2), replicas=(1, 2))
        first = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        following.fetchers.follow(first, 1, 5)
        await leading.produce(b"one", acks=-1)
        await asyncio.sleep(0.02)
        # Its flush ends, it is throttled no more, its leader epoch is another: something to say while a request waits.
        leading.change(leader=1)  # Epoch 6.
        following.fetchers.follow(first, 1, 6)
        began = asyncio.get_running_loop().time()
        answer = await leading.produce(b"two", acks=-1)
        assert answer.error_code == 0
        assert asyncio.get_running_loop().time() - began < 1
        await following.until(lambda: first.log.log_end_offset == 2)
        assert len(peers.made) == 1


async def test_a_request_is_small_once_the_session_stands() -> None:
    sizes: list[int] = []
    async with both() as (leading, following, _):
        leading.create(isr=(1, 2), replicas=(1, 2))
        encode = FetchRequest.encode

        def noted(self: FetchRequest, version: int) -> bytes:
            data = encode(self, version)
            sizes.append(len(data))
            return data

        partition = following.host_named(leader_stage.TOPIC, leader_stage.TOPIC_ID, 0)
        FetchRequest.encode = noted  # type: ignore[method-assign, assignment]
        try:
            following.fetchers.follow(partition, 1, 5)
            for _ in range(5):
                await leading.produce(b"x", acks=-1)
        finally:
            FetchRequest.encode = encode  # type: ignore[method-assign]
    assert len(sizes) >= 6
    assert max(sizes) < 150
