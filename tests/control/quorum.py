"""Many control planes in one process, on a clock that jumps: nothing real is touched, and no test waits.

Each node has a disk and a life of its own; requests between them are encoded and decoded as on the wire, and may be cut
off by the test. When nothing is ready the loop's time goes to the next timer, so an election takes no time at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import TypeVar

from ottla.broker.control.control_plane import ControlPlane, metadata_log_config
from ottla.broker.control.format import FormatOptions, format_node
from ottla.client.peer import PeerLost
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log import LogConfig, LogManager
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.raft.checkpoint import SnapshotId
from ottla.runtime import Runtime
from ottla.runtime.timers import TimerWheel
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse, SupportedFeatureKey
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from tests.jumping_loop import JumpingLoop
from tests.log.faulty_disk import FaultyDisk
from tests.seams.surroundings import InlineOffload, LoopClock, MemoryNetwork

M = TypeVar("M", bound=Message)
T = TypeVar("T")

DIRECTORY_IDS = (
    "M7SJc-RSRxG5rpmI1j7tPw",
    "YcgvnpLm5pwNy4a_SNDWNA",
    "DM8IBxWIRqO70jrKkN1E7A",
    "7ZHFoTbzQqq0WlPp3d0pCA",
    "Zr1vY2kQTySx9fP0cQ0q9g",
)

RAFT = (
    "VoteRequest",
    "BeginQuorumEpochRequest",
    "EndQuorumEpochRequest",
    "FetchRequest",
    "FetchSnapshotRequest",
    "AddRaftVoterRequest",
    "RemoveRaftVoterRequest",
    "UpdateRaftVoterRequest",
)


def play(story: Callable[[], Coroutine[object, object, None]], within_s: float = 3_600) -> None:
    """Run `story` on a clock that jumps; `within_s` is of that clock."""
    loop = JumpingLoop()
    try:
        loop.run_until_complete(asyncio.wait_for(story(), within_s))
        left = asyncio.all_tasks(loop)
        assert not left, f"still running: {left}"
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()


class HeldOffload(InlineOffload):
    """Blocking work, done at once, unless the test holds the disk back."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for work in held or ():
            work()

    @property
    def waiting(self) -> int:
        return len(self._held or ())

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def do() -> None:
            try:
                result = work()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        if self._held is None:
            do()
        else:
            self._held.append(do)
        return future


class Cluster:
    """Nodes by id. Controllers listen on port 9300 + id."""

    def __init__(
        self,
        *,
        voters: int = 3,
        brokers: tuple[int, ...] = (),
        joining: tuple[int, ...] = (),
        combined: bool = True,
        static: bool = False,
        segment_bytes: int | None = None,
        **properties: str,
    ) -> None:
        """`brokers` are ids of nodes that are brokers alone, `joining` of controllers that are no voters yet; voters
        are brokers too if they are `combined`, and fixed by configuration if they are `static`."""
        self.voters = range(1, voters + 1)
        self.joining = joining
        self.combined = combined
        self.static = static
        self.segment_bytes = segment_bytes
        self.properties = properties
        self.clock = LoopClock()
        self.running: dict[int, PlaneNode] = {}
        self.disks: dict[int, FaultyDisk] = {}
        self.cut: set[tuple[int, int]] = set()
        """Pairs between which nothing gets through, in that direction."""
        self.sent: list[tuple[int, int, str]] = []
        self.lives = 0
        for node_id in (*self.voters, *brokers, *joining):
            self.format(node_id)

    def config(self, node_id: int) -> NodeConfig:
        controller = node_id in self.voters or node_id in self.joining
        client, control = f"PLAINTEXT://memory:{9200 + node_id}", f"CONTROLLER://memory:{9300 + node_id}"
        roles = "broker" if not controller else "broker,controller" if self.combined else "controller"
        listeners = {"broker": client, "controller": control, "broker,controller": f"{client},{control}"}
        return NodeConfig(
            {
                "process.roles": roles,
                "node.id": str(node_id),
                **self._quorum,
                "listeners": listeners[roles],
                "controller.listener.names": "CONTROLLER",
                "log.dirs": "/data",
                **{key.replace("_", "."): value for key, value in self.properties.items()},
            }
        )

    @property
    def _quorum(self) -> dict[str, str]:
        if self.static:
            return {"controller.quorum.voters": ",".join(f"{voter}@memory:{9300 + voter}" for voter in self.voters)}
        return {"controller.quorum.bootstrap.servers": ",".join(f"memory:{9300 + voter}" for voter in self.voters)}

    def format(self, node_id: int, cluster_id: str = "a-cluster-of-many-nodes") -> None:
        disk = self.disks[node_id] = FaultyDisk()
        voters = ",".join(f"{n}@memory:{9300 + n}:{DIRECTORY_IDS[n - 1]}" for n in self.voters)
        options = FormatOptions(
            cluster_id=cluster_id,
            initial_controllers=voters if node_id in self.voters and not self.static else None,
            no_initial_controllers=node_id in self.joining,
        )
        random = Random(node_id)
        format_node(disk, self.config(node_id), options, random=random, now_ms=self.clock.wall_ms())

    def node(self, node_id: int) -> PlaneNode:
        node = self.running[node_id] = PlaneNode(self, node_id)
        return node

    async def start(self, *node_ids: int) -> list[PlaneNode]:
        """All at once, as people do."""
        nodes = [self.node(node_id) for node_id in node_ids or self.disks]
        await asyncio.gather(*(node.start() for node in nodes))
        return nodes

    def isolate(self, node_id: int) -> None:
        others = [other for other in self.disks if other != node_id]
        self.cut |= {(node_id, other) for other in others} | {(other, node_id) for other in others}

    def heal(self) -> None:
        self.cut.clear()

    @property
    def active(self) -> PlaneNode:
        (found,) = [node for node in self.running.values() if node.plane.is_active_controller]
        return found

    async def new_active(self, *not_these: PlaneNode, within_s: float = 30) -> PlaneNode:
        for _ in range(int(within_s * 20)):
            for node in self.running.values():
                if node not in not_these and node.plane.is_active_controller:
                    return node
            await asyncio.sleep(0.05)
        raise AssertionError("nobody leads")

    async def converge(self, offset: int | None = None, within_s: float = 30) -> None:
        """Until every node has taken in the same metadata."""
        for _ in range(int(within_s * 20)):
            offsets = {node.image.last_offset for node in self.running.values()}
            if len(offsets) == 1 and (offset is None or min(offsets) >= offset):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the nodes are at {offsets}")

    async def stop(self) -> None:
        for node in list(self.running.values()):
            await node.crash()

    # Carrying requests.

    async def carry(self, sender: int, port: int, request: Message, response: type[M], max_version: int) -> M:
        receiver = port - 9300
        assert request.API_KEY is not None
        api = APIS[request.API_KEY]
        version = min(api.last_version, max_version)
        data = request.encode(version)
        await asyncio.sleep(0.001)
        node = self.running.get(receiver)
        if node is None or (sender, receiver) in self.cut:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "refused")
        self.sent.append((sender, receiver, type(request).__name__))
        answer = await node.answer(type(request).decode(data, version), version, response)
        encoded = answer.encode(version)
        await asyncio.sleep(0.001)
        if self.running.get(receiver) is not node or (receiver, sender) in self.cut:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "lost")
        return response.decode(encoded, version)


class _Peer:
    def __init__(self, cluster: Cluster, sender: int, port: int) -> None:
        self._cluster = cluster
        self._sender = sender
        self._port = port
        self._under_way: list[asyncio.Task[Message]] = []

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        work = self._cluster.carry(self._sender, self._port, request, response, max_version)
        task = asyncio.ensure_future(work)
        self._under_way.append(task)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError:
            raise PeerLost(ErrorCode.REQUEST_TIMED_OUT, "no answer") from None
        except asyncio.CancelledError:
            if task.cancelled():
                raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "hung up") from None
            raise
        finally:
            task.cancel()
            self._under_way.remove(task)

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()


class _Peers:
    def __init__(self, cluster: Cluster, sender: int) -> None:
        self._cluster = cluster
        self._sender = sender

    def at(self, host: str, port: int) -> _Peer:
        return _Peer(self._cluster, self._sender, port)


class PlaneNode:
    """One life of one node: its control plane, and what it published."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        cluster.lives += 1
        random = Random(100 * node_id + cluster.lives)
        self.disk = cluster.disks[node_id]
        self.offload = HeldOffload()
        self.config = cluster.config(node_id)
        self.runtime = Runtime(
            clock=cluster.clock,
            disk=self.disk,
            network=MemoryNetwork(),
            random=random,
            offload=self.offload,
        )
        now_ms = cluster.clock.wall_ms()
        self.manager = LogManager(self.disk, ["/data"], random=self.runtime.random)
        self.manager.lock()
        (identity,) = self.manager.read_identities()
        assert identity is not None
        log_config = metadata_log_config(self.config)
        if cluster.segment_bytes is not None:
            log_config = replace(log_config, segment_bytes=cluster.segment_bytes, file_delete_delay_ms=0)
        self.log = self.manager.load_metadata_log("/data", log_config, now_ms)
        self.manager.load(lambda topic: LogConfig(), now_ms)
        self.timers = TimerWheel(cluster.clock)
        endpoints = [Endpoint(e.name, e.host, e.port, 0) for e in self.config.advertised_controller_listeners]
        self.plane = ControlPlane(
            runtime=self.runtime,
            timers=self.timers,
            config=self.config,
            cluster_id=identity.cluster_id,
            log=self.log,
            log_dir_ids=[identity.directory_id],
            metadata_dir_id=identity.directory_id,
            peers=_Peers(cluster, node_id),
            controller_endpoints=endpoints if self.config.is_controller else (),
        )
        self.published: list[tuple[MetadataImage, MetadataDelta, int]] = []
        self.plane.add_publisher(lambda image, delta, offset: self.published.append((image, delta, offset)))

    def __repr__(self) -> str:
        return f"node {self.node_id}"

    @property
    def image(self) -> MetadataImage:
        return self.plane.image

    async def start(self) -> None:
        self.plane.load()
        await self.plane.start()
        await self.plane.join(
            [Endpoint(e.name, e.host, e.port, 0) for e in self.config.advertised_broker_listeners],
            previous_broker_epoch=self.manager.previous_broker_epoch,
        )

    async def stop(self, *, hand_over: bool = True) -> None:
        await self.plane.stop(hand_over=hand_over)
        self.manager.close(self.cluster.clock.wall_ms(), self.plane.broker_epoch)
        self._end()

    async def crash(self) -> None:
        """As kill -9: what was written stays, nothing more is."""
        self.cluster.disks[self.node_id] = self.disk.copy()
        self._end()
        self.offload.release()
        await self.plane.abandon()
        self.log.abandon()

    def _end(self) -> None:
        if self.cluster.running.get(self.node_id) is self:
            del self.cluster.running[self.node_id]
        self.timers.close()

    async def answer(self, request: Message, version: int, response: type[M]) -> M:
        """As the handlers of the controller's listener do."""
        try:
            answer: Message
            if isinstance(request, ApiVersionsRequest):
                answer = ApiVersionsResponse(
                    supported_features=[
                        SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
                        for name, levels in SUPPORTED_FEATURES.items()
                    ]
                )
            elif type(request).__name__ in RAFT:
                answer = await self.plane.raft.request(request, version)
            else:
                answer = await self.plane.submit_request(request)
        except KafkaError as error:
            refused = response()
            if isinstance(refused, CreateTopicsResponse) and isinstance(request, CreateTopicsRequest):
                refused.topics = [CreatableTopicResult(t.name, error_code=error.code) for t in request.topics]
            else:
                setattr(refused, "error_code", error.code)  # noqa: B010 - whichever response it is
            return refused
        assert isinstance(answer, response)
        return answer

    async def snapshot(self) -> SnapshotId:
        return await self.plane._snapshotter.write(self.image, self.cluster.clock.wall_ms())

    async def create(self, *names: str, timeout_ms: int = 30_000) -> list[int]:
        response = await self.plane.channel.send(creation(*names), CreateTopicsResponse, timeout_ms=timeout_ms)
        return [topic.error_code for topic in response.topics]


def creation(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    )


def topics(image: MetadataImage) -> list[str]:
    return sorted(topic.name for topic in image.topics.by_name.values())
