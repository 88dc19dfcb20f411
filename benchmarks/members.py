"""Members of groups that cost next to nothing themselves: they speak the protocol, and consume no record.

A hundred of them share one event loop. Classic ones join, the first of them assigns, all sync; those of the new
protocol (KIP-848) send heartbeats and own what they are told, at once. `stable` says how long a group took.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Coroutine
from typing import TypeVar
from uuid import uuid4

from ottla.wire.apis import APIS
from ottla.wire.frames import read_response_header, request_frame
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

from .load import LoadFailed

R = TypeVar("R", bound=Message)

_MEMBER_ID_REQUIRED, _REBALANCE_IN_PROGRESS = 79, 27
_HEARTBEAT_EVERY_S = 0.02
_STABLE_WITHIN_S = 60
_HEAD = struct.Struct(">ii").unpack_from


class Peer(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._awaited: asyncio.Future[bytes] | None = None

    async def call(self, request: Message, response: type[R], version: int) -> R:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert request.API_KEY is not None
        self._correlation_id += 1
        self._awaited = loop.create_future()
        frame = request_frame(request.API_KEY, version, self._correlation_id, "member", request.encode(version))
        self._transport.write(frame)
        body = await self._awaited
        flexible = APIS[request.API_KEY].response_header_version(version) == 1
        return response.read(body, read_response_header(body, flexible).body_position, version)[0]

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 8:
            size, correlation_id = _HEAD(received)
            if len(received) < 4 + size:
                return
            frame = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            # What a member asked that was cancelled is answered all the same.
            awaited = self._awaited
            if correlation_id == self._correlation_id and awaited is not None and not awaited.done():
                awaited.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(LoadFailed(f"a member's connection was lost: {error}"))

    def close(self) -> None:
        if self._transport is not None:
            self._awaited = None
            self._transport.close()


async def _until(stable: asyncio.Event, members: list[Coroutine[object, object, None]]) -> float:
    """Seconds until the group is stable; then the members end."""
    began = time.monotonic()
    tasks = [asyncio.ensure_future(member) for member in members]
    told = asyncio.ensure_future(stable.wait())
    try:
        ended, _ = await asyncio.wait([told, *tasks], timeout=_STABLE_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        took = time.monotonic() - began
        for task in ended:
            task.result()
        if not stable.is_set():
            raise LoadFailed(f"the group is not stable after {_STABLE_WITHIN_S} s")
        return took
    finally:
        for task in (told, *tasks):
            task.cancel()
        await asyncio.gather(told, *tasks, return_exceptions=True)


class ClassicMembers:
    """A classic group: `stable` makes everybody join, and returns when all of one generation have their partitions."""

    def __init__(self, port: int, group: str, topic: str, count: int, partitions: int) -> None:
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._peers = [Peer(port) for _ in range(count)]
        self._ids = [""] * count
        self._round = 0

    async def stable(self) -> float:
        self._round += 1
        self._generations = [-1] * len(self._peers)
        self._owned = [0] * len(self._peers)
        self._stable = asyncio.Event()
        return await _until(self._stable, [self._member(place) for place in range(len(self._peers))])

    async def _member(self, place: int) -> None:
        """Join, and join again whenever a heartbeat says that the others do."""
        while True:
            await self._join(place)
            error = 0
            while not error:
                await asyncio.sleep(_HEARTBEAT_EVERY_S / 4)
                heartbeat = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generations[place], member_id=self._ids[place]
                )
                error = (await self._peers[place].call(heartbeat, HeartbeatResponse, 4)).error_code
            if error != _REBALANCE_IN_PROGRESS:
                raise LoadFailed(f"a heartbeat was answered with error {error}")

    def _is_stable(self) -> bool:
        return min(self._generations) == max(self._generations) > 0 and sum(self._owned) == self._partitions

    async def _join(self, place: int) -> None:
        peer = self._peers[place]
        # Another round of metadata, so that a member that is known already makes the group rebalance.
        subscription = ConsumerProtocolSubscription(topics=[self._topic], user_data=b"%d" % self._round)
        metadata = struct.pack(">h", 1) + subscription.encode(1)
        while True:
            joined = await peer.call(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=60_000,
                    member_id=self._ids[place],
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
                ),
                JoinGroupResponse,
                9,
            )
            self._ids[place] = joined.member_id or self._ids[place]
            if joined.error_code == _MEMBER_ID_REQUIRED:
                continue
            if joined.error_code:
                raise LoadFailed(f"JoinGroup was answered with error {joined.error_code}")
            synced = await peer.call(self._sync(joined), SyncGroupResponse, 5)
            if synced.error_code == _REBALANCE_IN_PROGRESS:
                continue
            if synced.error_code:
                raise LoadFailed(f"SyncGroup was answered with error {synced.error_code}")
            self._generations[place] = joined.generation_id
            assigned = ConsumerProtocolAssignment.decode(synced.assignment[2:], 1).assigned_partitions
            self._owned[place] = sum(len(each.partitions) for each in assigned)
            if self._is_stable():
                self._stable.set()
            return

    def _sync(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        ids = [member.member_id for member in joined.members]
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=struct.pack(">h", 1)
                    + ConsumerProtocolAssignment(
                        assigned_partitions=[
                            TopicPartition(self._topic, list(range(place, self._partitions, len(ids))))
                        ]
                    ).encode(1),
                )
                for place, member_id in enumerate(ids)
            ],
        )

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class ConsumerMembers:
    """A group of the new protocol: `stable` returns when all partitions are owned and nobody has to give one up."""

    def __init__(self, port: int, group: str, topic: str, count: int, partitions: int) -> None:
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._peers = [Peer(port) for _ in range(count)]

    async def stable(self) -> float:
        """From the first heartbeat of all members at once."""
        self._epochs = [0] * len(self._peers)
        self._owned = [0] * len(self._peers)
        self._stable = asyncio.Event()
        return await _until(self._stable, [self._member(place) for place in range(len(self._peers))])

    def _is_stable(self) -> bool:
        return min(self._epochs) == max(self._epochs) > 0 and sum(self._owned) == self._partitions

    async def _member(self, place: int) -> None:
        peer = self._peers[place]
        member_id = str(uuid4())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self._topic],
            topic_partitions=[],
        )
        while True:
            answer = await peer.call(request, ConsumerGroupHeartbeatResponse, 1)
            if answer.error_code:
                raise LoadFailed(f"a heartbeat was answered with error {answer.error_code}: {answer.error_message}")
            self._epochs[place] = answer.member_epoch
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group, member_id=member_id, member_epoch=answer.member_epoch
            )
            if answer.assignment is not None:
                told = answer.assignment.topic_partitions
                self._owned[place] = sum(len(each.partitions) for each in told)
                request.topic_partitions = [TopicPartitions(each.topic_id, each.partitions) for each in told]
            if self._is_stable():
                self._stable.set()
            if answer.assignment is None:
                await asyncio.sleep(_HEARTBEAT_EVERY_S)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
