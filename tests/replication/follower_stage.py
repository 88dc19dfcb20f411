"""A stage for replica fetchers: leaders that answer fetches from real logs in memory, as Kafka's do, over peers that a
test can hold back, cut off, or have say something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar, cast

from ottla.broker.hosted import HostedPartition
from ottla.broker.replication.fetchers import ReplicaFetchers
from ottla.client.peer import PeerLost, Peers
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, LogManager
from ottla.metadata.images import (
    RESOURCE_TOPIC,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    Endpoint,
    MetadataImage,
    PartitionImage,
)
from ottla.metadata.persistent import PersistentMap
from ottla.model import TopicPartition, Uuid
from ottla.records import ValidationRules
from ottla.runtime import DiskError
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import ListOffsetsRequest
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.log.faulty_disk import FaultyDisk
from tests.log.story import append, batch
from tests.seams.surroundings import LoopClock

M = TypeVar("M", bound=Message)

NODE_ID = 7
BROKER_EPOCH = 70
NOW = 1_800_000_000_000


def topic_id(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number + 10]))


class Asked(NamedTuple):
    """One partition of a fetch, as it was when it was sent."""

    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    high_watermark: int


@dataclass
class Request:
    """What the leader received."""

    session_id: int
    session_epoch: int
    partitions: list[Asked]
    forgotten: list[int]
    replica: tuple[int, int]


@dataclass
class Session:
    epoch: int = 1
    partitions: dict[tuple[Uuid, int], Asked] = field(default_factory=dict)
    told: dict[tuple[Uuid, int], tuple[int, int]] = field(default_factory=dict)
    """High watermark and log start that the follower has heard."""


@dataclass
class Led:
    log: Log
    epoch: int = 0


class Leader:
    """One broker that leads: its logs, its fetch sessions, and what it was asked."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.manager = LogManager(FaultyDisk(), ["/data"], random=Random(broker_id))
        self.manager.load(lambda topic: LogConfig(), NOW)
        self.partitions: dict[tuple[Uuid, int], Led] = {}
        self.sessions: dict[int, Session] = {}
        self.requests: list[Request] = []
        self.peers: list[LeaderPeer] = []
        self.overrides: list[Callable[[FetchResponse], FetchResponse]] = []
        """What is said instead of the next answers, one after the other."""
        self.held: asyncio.Event | None = None
        """While it is set to an event, answers wait for that."""
        self.reachable = True
        self.delay_s = 0.0
        """How long an answer takes on its way."""
        self.session_slots = 100
        self.changed = asyncio.Event()
        self._next_session = 1

    def lead(self, index: int, epoch: int = 0, *, topic: int = 0, config: LogConfig | None = None) -> Led:
        log = self.manager.create(TopicPartition(f"topic{topic}", index), topic_id(topic), config or LogConfig(), NOW)
        log.begin_epoch(epoch)
        led = self.partitions[topic_id(topic), index] = Led(log, epoch)
        return led

    def produce(self, index: int, count: int = 1, *, topic: int = 0, size: int = 20, records: int = 1) -> None:
        led = self.partitions[topic_id(topic), index]
        for _ in range(count):
            append(led.log, batch(records, value=b"x" * size), epoch=led.epoch)
        led.log.update_high_watermark(led.log.log_end_offset)
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def fetch(self, peer: LeaderPeer, request: FetchRequest) -> FetchResponse:
        asked = {
            (topic.topic_id, partition.partition): _noted(partition)
            for topic in request.topics
            for partition in topic.partitions
        }
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        self.requests.append(
            Request(
                request.session_id,
                request.session_epoch,
                list(asked.values()),
                [index for _, index in forgotten],
                (request.replica_state.replica_id, request.replica_state.replica_epoch),
            )
        )
        session = None
        number = request.session_id
        if request.session_epoch == 0:
            self.sessions.pop(number, None)
            number = 0
            session = Session(partitions=asked)
            if len(self.sessions) < self.session_slots:
                number, self._next_session = self._next_session, self._next_session + 1
                self.sessions[number] = session
            full = True
        else:
            session = self.sessions.get(number)
            full = False
            if session is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if request.session_epoch != session.epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.epoch += 1
            session.partitions.update(asked)
            for key in forgotten:
                session.partitions.pop(key, None)
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        peer.asked_again = asyncio.Event()
        again = peer.asked_again
        while True:
            answers, worth = self._read(session, request.max_bytes, full=full)
            left = deadline - asyncio.get_running_loop().time()
            if worth or full or left <= 0 or again.is_set() or self.overrides:
                break
            await _first(left, self.changed, again)
        response = FetchResponse(session_id=number, responses=answers)
        for topic in answers:
            for data in topic.partitions:
                session.told[topic.topic_id, data.partition_index] = (data.high_watermark, data.log_start_offset)
        if self.overrides:
            response = self.overrides.pop(0)(response)
        if self.held is not None:
            await self.held.wait()
        return response

    def _read(self, session: Session, max_bytes: int, *, full: bool) -> tuple[list[FetchableTopicResponse], bool]:
        topics: dict[Uuid, FetchableTopicResponse] = {}
        worth = False
        for key, asked in session.partitions.items():
            data = self._read_partition(key, asked, max_bytes)
            size = len(data.records or b"")
            max_bytes -= size
            told = (data.high_watermark, data.log_start_offset)
            news = session.told.get(key) != told
            if full or size or data.error_code or data.diverging_epoch.epoch >= 0 or news:
                topic = topics.setdefault(key[0], FetchableTopicResponse(topic_id=key[0]))
                topic.partitions.append(data)
            worth = worth or bool(size or data.error_code or data.diverging_epoch.epoch >= 0)
        return list(topics.values()), worth

    def _read_partition(self, key: tuple[Uuid, int], asked: Asked, max_bytes: int) -> PartitionData:
        data = PartitionData(partition_index=key[1], records=b"", high_watermark=-1)
        led = self.partitions.get(key)
        if led is None:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return data
        if asked.leader_epoch != led.epoch:
            older = asked.leader_epoch < led.epoch
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return data
        log = led.log
        data.high_watermark, data.log_start_offset = log.high_watermark, log.log_start_offset
        if asked.last_fetched_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < 0 or asked.fetch_offset < log.log_start_offset:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                data.diverging_epoch = EpochEndOffset(epoch, end)
                return data
        try:
            span = log.read(
                asked.fetch_offset, max_bytes=min(asked.max_bytes, max(0, max_bytes)), upper_bound=log.log_end_offset
            )
        except KafkaError as error:
            data.error_code = error.code
            return data
        if span is not None and max_bytes > 0:
            data.records = memoryview(span.file.read(span.position, span.size))
        return data

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == NODE_ID
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                led = self.partitions[topic_id(int(topic.name.removeprefix("topic"))), asked.partition_index]
                offset = led.log.log_end_offset if asked.timestamp == -1 else led.log.log_start_offset
                answers.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)


def _noted(partition: FetchPartition) -> Asked:
    return Asked(
        partition.partition,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.log_start_offset,
        partition.partition_max_bytes,
        partition.high_watermark,
    )


async def _first(within_s: float, *events: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


class LeaderPeer:
    """A connection to a leader: requests are taken up at once, and answered in order."""

    def __init__(self, leader: Leader | None) -> None:
        self.leader = leader
        self.closed = False
        self.asked_again = asyncio.Event()
        self._last: asyncio.Future[None] | None = None
        self._sending: dict[asyncio.Future[Message], None] = {}
        self._cut: dict[asyncio.Future[Message], None] = {}
        if leader is not None:
            leader.peers.append(self)

    async def send(self, request: Message, response: type[M], *, timeout_ms: int, max_version: int = 1000) -> M:
        if self.closed or self.leader is None or not self.leader.reachable:
            raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "nobody is there")
        before, mine = self._last, asyncio.get_running_loop().create_future()
        self._last = mine
        self.asked_again.set()  # The leader ends the wait of an earlier fetch.
        work = asyncio.ensure_future(self._answer(request, before))
        self._sending[work] = None
        try:
            answer = await work
        except asyncio.CancelledError:
            if self.closed or work in self._cut:
                raise PeerLost(ErrorCode.NETWORK_EXCEPTION, "hung up") from None
            raise
        finally:
            self._sending.pop(work, None)
            if not mine.done():
                mine.set_result(None)
        return cast(M, answer)

    async def _answer(self, request: Message, before: asyncio.Future[None] | None) -> Message:
        assert self.leader is not None
        if isinstance(request, FetchRequest):
            answer: Message = await self.leader.fetch(self, request)
        else:
            assert isinstance(request, ListOffsetsRequest)
            answer = self.leader.list_offsets(request)
        if self.leader.delay_s:
            await asyncio.sleep(self.leader.delay_s)
        if before is not None:
            await before
        return answer

    def cut(self) -> None:
        """The connection breaks; whoever sends next opens another."""
        for work in list(self._sending):
            self._cut[work] = None
            work.cancel()

    def close(self) -> None:
        self.closed = True
        for work in list(self._sending):
            work.cancel()


class Replicas:
    """What a follower needs of the replica manager."""

    def __init__(self) -> None:
        self.advanced: list[HostedPartition] = []
        self.failed: dict[HostedPartition, BaseException] = {}
        self.flushes = 0
        self.flush_gate: asyncio.Event | None = None
        self._tasks: dict[asyncio.Future[None], None] = {}

    def flush(self, partition: HostedPartition) -> None:
        if partition.flushing or partition.log.offline:
            return
        partition.flushing = True
        flush = partition.log.prepare_flush()

        async def work() -> None:
            if self.flush_gate is not None:
                await self.flush_gate.wait()
            flush.run()
            self.flushes += 1
            partition.flushing = False
            partition.log.on_flushed(flush, NOW)
            partition.gated = False
            partition.durable_offset = offset = partition.log.log_end_offset
            while partition.durable_waiters and partition.durable_waiters[0][0] <= offset:
                required, waiter = partition.durable_waiters.popleft()
                waiter.on_safe(partition, required)

        task = asyncio.ensure_future(work())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def fail(self, partition: HostedPartition, error: BaseException) -> None:
        assert isinstance(error, DiskError)
        self.failed[partition] = error

    def on_follower_advanced(self, partition: HostedPartition) -> None:
        self.advanced.append(partition)


@dataclass
class Control:
    broker_epoch: int


class Stage:
    """A node that follows, and the leaders around it."""

    def __init__(
        self,
        *,
        leaders: Sequence[int] = (1,),
        node_id: int = NODE_ID,
        broker_epoch: int = BROKER_EPOCH,
        clock: LoopClock | None = None,
        peers: Peers | None = None,
        **config: str,
    ) -> None:
        properties = {
            "process.roles": "broker",
            "node.id": str(node_id),
            "listeners": "PLAINTEXT://memory:9092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "memory:9093",
            "log.dirs": "/data",
        }
        self.dynamic: dict[str, str] = {}
        self.static = NodeConfig(properties | {name.replace("_", "."): value for name, value in config.items()})
        self.config = self.static
        self.clock = clock or LoopClock(NOW)
        self.timers = TimerWheel(self.clock)
        self.replicas = Replicas()
        self.control = Control(broker_epoch)
        self.node_id = node_id
        self.leaders = {broker_id: Leader(broker_id) for broker_id in leaders}
        self.image = MetadataImage(cluster=ClusterImage(brokers={id: _registered(id) for id in self.leaders}))
        self.disk = FaultyDisk()
        self.manager = LogManager(self.disk, ["/data"], random=Random(NODE_ID))
        self.manager.load(lambda topic: LogConfig(), NOW)
        self.bugs: list[BaseException] = []
        self.fetchers = ReplicaFetchers(self, peers or self)

    @property
    def leader(self) -> Leader:
        return self.leaders[1]

    def at(self, host: str, port: int) -> LeaderPeer:
        return LeaderPeer(self.leaders.get(port - 9000))

    def on_bug(self, error: BaseException) -> None:
        self.bugs.append(error)

    def host(self, index: int, *, topic: int = 0, config: LogConfig | None = None) -> HostedPartition:
        return self.host_named(f"topic{topic}", topic_id(topic), index, config)

    def host_named(self, name: str, uid: Uuid, index: int, config: LogConfig | None = None) -> HostedPartition:
        log = self.manager.create(TopicPartition(name, index), uid, config or LogConfig(), NOW)
        image = PartitionImage((1, self.node_id), (1, self.node_id), 1, 0, 0, (topic_id(90), topic_id(91)))
        return HostedPartition(name, uid, index, log, ValidationRules(), image)

    def configure(self, **values: str) -> None:
        self.dynamic |= {name.replace("_", "."): value for name, value in values.items()}
        self.config = self.static.with_dynamic(self.dynamic, {})
        self.fetchers.on_metadata(self.image)

    def throttle_topic(self, listed: str, topic: int = 0) -> None:
        resource = ConfigResource(RESOURCE_TOPIC, f"topic{topic}")
        configs: PersistentMap[ConfigResource, dict[str, str]] = PersistentMap()
        if listed:
            configs = configs.updated({resource: {"follower.replication.throttled.replicas": listed}})
        self.image = MetadataImage(cluster=self.image.cluster, configs=configs)
        self.fetchers.on_metadata(self.image)

    async def until(self, holds: Callable[[], bool], within_s: float = 60) -> None:
        deadline = asyncio.get_running_loop().time() + within_s
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, "it did not come about in time"
            assert not self.bugs
            await asyncio.sleep(0.001)

    async def caught_up(self, partition: HostedPartition, leader: Leader | None = None, within_s: float = 60) -> None:
        """Until the copy is all that the leader has, and as committed."""
        source = (leader or self.leader).partitions[partition.topic_id, partition.index].log
        await self.until(
            lambda: (
                partition.log.log_end_offset == source.log_end_offset
                and partition.log.high_watermark == source.high_watermark
            ),
            within_s,
        )

    async def stop(self) -> None:
        await self.fetchers.stop()
        self.timers.close()


def _registered(broker_id: int) -> BrokerRegistration:
    endpoint = Endpoint(name="PLAINTEXT", host="memory", port=9000 + broker_id, security_protocol=0)
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=broker_id,
        incarnation_id=topic_id(50 + broker_id),
        endpoints=(endpoint,),
        features={},
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(topic_id(60),),
    )
