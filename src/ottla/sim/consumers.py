"""Consumers that follow, questions for the ends of partitions, and one last look when all is healed."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.records import BatchHeader, batches, crc_is_valid, iterate
from ottla.sim.client import Lost, SimClient, report_failure
from ottla.sim.history import EndOffset, History, OutOfRange, Poll, Read
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

LATEST, EARLIEST = -1, -2

METADATA_AGE_S = 5.0
"""After which a consumer asks anew who leads, and which replica it should read from."""

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


class Consumer:
    """Assigned to partitions, reads each from where it got to, for ever."""

    def __init__(
        self, client: SimClient, places: list[TopicPartition], history: History, *, read_committed: bool, rack: str = ""
    ) -> None:
        self.client = client
        self.name = client.name
        self._places = places
        self.history = history
        self._read_committed = read_committed
        self._rack = rack
        self.positions = dict.fromkeys(places, 0)
        self._preferred: dict[TopicPartition, int] = {}
        self.stopped = False

    async def run(self) -> None:
        client = self.client
        known_since = client.now
        while not self.stopped:
            if client.now - known_since >= METADATA_AGE_S:
                # Whoever answers may be out of date and not know it: everybody asks now and then (metadata.max.age.ms).
                known_since = client.now
                self._preferred.clear()
                await client.refresh(sorted({place.topic for place in self._places}))
            by_node: dict[int, list[TopicPartition]] = {}
            for place in self._places:
                leader = client.leaders.get(place)
                if leader is not None:
                    by_node.setdefault(self._preferred.get(place, leader.node), []).append(place)
            ok = False
            for node, places in by_node.items():
                ok = await self.poll(node, places) or ok
            if not ok:
                await client.sleep(0.1 * (0.5 + client.random.random()))
                await client.refresh(sorted({place.topic for place in self._places}))

    async def poll(self, node: int, places: list[TopicPartition], max_wait_ms: int = 500) -> bool:
        """One fetch. Was there anything wrong?"""
        client = self.client
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
        client, position = self.client, self.positions[place]
        code = data.error_code
        if code:
            self._preferred.pop(place, None)
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.history.out_of_range.append(
                    OutOfRange(client=self.name, place=place, position=position, at=client.now, node=node)
                )
                client.loop.create_task(self._reset(place)).add_done_callback(report_failure)
            elif code not in _FETCH_RETRIABLE:
                self.history.unexpected.append(f"fetch of {place} was refused with {ErrorCode(code).name}")
            return False
        if data.preferred_read_replica >= 0:
            self._preferred[place] = data.preferred_read_replica
            return True
        self.history.follower_polls += place in self._preferred
        reads: list[Read] = []
        aborted = _Aborted(data) if self._read_committed else None
        for header, batch in batches(memoryview(data.records or b"")):
            if not crc_is_valid(batch, 0, len(batch)):
                self.history.corrupt.append((place, node))
                return False  # As every client does: nothing of it is believed, and it is asked for again.
            if not (aborted is not None and aborted.has(header)) and not header.is_control:
                for record in iterate(batch):
                    if record.offset >= position:
                        reads.append(Read(record.offset, record.value or b"", header.leader_epoch, record.key))
            position = max(position, header.next_offset)
        self.history.polls.append(
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
        found = await list_offset(self.client, place, EARLIEST)
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
            reads = [read for poll in consumer.history.polls for read in poll.reads]
            (history.final_committed if read_committed else history.final)[place] = reads
            return True
        else:
            leader = client.leaders.get(place)
            if leader is not None and await consumer.poll(leader.node, [place], 100):
                continue
        await client.sleep(0.2)
        await client.refresh([place.topic])
    return False
