"""A small Kafka client on a simulated network: connections, metadata, and one request at a time to the right node.

It hides nothing: whether a request may have reached the server is told to whoever asked (`Lost.sent`). Everything runs
on the simulation's own loop, from a host of its own, so that a client can be cut off like any node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from random import Random
from struct import Struct
from typing import NamedTuple, TypeVar

from ottla.errors import Malformed
from ottla.model import TopicPartition, Uuid
from ottla.runtime.seams import Connection
from ottla.sim.loop import Scheduler
from ottla.sim.network import Fabric, SimNetwork
from ottla.wire.apis import APIS
from ottla.wire.frames import read_response_header, request_frame
from ottla.wire.message import Message
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

M = TypeVar("M", bound=Message)

_LENGTH = Struct(">i").unpack_from
_BUFFER_BYTES = 64 * 1024


class Lost(Exception):
    """No answer."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent
        """May the server have acted on it?"""


class Wire:
    """One connection, opened when first used. Answers come in the order of the requests."""

    def __init__(self, network: SimNetwork, loop: asyncio.AbstractEventLoop, address: tuple[str, int], name: str):
        self._network = network
        self._loop = loop
        self._address = address
        self._name = name
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._ids = count(1)

    @property
    def host(self) -> str:
        return self._address[0]

    # The network's side.

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        received = self._received
        received += self._buffer[:size]
        while len(received) >= 4:
            end = 4 + _LENGTH(received)[0]
            if len(received) < end:
                return
            frame = bytes(received[4:end])
            del received[:end]
            answered = self._waiting.pop(_LENGTH(frame)[0], None)
            if answered is not None and not answered.done():
                answered.set_result(frame)

    def write_blocked(self) -> None: ...

    def write_resumed(self) -> None: ...

    def connection_lost(self) -> None:
        self._connection = None
        self._received.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Lost("the connection broke", sent=True))

    # The client's side.

    async def call(self, request: Message, response: type[M], *, timeout_s: float, version: int | None = None) -> M:
        """In the newest version, if none is asked for."""
        assert request.API_KEY is not None
        api = APIS[request.API_KEY]
        if version is None:
            version = api.last_version
        loop = self._loop
        if self._connection is None:
            await self._open(timeout_s)
        connection = self._connection
        if connection is None:
            raise Lost("the connection broke", sent=False)
        correlation_id = next(self._ids)
        frame = request_frame(request.API_KEY, version, correlation_id, self._name, request.encode(version))
        future: asyncio.Future[bytes] = loop.create_future()
        self._waiting[correlation_id] = future
        timer = loop.call_later(timeout_s, self._expire, future)
        connection.write(frame)
        try:
            answer = await future
        except Lost:
            # Replies come in order: a connection that owes us one is of no use to the next request.
            self.close()
            raise
        finally:
            timer.cancel()
        flexible = api.response_header_version(version) == 1
        return response.read(answer, read_response_header(answer, flexible).body_position, version)[0]

    def _expire(self, future: asyncio.Future[bytes]) -> None:
        if not future.done():
            future.set_exception(Lost("no answer in time", sent=True))

    async def _open(self, timeout_s: float) -> None:
        opening = self._opening
        if opening is None:
            opening = self._opening = self._loop.create_task(self._connect())
        done, _ = await asyncio.wait([opening], timeout=timeout_s)
        if self._opening is opening:
            self._opening = None
        if not done:
            # The next attempt is a new one: who waits for packets that are lost waits longer and longer.
            opening.cancel()
            raise Lost("cannot connect", sent=False)

    async def _connect(self) -> None:
        with suppress(OSError):
            await self._network.connect(*self._address, self)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()


class Leader(NamedTuple):
    node: int
    epoch: int
    topic_id: Uuid


class SimClient:
    """A host with a Kafka client on it: metadata, and a connection to each broker."""

    def __init__(
        self, name: str, scheduler: Scheduler, fabric: Fabric, bootstrap: list[tuple[str, int]], random: Random
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.loop = scheduler.world
        self.random = random
        self._network = SimNetwork(fabric, name, self.loop)
        self._bootstrap = bootstrap
        self._addresses: dict[int, tuple[str, int]] = {}
        self._wires: dict[tuple[tuple[str, int], str], Wire] = {}
        self.leaders: dict[TopicPartition, Leader] = {}
        self._coordinators: dict[tuple[str, int], tuple[str, int]] = {}
        fabric.host(name)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def wire(self, address: tuple[str, int], purpose: str = "") -> Wire:
        """The connection to `address` that is kept for `purpose`: a long poll should not hold others up."""
        found = self._wires.get((address, purpose))
        if found is None:
            found = self._wires[address, purpose] = Wire(self._network, self.loop, address, self.name)
        return found

    def to_node(self, node: int, purpose: str = "") -> Wire | None:
        address = self._addresses.get(node)
        return None if address is None else self.wire(address, purpose)

    async def anywhere(self, request: Message, response: type[M], *, timeout_s: float = 3.0) -> M:
        """Ask any broker; whoever is asked forwards what only the controller can answer."""
        return await self.wire(self.random.choice(self._bootstrap)).call(request, response, timeout_s=timeout_s)

    async def refresh(self, topics: Iterable[str]) -> bool:
        """Ask who leads. Old knowledge is kept where the answer has none; an older epoch never replaces a newer one of
        the same topic."""
        from ottla.wire.messages.metadata_request import MetadataRequestTopic

        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        try:
            response = await self.anywhere(request, MetadataResponse, timeout_s=1.0)
        except (Lost, Malformed):
            return False
        for broker in response.brokers:
            self._addresses[broker.node_id] = (broker.host, broker.port)
        for topic in response.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name or "", partition.partition_index)
                known = self.leaders.get(place)
                if partition.leader_id >= 0 and (
                    known is None or known.topic_id != topic.topic_id or known.epoch <= partition.leader_epoch
                ):
                    self.leaders[place] = Leader(partition.leader_id, partition.leader_epoch, topic.topic_id)
        return True

    async def coordinator(self, key: str, kind: int) -> Wire | None:
        """The connection to the coordinator of a group (`kind` 0) or a transactional id (1), asked for if unknown."""
        known = self._coordinators.get((key, kind))
        if known is None:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            try:
                response = await self.anywhere(request, FindCoordinatorResponse, timeout_s=2.0)
            except (Lost, Malformed):
                return None
            found = response.coordinators[0]
            if found.error_code:
                return None
            known = self._coordinators[key, kind] = (found.host, found.port)
        return self.wire(known, f"{key}/{kind}")

    def forget_coordinator(self, key: str, kind: int) -> None:
        self._coordinators.pop((key, kind), None)

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_later(seconds, _wake, future)
        await future


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def report_failure(task: asyncio.Task[None]) -> None:
    """A task of the simulation's own must not fail unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_coro()!r} failed", "exception": error})
