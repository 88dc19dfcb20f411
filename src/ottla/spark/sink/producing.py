"""Sends batches to their partitions' leaders and sees to it that each is there once: the sink's producer.

Idempotent, by producer id, epoch and sequence. A request carries at most one batch a partition, several requests are on
their way to a leader at once, and the batches of a partition stay in order: after a failure that passes (a leader that
moved, a connection that broke) all of the partition's batches that are not acknowledged are sent again from the first,
as soon as none of them is on its way any more. The leader drops those that it has.

    waiting → sent → acknowledged
         ↖ failed, when all that was sent is answered

Batches leave while they are still in the processor's cache, and answers are heard as they come; it waits for one only
where too much is on its way. Driven by `staging.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ottla.client.blocking import BlockingClient, Pending
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, Compression
from ottla.records.packing import PackedBatch
from ottla.runtime.blocking import monotonic_s, pause
from ottla.spark.sink.coordination import Coordination
from ottla.spark.sink.two_phase import Claim, Staged
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

IN_FLIGHT_MAX = 4
"""Requests on their way to one leader. A leader remembers five batches of a producer, to know them again."""

REQUEST_BYTES_MIN = 1024 * 1024
"""What is worth a request while more is to come."""

WAITING_BYTES_MAX = 8 * 1024 * 1024
_SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    acks: int = -1
    compression: Compression
    request_bytes_max: int = 8 * 1024 * 1024
    delivery_timeout_ms: int = 120_000


@dataclass(slots=True, eq=False)
class _Batch:
    data: memoryview
    since_s: float
    acknowledged: bool = False


@dataclass(slots=True, eq=False)
class _Lane:
    """The batches of one partition, in order."""

    partition: TopicPartition
    next_sequence: int = 0
    added: bool = False
    """Is the partition part of the transaction?"""
    waiting: deque[_Batch] = field(default_factory=deque)
    sent: deque[_Batch] = field(default_factory=deque)
    """Not acknowledged, oldest first."""
    on_the_way: int = 0
    leader: int = -1
    """Whom those on their way went to. While there are any, no other gets one: it would be out of order there."""
    failed: bool = False


@dataclass(slots=True, eq=False)
class _Request:
    pending: Pending[ProduceResponse]
    batches: list[tuple[_Lane, _Batch]]


class Producer:
    """One producer id and epoch. With a `transactional_id`, all belongs to one transaction, which is left open."""

    def __init__(
        self,
        client: BlockingClient,
        coordination: Coordination,
        identity: Claim,
        settings: ProducerSettings,
        transactional_id: str | None = None,
    ) -> None:
        self._client = client
        self._coordination = coordination
        self._identity = identity
        self._settings = settings
        self._transactional_id = transactional_id
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._requests: dict[int, deque[_Request]] = {}
        self._waiting_bytes = 0
        self._failures = 0
        """In a row: the pause before the next attempt doubles with each."""
        self._pause_due = False

    def add(self, partition: TopicPartition, packed: PackedBatch) -> None:
        """Takes a batch, and sends what there is once it is worth a request."""
        lane = self._lanes.setdefault(partition, _Lane(partition))
        builder = BatchBuilder(
            compression=self._settings.compression.type,
            level=self._settings.compression.level,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=lane.next_sequence,
            transactional=self._transactional_id is not None,
        )
        batch = _Batch(memoryview(packed.seal(builder)), monotonic_s())
        lane.next_sequence = (lane.next_sequence + packed.number) % _SEQUENCES
        lane.waiting.append(batch)
        self._waiting_bytes += len(batch.data)
        if self._waiting_bytes >= min(REQUEST_BYTES_MIN, self._settings.request_bytes_max):
            self._hear_what_came()
            self._send_waiting()
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._hear_one()
            self._send_waiting()

    def flush(self) -> None:
        """Returns when everything is acknowledged."""
        self._send_waiting()
        while any(lane.waiting or lane.sent for lane in self._lanes.values()):
            self._hear_one()
            self._send_waiting()

    # Sending.

    def _send_waiting(self) -> None:
        """As many requests as may be on their way."""
        self._add_to_transaction()
        while self._send_round():
            pass

    def _send_round(self) -> bool:
        """At most one request to each leader. False if none could be sent."""
        if self._pause_due:
            self._pause()
        by_leader: dict[int, list[_Lane]] = {}
        for lane in self._lanes.values():
            if lane.waiting and not lane.failed:
                try:
                    leader = self._client.leader_of(*lane.partition)
                except KafkaError as error:
                    self._on_failure(lane.waiting[0], error)
                    return True
                if not lane.on_the_way or leader == lane.leader:
                    by_leader.setdefault(leader, []).append(lane)
        sent = False
        for leader, lanes in by_leader.items():
            if len(self._requests.get(leader, ())) < IN_FLIGHT_MAX:
                self._send_to(leader, lanes)
                sent = True
        return sent

    def _send_to(self, leader: int, lanes: list[_Lane]) -> None:
        chosen: list[tuple[_Lane, _Batch]] = []
        size = 0
        for lane in lanes:
            batch = lane.waiting[0]
            if chosen and size + len(batch.data) > self._settings.request_bytes_max:
                continue
            chosen.append((lane, batch))
            size += len(batch.data)
        topics: dict[str, TopicProduceData] = {}
        for lane, batch in chosen:
            topic, index = lane.partition
            data = topics.setdefault(topic, TopicProduceData(name=topic))
            data.partition_data.append(PartitionProduceData(index=index, records=batch.data))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._client.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        version_max = self._coordination.produce_version_max
        try:
            pending = self._client.start(leader, request, ProduceResponse, max_version=version_max)
        except PeerLost as error:
            self._on_failure(chosen[0][1], error)
            return
        for lane, batch in chosen:
            lane.waiting.popleft()
            lane.sent.append(batch)
            lane.on_the_way += 1
            lane.leader = leader
            self._waiting_bytes -= len(batch.data)
        self._requests.setdefault(leader, deque()).append(_Request(pending, chosen))

    def _add_to_transaction(self) -> None:
        """By the rules before KIP-890's second part. After it, the first batch does that."""
        if self._transactional_id is None or self._coordination.bumps_epoch:
            return
        new = [lane for lane in self._lanes.values() if not lane.added]
        if new:
            staged = Staged(self._transactional_id, *self._identity)
            self._coordination.add_partitions(staged, [lane.partition for lane in new])
            for lane in new:
                lane.added = True

    # Hearing.

    def _hear_what_came(self) -> None:
        for requests in list(self._requests.values()):
            while requests and self._client.has_come(requests[0].pending):
                self._hear(requests.popleft())

    def _hear_one(self) -> None:
        """Waits for the oldest answer of one leader, if anything is on its way."""
        leader = next((node for node, requests in self._requests.items() if requests), None)
        if leader is None:
            return
        requests = self._requests.pop(leader)
        self._requests[leader] = requests  # The others' turn comes first.
        self._hear(requests.popleft())

    def _hear(self, request: _Request) -> None:
        try:
            answer = self._client.finish(request.pending)
        except PeerLost as error:
            results: dict[TopicPartition, PartitionProduceResponse] = {}
            fallback: KafkaError = error
        else:
            results = {
                TopicPartition(topic.name, result.index): result
                for topic in answer.responses
                for result in topic.partition_responses
            }
            fallback = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The leader left a partition out of its answer.")
        for lane, batch in request.batches:
            lane.on_the_way -= 1
            self._on_result(lane, batch, results.get(lane.partition), fallback)
        for lane, _ in request.batches:
            if lane.failed and not lane.on_the_way:
                self._send_again(lane)

    def _on_result(
        self, lane: _Lane, batch: _Batch, result: PartitionProduceResponse | None, fallback: KafkaError
    ) -> None:
        error = fallback
        if result is not None:
            code = ErrorCode(result.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                batch.acknowledged = True
                self._failures = 0
                while lane.sent and lane.sent[0].acknowledged:
                    lane.sent.popleft()
                return
            error = KafkaError(code, _sentence(lane.partition, code, result.error_message))
        # Behind a batch that failed, those that follow it are out of order for no fault of their own.
        if not (lane.failed and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            self._on_failure(batch, error)
        lane.failed = True

    def _send_again(self, lane: _Lane) -> None:
        lane.failed = False
        again = [batch for batch in lane.sent if not batch.acknowledged]
        lane.sent.clear()
        lane.waiting.extendleft(reversed(again))
        self._waiting_bytes += sum(len(batch.data) for batch in again)

    def _on_failure(self, batch: _Batch, error: KafkaError) -> None:
        """Raises what does not pass, or has not passed for too long."""
        late = monotonic_s() - batch.since_s > self._settings.delivery_timeout_ms / 1000
        if late or not error.code.retriable:
            raise error
        self._pause_due = True

    def _pause(self) -> None:
        settings = self._client.settings
        pause(min(settings.retry_backoff_ms << min(self._failures, 16), settings.retry_backoff_ms_max) / 1000)
        self._pause_due = False
        self._failures += 1
        for topic in {partition.topic for partition in self._lanes}:
            self._client.forget(topic)


def _sentence(partition: TopicPartition, code: ErrorCode, message: str | None) -> str:
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return (
            f"A batch for {partition.topic}-{partition.partition} is larger than the topic takes (max.message.bytes): "
            f"set kafka.batch.size below that, or raise it for the topic."
        )
    return f"{partition.topic}-{partition.partition} did not take a batch{f': {message}' if message else ''}."
