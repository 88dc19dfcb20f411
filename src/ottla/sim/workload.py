"""Clients at work: producers that insist, consumers that follow, and one last look when all is healed.

A lane is one producer on one partition, one batch at a time, so that its answers have an order. Idempotent lanes send
again until they know; the others do so only if they are told that duplicates do not matter to them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from ottla.errors import ErrorCode, Malformed
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, BatchHeader, batches, crc_is_valid, iterate
from ottla.sim.client import Lost, SimClient
from ottla.sim.group_clients import GroupMember
from ottla.sim.history import EndOffset, History, Identity, Outcome, OutOfRange, Poll, Read, Send
from ottla.sim.transaction_clients import Transactor
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse

LATEST, EARLIEST = -1, -2

_NOT_APPENDED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Refusals that come before anything is appended."""

_RETRIABLE = _NOT_APPENDED | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

_NEW_PRODUCER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""What an idempotent producer may hear when something it was unsure of has come, or gone."""

_FETCH_RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOptions:
    acks: int
    idempotent: bool
    retry_uncertain: bool
    """Send again what may have been appended, at the risk of a duplicate?"""
    request_timeout_s: float = 2.0
    delivery_timeout_s: float = 10.0
    resend_old: float = 0.0
    """How often an idempotent producer sends its last batch but one again, after its successor."""


class Lane:
    """One producer on one partition."""

    def __init__(
        self, client: SimClient, number: int, place: TopicPartition, options: LaneOptions, history: History
    ) -> None:
        self._client = client
        self.name = f"{client.name}/{number}"
        self.place = place
        self._options = options
        self._history = history
        self._count = 0
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._last: tuple[bytes, Send] | None = None
        self.busy = False

    async def send(self, size: int) -> None:
        """One batch of `size` values, to whatever end it comes."""
        client, options = self._client, self._options
        self.busy = True
        values = tuple(b"%s:%d" % (self.name.encode(), self._count + at) for at in range(size))
        self._count += size
        send = Send(
            client=self.name,
            place=self.place,
            values=values,
            acks=options.acks,
            idempotent=options.idempotent,
            invoked=client.now,
        )
        self._history.sends.append(send)
        try:
            await self._deliver(send, client.now + options.delivery_timeout_s)
        finally:
            send.completed = client.now
            self.busy = False

    async def _deliver(self, send: Send, deadline: float) -> None:
        client, options = self._client, self._options
        if options.idempotent and self._producer_id < 0 and not await self._init_producer(deadline):
            send.outcome = Outcome.FAILED
            return
        batch = self._batch(send.values)
        pause_s = 0.02
        while True:
            code = await self._attempt(batch, send)
            if code == 0:
                send.outcome = Outcome.OK
                if options.idempotent:
                    self._sequence += len(send.values)
                    await self._maybe_resend_old(batch, send)
                return
            if code is not None and code != _NOTHING_SENT and code not in _RETRIABLE:
                send.error = code
                self._give_up(send)
                if not (options.idempotent and code in _NEW_PRODUCER):
                    self._history.unexpected.append(f"produce to {self.place} was refused with {ErrorCode(code).name}")
                return
            if code != _NOTHING_SENT and (code is None or code not in _NOT_APPENDED):
                send.uncertain_attempts += 1
                if not options.idempotent and not options.retry_uncertain:
                    self._give_up(send)
                    return
            if client.now >= deadline:
                send.error = code or 0
                self._give_up(send)
                return
            await client.sleep(pause_s * (0.5 + client.random.random()))
            pause_s = min(pause_s * 2, 0.5)
            await client.refresh([self.place.topic])

    def _give_up(self, send: Send) -> None:
        send.outcome = Outcome.INFO if send.uncertain_attempts else Outcome.FAILED
        # Whether the sequence was used is not known: a new producer begins.
        self._producer_id = -1

    async def _attempt(self, batch: bytes, send: Send | None) -> int | None:
        """The error code, 0 with the offset noted, `_NOTHING_SENT`, or None where no answer came."""
        client = self._client
        leader = client.leaders.get(self.place)
        wire = None if leader is None else client.to_node(leader.node, self.name)
        if leader is None or wire is None:
            return _NOTHING_SENT
        options = self._options
        request = ProduceRequest(
            acks=options.acks,
            timeout_ms=int(options.request_timeout_s * 800),
            topic_data=[
                TopicProduceData(
                    topic_id=leader.topic_id,
                    partition_data=[PartitionProduceData(index=self.place.partition, records=batch)],
                )
            ],
        )
        try:
            response = await wire.call(request, ProduceResponse, timeout_s=options.request_timeout_s)
        except Lost as lost:
            return None if lost.sent else _NOTHING_SENT
        answer = response.responses[0].partition_responses[0]
        if not answer.error_code and send is not None:
            send.offset = answer.base_offset
        return answer.error_code

    async def _maybe_resend_old(self, batch: bytes, send: Send) -> None:
        """Misbehave: the batch before this one again, though its successor was acknowledged."""
        last, self._last = self._last, (batch, send)
        if last is None or self._client.random.random() >= self._options.resend_old:
            return
        echo = Send(client=self.name, place=self.place, values=(), acks=-1, idempotent=True, invoked=self._client.now)
        code = await self._attempt(last[0], echo)
        self._history.resent += code == 0
        if code == 0 and echo.offset != last[1].offset:
            self._history.unexpected.append(
                f"{self.name} sent {last[1].values[0]!r} to {self.place} again: it was at {last[1].offset}, and the "
                f"answer said {echo.offset}"
            )

    async def _init_producer(self, deadline: float) -> bool:
        client = self._client
        self._last = None
        while client.now < deadline:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            try:
                response = await client.anywhere(request, InitProducerIdResponse)
            except (Lost, Malformed):
                await client.sleep(0.1)
                continue
            if not response.error_code:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self._sequence = 0
                self._history.identities.append(
                    Identity(f"{self.name}#{client.now}", response.producer_id, 0, client.now, client.now)
                )
                return True
            await client.sleep(0.1)
        return False

    def _batch(self, values: tuple[bytes, ...]) -> bytes:
        if self._options.idempotent:
            builder = BatchBuilder(
                producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=self._sequence
            )
        else:
            builder = BatchBuilder()
        now_ms = self._client.loop.clock.wall_ms()
        for value in values:
            builder.append(now_ms, None, value)
        return bytes(builder.build())


_NOTHING_SENT = -1000


class Consumer:
    """Assigned to partitions, reads each from where it got to, for ever."""

    def __init__(
        self, client: SimClient, places: list[TopicPartition], history: History, *, read_committed: bool, rack: str = ""
    ) -> None:
        self._client = client
        self.name = client.name
        self._places = places
        self._history = history
        self._read_committed = read_committed
        self._rack = rack
        self.positions = dict.fromkeys(places, 0)
        self._preferred: dict[TopicPartition, int] = {}

    async def run(self, until: float) -> None:
        client = self._client
        while client.now < until:
            by_node: dict[int, list[TopicPartition]] = {}
            for place in self._places:
                leader = client.leaders.get(place)
                if leader is not None:
                    by_node.setdefault(self._preferred.get(place, leader.node), []).append(place)
            if len(by_node) == 0 or client.random.random() < 0.02:
                await client.refresh(sorted({place.topic for place in self._places}))
            ok = False
            for node, places in by_node.items():
                ok = await self.poll(node, places) or ok
            if not ok:
                await client.sleep(0.1 * (0.5 + client.random.random()))
                await client.refresh(sorted({place.topic for place in self._places}))

    async def poll(self, node: int, places: list[TopicPartition], max_wait_ms: int = 500) -> bool:
        """One fetch. Was there anything wrong?"""
        client = self._client
        wire = client.to_node(node, "fetch")
        if wire is None:
            return False
        topics: dict[bytes, FetchTopic] = {}
        by_id: dict[tuple[bytes, int], TopicPartition] = {}
        for place in places:
            leader = client.leaders[place]
            topic = topics.get(leader.topic_id)
            if topic is None:
                topic = topics[leader.topic_id] = FetchTopic(topic_id=leader.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=place.partition,
                    current_leader_epoch=leader.epoch,
                    fetch_offset=self.positions[place],
                    partition_max_bytes=1 << 16,
                )
            )
            by_id[leader.topic_id, place.partition] = place
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 18,
            isolation_level=1 if self._read_committed else 0,
            topics=list(topics.values()),
            rack_id=self._rack,
        )
        invoked = client.now
        try:
            response = await wire.call(request, FetchResponse, timeout_s=2.0)
        except Lost:
            for place in places:
                self._preferred.pop(place, None)
            return False
        ok = not response.error_code
        for topic_data in response.responses:
            for data in topic_data.partitions:
                ok = self._take(by_id[topic_data.topic_id, data.partition_index], data, node, invoked) and ok
        return ok

    def _take(self, place: TopicPartition, data: PartitionData, node: int, invoked: float) -> bool:
        client, position = self._client, self.positions[place]
        code = data.error_code
        if code:
            self._preferred.pop(place, None)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._history.out_of_range.append(
                    OutOfRange(client=self.name, place=place, position=position, at=client.now, node=node)
                )
                client.loop.create_task(self._reset(place)).add_done_callback(report_failure)
            elif code not in _FETCH_RETRIABLE:
                self._history.unexpected.append(f"fetch of {place} was refused with {ErrorCode(code).name}")
            return False
        if data.preferred_read_replica >= 0:
            self._preferred[place] = data.preferred_read_replica
            return True
        self._history.follower_polls += place in self._preferred
        reads: list[Read] = []
        aborted = _Aborted(data) if self._read_committed else None
        for header, batch in batches(memoryview(data.records or b"")):
            if not crc_is_valid(batch, 0, len(batch)):
                self._history.corrupt += 1
                return False  # As every client does: nothing of it is believed, and it is asked for again.
            if not (aborted is not None and aborted.has(header)) and not header.is_control:
                for record in iterate(batch):
                    if record.offset >= position:
                        reads.append(Read(record.offset, record.value or b"", header.leader_epoch))
            position = max(position, header.next_offset)
        self._history.polls.append(
            Poll(
                client=self.name,
                place=place,
                position=self.positions[place],
                invoked=invoked,
                completed=client.now,
                node=node,
                high_watermark=data.high_watermark,
                reads=reads,
                log_start=data.log_start_offset,
                read_committed=self._read_committed,
                next=position,
                aborted=tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ()),
            )
        )
        self.positions[place] = position
        return True

    async def _reset(self, place: TopicPartition) -> None:
        """The records before the log's start are gone, by retention or by request; then we go on there."""
        found = await list_offset(self._client, place, EARLIEST)
        if found is not None and found[0] > self.positions[place]:
            self.positions[place] = found[0]


class _Aborted:
    """Which transactional batches of an answer a reader of committed records passes over, by the list that came with
    them: from the first offset of an aborted transaction up to its marker."""

    def __init__(self, data: PartitionData) -> None:
        listed = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        self._to_come = sorted(listed, reverse=True)
        self._active: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Is the next batch one of them? A marker ends its transaction, and is for no reader at all."""
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._active.add(self._to_come.pop()[1])
        if header.is_control:
            self._active.discard(header.producer_id)
        return header.is_transactional and header.producer_id in self._active


async def list_offset(
    client: SimClient, place: TopicPartition, timestamp: int, *, read_committed: bool = False
) -> tuple[int, int, int] | None:
    """(offset, leader epoch, node), if the leader says."""
    leader = client.leaders.get(place)
    wire = None if leader is None else client.to_node(leader.node)
    if leader is None or wire is None:
        return None
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if read_committed else 0,
        topics=[
            ListOffsetsTopic(
                name=place.topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=place.partition, current_leader_epoch=leader.epoch, timestamp=timestamp
                    )
                ],
            )
        ],
        timeout_ms=1000,
    )
    try:
        response = await wire.call(request, ListOffsetsResponse, timeout_s=1.5)
    except Lost:
        return None
    answer = response.topics[0].partitions[0]
    return None if answer.error_code else (answer.offset, answer.leader_epoch, leader.node)


async def watch_end(client: SimClient, place: TopicPartition, history: History) -> None:
    """Ask how far a partition goes, and note the answer."""
    invoked = client.now
    found = await list_offset(client, place, LATEST)
    if found is None:
        await client.refresh([place.topic])
        return
    history.end_offsets.append(
        EndOffset(
            client=client.name,
            place=place,
            invoked=invoked,
            completed=client.now,
            offset=found[0],
            leader_epoch=found[1],
            node=found[2],
        )
    )


async def read_everything(
    client: SimClient, place: TopicPartition, history: History, deadline: float, *, read_committed: bool = False
) -> bool:
    """Everything from the first record to the last, by a fresh consumer. False if the deadline came first.

    For a reader of committed records the last is there only when all transactions have ended (L10).
    """
    consumer = Consumer(client, [place], History(), read_committed=read_committed)
    await client.refresh([place.topic])
    end: int | None = None
    while client.now < deadline:
        if end is None:
            start, latest = await list_offset(client, place, EARLIEST), await list_offset(client, place, LATEST)
            stable = await list_offset(client, place, LATEST, read_committed=True) if read_committed else latest
            if start is not None and latest is not None and stable is not None and stable[0] >= latest[0]:
                end = latest[0]
                consumer.positions[place] = history.final_start[place] = start[0]
                continue
        elif consumer.positions[place] >= end:
            reads = [read for poll in consumer._history.polls for read in poll.reads]
            (history.final_committed if read_committed else history.final)[place] = reads
            return True
        else:
            leader = client.leaders.get(place)
            if leader is not None and await consumer.poll(leader.node, [place], 100):
                continue
        await client.sleep(0.2)
        await client.refresh([place.topic])
    return False


class Workload:
    """All clients of one simulation."""

    def __init__(
        self,
        *,
        lanes: list[Lane],
        transactors: list[Transactor],
        members: list[GroupMember],
        consumers: list[Consumer],
        watchers: list[tuple[SimClient, TopicPartition]],
        history: History,
        random: Random,
        rate: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`rate` operations a second: batches, mostly, and now and then a question for the end of a partition."""
        self._lanes = lanes
        self._transactors = transactors
        self.members = members
        self._consumers = consumers
        self._watchers = watchers
        self.history = history
        self._random = random
        self._rate = rate
        self._loop = loop
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopped = False
        self.turned_away = 0
        """Operations for which every lane was busy."""

    def start(self, until: float) -> None:
        for consumer in self._consumers:
            self._spawn(consumer.run(until))
        for member in self.members:
            self._spawn(member.run(until))
        self._tick()

    def stop(self) -> None:
        self.stopped = True
        for member in self.members:
            member.stopped = True

    def groups(self) -> dict[str, list[tuple[str, bool, set[TopicPartition]]]]:
        """Who is in each group, whether it has settled, and what it has."""
        found: dict[str, list[tuple[str, bool, set[TopicPartition]]]] = {}
        for member in self.members:
            found.setdefault(member.group_id, []).append((member.member_id, member.settled, set(member.positions)))
        return found

    def _tick(self) -> None:
        if self.stopped:
            return
        random = self._random
        self._loop.call_later(random.expovariate(self._rate), self._tick)
        if self._watchers and random.random() < 0.05:
            client, place = random.choice(self._watchers)
            self._spawn(watch_end(client, place, self.history))
            return
        if self._transactors and random.random() < 0.15:
            free = [transactor for transactor in self._transactors if not transactor.busy]
            if free:
                self._spawn(random.choice(free).transact())
                return
        idle = [lane for lane in self._lanes if not lane.busy]
        if idle:
            self._spawn(random.choice(idle).send(random.choice((1, 1, 1, 2, 5))))
        else:
            self.turned_away += 1

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(report_failure)


def report_failure(task: asyncio.Task[None]) -> None:
    """A task of the simulation's own must not fail unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": f"{task.get_coro()!r} failed", "exception": error})
