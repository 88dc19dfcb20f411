"""Where decisions are recorded: a compacted topic of one partition in the cluster that the rows go to.

A decision is written in a transaction of the claim (`two_phase`), so that the coordinator's fencing of producers
decides whether it counts; who reads takes a transaction's records when its marker comes, and so does not wait for
others' open transactions. That a decision is completed is a plain record under a key of its own: it is true whoever
says it, and if it is lost the transactions are ended once more.

    key                  value
    sink                 the newest decision of the sink
    sink "/completed"    the claim of the decision whose transactions are all committed

Why a topic and not a file beside the checkpoint: it is there for batch writes, which have no checkpoint, and whatever
file system the checkpoint is on; it needs nothing that the sink does not need anyway; it is lost only with the rows
themselves; and any other sink of the cluster can finish what a batch write that died has decided.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, BatchHeader, batches, iterate, read_end_txn_marker
from ottla.records.records import Record
from ottla.runtime.blocking import monotonic_s, pause
from ottla.spark.crash_points import reached
from ottla.spark.sink.coordination import Coordination
from ottla.spark.sink.two_phase import Claim, Decision, DecisionsRead, Recorded, Staged
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse

DEFAULT_TOPIC = "_ottla_decisions"
REPLICAS_MAX = 3
FORSAKEN_AFTER_MS = 10_000
"""How old a decision of a batch write must be, completed by nobody, before another sink finishes it."""

_COMPLETED = "/completed"
_PARTITION = 0
_LATEST = -1
"""The timestamp by which ListOffsets means the end of the log."""
_FETCH_BYTES = 4 * 1024 * 1024
_FETCH_VERSION_MAX = 12
"""The last that names topics."""
_CONFIGS = {
    "cleanup.policy": "compact",
    # Compaction leaves the newest segment alone: a small one keeps short what a new driver has to read.
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


def decision_to_json(decision: Decision) -> bytes:
    """Version 1 of the value. The names of staged transactions are written without what they share."""
    shared = task_prefix(decision.sink)
    return json.dumps(
        {
            "version": 1,
            "query": decision.query_id,
            "batch": decision.batch_id,
            "claim": list(decision.claim),
            "forsaken": decision.forsaken,
            "staged": [[each[0].removeprefix(shared), *each[1:]] for each in decision.staged],
        },
        separators=(",", ":"),
    ).encode()


def decision_from_json(sink: str, value: bytes) -> Decision:
    read = json.loads(value)
    if read["version"] != 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The sink {sink} was last written by a newer Ottla (decision version {read['version']}): use that one.",
        )
    shared = task_prefix(sink)
    return Decision(
        sink=sink,
        query_id=read["query"],
        batch_id=read["batch"],
        claim=Claim(*read["claim"]),
        forsaken=read["forsaken"],
        staged=tuple(Staged(shared + name, *rest) for name, *rest in read["staged"]),
    )


@dataclass(slots=True)
class DecisionsView:
    """What the records read so far say. Pure: fed batch by batch, in the order of the log."""

    decisions: dict[str, tuple[Decision, int]] = field(default_factory=dict)
    """By sink: the newest decision, and when it was recorded."""
    completed: dict[str, Claim] = field(default_factory=dict)
    open: dict[int, list[Record]] = field(default_factory=dict)
    """By producer: records whose transaction has no marker yet."""

    def on_batch(self, header: BatchHeader, records: list[Record]) -> None:
        if header.is_control:
            marker = read_end_txn_marker(records[0]) if records else None
            if marker is not None:
                staged = self.open.pop(header.producer_id, [])
                if marker.commit:
                    self._apply(staged)
        elif header.is_transactional:
            self.open.setdefault(header.producer_id, []).extend(records)
        else:
            self._apply(records)

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            key = (record.key or b"").decode()
            if key.endswith(_COMPLETED):
                sink = key.removesuffix(_COMPLETED)
                if record.value is None:
                    self.completed.pop(sink, None)
                else:
                    self.completed[sink] = Claim(*json.loads(record.value))
            elif record.value is None:
                self.decisions.pop(key, None)
            else:
                self.decisions[key] = decision_from_json(key, record.value), record.timestamp

    def of(self, sink: str, now_ms: int) -> DecisionsRead:
        own = self.decisions.get(sink)
        forsaken = tuple(
            decision
            for name, (decision, recorded_ms) in self.decisions.items()
            if name != sink
            and decision.forsaken
            and now_ms - recorded_ms > FORSAKEN_AFTER_MS
            and self.completed.get(name) != decision.claim
        )
        if own is None:
            return DecisionsRead(None, forsaken)
        return DecisionsRead(Recorded(own[0], self.completed.get(sink) == own[0].claim), forsaken)


class DecisionLog:
    """The topic, as far as this process has read it."""

    def __init__(self, client: BlockingClient, coordination: Coordination, topic: str = DEFAULT_TOPIC) -> None:
        self.topic = topic
        self._client = client
        self._coordination = coordination
        self._view = DecisionsView()
        self._position = 0
        self._exists = False

    def read(self, sink: str, *, resolved: int | None = None) -> DecisionsRead:
        """What is recorded now, of `sink` and of those that were forsaken. With `resolved`, a producer id, not before
        what that producer has written is committed or aborted."""
        self._ensure()
        deadline_s = monotonic_s() + self._client.settings.api_timeout_ms / 1000
        while True:
            self._client.persist(self._read_to_end)
            if resolved is None or resolved not in self._view.open:
                return self._view.of(sink, int(time.time() * 1000))
            if monotonic_s() > deadline_s:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"A transaction in {self.topic} of the sink {sink} does not end."
                )
            pause(0.02)

    def record(self, decision: Decision) -> None:
        """Raises a `KafkaError` that is fencing (`coordination.is_fencing`) if the claim was taken over."""
        transactional_id = claim_id(decision.sink)
        claim = Staged(transactional_id, *decision.claim)
        if not self._coordination.bumps_epoch:
            self._coordination.add_partitions(claim, [TopicPartition(self.topic, _PARTITION)])
        builder = BatchBuilder(
            producer_id=claim.producer_id,
            producer_epoch=claim.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        builder.append(int(time.time() * 1000), decision.sink.encode(), decision_to_json(decision))
        self._produce(bytes(builder.build()), transactional_id)
        reached("decision-written")
        if not self._coordination.end(claim, commit=True):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "The decision was not recorded.")

    def record_completion(self, decision: Decision) -> None:
        builder = BatchBuilder()
        now_ms = int(time.time() * 1000)
        completed = decision.sink + _COMPLETED
        if decision.forsaken:
            # Nobody will ask about this sink again.
            builder.append(now_ms, decision.sink.encode(), None)
            builder.append(now_ms, completed.encode(), None)
        else:
            builder.append(now_ms, completed.encode(), json.dumps(list(decision.claim)).encode())
        self._produce(bytes(builder.build()), None)

    def _produce(self, batch: bytes, transactional_id: str | None) -> None:
        """Idempotent where it is transactional; a completion that is written twice is as true as once."""
        data = PartitionProduceData(index=_PARTITION, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=self._client.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )

        def attempt() -> None:
            leader = self._client.leader_of(self.topic, _PARTITION)
            answer = self._client.ask(
                leader, request, ProduceResponse, max_version=self._coordination.produce_version_max
            )
            result = answer.responses[0].partition_responses[0]
            if result.error_code and result.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)

        self._client.persist(attempt)

    def _read_to_end(self) -> None:
        end = self._end_offset()
        if self._position > end:
            self._begin_at(0)  # The topic was deleted and made anew.
        while self._position < end:
            begun = self._position
            for header, batch in batches(self._fetch().records or b""):
                if header.next_offset > self._position:
                    records = [record for record in iterate(batch) if record.offset >= self._position]
                    self._view.on_batch(header, records)
                    self._position = header.next_offset
            if self._position == begun:
                # Another leader, that does not know yet, or has lost, what the one before told of: it is asked itself.
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.topic} gives nothing from offset {begun} on, before {end}."
                )

    def _begin_at(self, offset: int) -> None:
        self._view = DecisionsView()
        self._position = offset

    def _end_offset(self) -> int:
        """Not a fetch's high watermark: that of a leader just elected may lie behind what was committed before it, and
        it refuses this request for as long (KIP-207)."""
        partition = ListOffsetsPartition(partition_index=_PARTITION, timestamp=_LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])])
        leader = self._client.leader_of(self.topic, _PARTITION)
        found = self._client.ask(leader, request, ListOffsetsResponse).topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), f"The end of {self.topic} cannot be looked up.")
        return found.offset

    def _fetch(self) -> PartitionData:
        partition = FetchPartition(partition=_PARTITION, fetch_offset=self._position, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_bytes=_FETCH_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=self.topic, partitions=[partition])],
        )
        leader = self._client.leader_of(self.topic, _PARTITION)
        answer = self._client.ask(leader, request, FetchResponse, max_version=_FETCH_VERSION_MAX)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._position != found.log_start_offset:
            # Made anew, or cut at its beginning: what it says is read from where it begins now.
            self._begin_at(max(found.log_start_offset, 0))
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.topic} begins elsewhere now.")
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found

    def _ensure(self) -> None:
        if self._exists:
            return
        if not self._client.persist(lambda: self._client.topics([self.topic])):
            self._client.persist(self._create)
            self._client.persist(lambda: self._client.leader_of(self.topic, _PARTITION))
        self._exists = True

    def _create(self) -> None:
        replicas = min(REPLICAS_MAX, len(self._client.nodes()))
        configs = {**_CONFIGS, "min.insync.replicas": str(min(2, replicas))}
        topic = CreatableTopic(
            name=self.topic,
            num_partitions=1,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer = self._client.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        result = answer.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(
                ErrorCode(result.error_code),
                f"The topic {self.topic}, in which the sink records its decisions, cannot be made "
                f"({result.error_message or 'no reason given'}): create it, compacted, with one partition, or name "
                f"another by the option decisionTopic.",
            )


def claim_id(sink: str) -> str:
    """The transactional id that the sink's claims are epochs of."""
    return f"ottla/{sink}"


def task_prefix(sink: str) -> str:
    """How the transactional ids of the sink's tasks begin."""
    return f"ottla/{sink}/"
