"""The partition that holds the schemas, over the blocking client: made if missing, read, and written by one at a time.

`SchemaReader` and `SchemaWriter` each have a client of their own and are called from a thread, never by two at once.
They work on any cluster that has transactions. What goes wrong is a `KafkaError`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.admin.offsets import EARLIEST, LATEST, ask_offsets
from ottla.client.blocking import BlockingClient, CoordinatorKind
from ottla.client.peer import PeerLost
from ottla.client.reading import seen_records
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.gateway.registry.stored import Entry
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, Uuid
from ottla.records.builder import BatchBuilder
from ottla.wire.messages.fetch_response import PartitionData

SCHEMAS_TOPIC = "_schemas"
PARTITION = 0
REPLICAS_MAX = 3
FETCH_BYTES = 8 * 1024 * 1024
TRANSACTION_TIMEOUT_MS = 60_000
PRODUCE_TIMEOUT_MS = 30_000
_READ_COMMITTED = 1
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Somebody else is the writer now, or our transaction was ended for us: nothing of it will be seen."""

# The requests of clients from before KIP-890's second part: every cluster with transactions understands them, and they
# ask the coordinator first, which is where a fenced writer is stopped.
_PRODUCE_VERSION_MAX = 11
_ADD_PARTITIONS_VERSION_MAX = 3
_END_TXN_VERSION_MAX = 4


class Fenced(Exception):
    """Nothing was written, or it will never be seen: another registry has become the writer."""


class Unsure(Exception):
    """The connection broke over the commit: whether the record at `offset` is seen, only the log can tell."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the transaction with offset {offset} may or may not be committed")
        self.offset = offset


class LogRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What a read found: committed records, and where the next read begins."""

    records: list[LogRecord]
    next_offset: int
    topic_id: Uuid


class SchemaReader:
    def __init__(self, settings: ClientSettings, topic: str = SCHEMAS_TOPIC) -> None:
        self._client = BlockingClient(settings)
        self._topic = topic

    def close(self) -> None:
        self._client.close()

    def ensure_topic(self) -> None:
        """The topic exists, compacted and of one partition, with as many copies as there are brokers, up to three."""
        self._client.persist(self._ensure_topic)

    def _ensure_topic(self) -> None:
        from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
        from ottla.wire.messages.create_topics_response import CreateTopicsResponse
        from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
        from ottla.wire.messages.metadata_response import MetadataResponse

        client = self._client
        if client.topics([self._topic]):
            client.leader_of(self._topic, PARTITION)
            return
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        cluster = client.ask_any(request, MetadataResponse)
        wanted = CreatableTopic(
            name=self._topic,
            num_partitions=1,
            replication_factor=max(1, min(REPLICAS_MAX, len(cluster.brokers))),
            configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        answer = client.ask(
            cluster.controller_id, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse
        )
        code = ErrorCode(answer.topics[0].error_code)
        if code and code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(code, f"The topic {self._topic} cannot be made: {answer.topics[0].error_message}")
        # It has a leader when it can be used; until then this is tried again.
        client.forget(self._topic)
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"The topic {self._topic} has just been made.")

    def earliest_offset(self) -> int:
        return _offset(self._client, self._topic, EARLIEST)

    def end_offset(self) -> int:
        return _offset(self._client, self._topic, LATEST)

    def read(self, offset: int, max_wait_ms: int) -> Portion:
        """What is committed from `offset` on, waited for so long; perhaps nothing. One try."""
        from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
        from ottla.wire.messages.fetch_response import FetchResponse

        client = self._client
        topic = client.topic(self._topic)
        wanted = FetchPartition(partition=PARTITION, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=[FetchTopic(topic=self._topic, topic_id=topic.topic_id, partitions=[wanted])],
        )
        try:
            answer = client.ask(client.leader_of(self._topic, PARTITION), request, FetchResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code))
            (data,) = answer.responses[0].partitions
            if data.error_code:
                raise KafkaError(ErrorCode(data.error_code))
        except KafkaError:
            client.forget(self._topic)
            raise
        records, next_offset = committed_records(data, offset)
        return Portion(records=records, next_offset=next_offset, topic_id=topic.topic_id)


def committed_records(data: PartitionData, offset: int) -> tuple[list[LogRecord], int]:
    """The records from `offset` on that no transaction took back, and the offset behind all that was looked at."""
    records, next_offset = seen_records(data, offset)
    return [LogRecord(each.offset, each.timestamp, each.key, each.value) for each in records], next_offset


def _offset(client: BlockingClient, topic: str, when: int) -> int:
    place = TopicPartition(topic, PARTITION)
    return client.persist(lambda: ask_offsets(client, {place: when}, committed=True))[place]


class SchemaWriter:
    """Appends transactions as the one writer, until another takes over.

    `take_over` → `append`, again and again → `Fenced` or `Unsure`, after which `take_over` is due.
    """

    def __init__(self, settings: ClientSettings, topic: str = SCHEMAS_TOPIC) -> None:
        self._client = BlockingClient(settings)
        self._topic = topic
        self._transactional_id = f"{topic}-writer"
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._sequence = 0

    @property
    def is_writer(self) -> bool:
        """As far as we know."""
        return self._producer_id != NO_PRODUCER_ID

    def close(self) -> None:
        self._client.close()

    def end_offset(self) -> int:
        """Whoever has read so far knows everything that was committed when this was asked."""
        return _offset(self._client, self._topic, LATEST)

    def take_over(self) -> None:
        """Become the writer: whatever the one before us left open is taken back first."""
        from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
        from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        self._producer_id = NO_PRODUCER_ID
        answer = self._client.to_coordinator(
            CoordinatorKind.TRANSACTION, self._transactional_id, request, InitProducerIdResponse, max_version=5
        )
        self._producer_id, self._producer_epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def append(self, entries: Sequence[Entry]) -> int:
        """Append and commit; the offset behind the last entry. Raises `Fenced`, `Unsure`, or `KafkaError` where it was
        refused and nothing of it will be seen."""
        assert self.is_writer
        try:
            self._add_partition()
            first_offset = self._client.persist(lambda: self._produce(entries))
            self._sequence += len(entries)
        except KafkaError as error:
            self._producer_id = NO_PRODUCER_ID
            if error.code in _FENCED:
                raise Fenced from error
            raise
        try:
            self._commit()
        except PeerLost as error:
            self._producer_id = NO_PRODUCER_ID
            raise Unsure(first_offset) from error
        except KafkaError as error:
            self._producer_id = NO_PRODUCER_ID
            if error.code in _FENCED:
                raise Fenced from error
            raise Unsure(first_offset) from error
        return first_offset + len(entries)

    def _add_partition(self) -> None:
        from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
        from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[PARTITION])],
        )
        self._client.to_coordinator(
            CoordinatorKind.TRANSACTION,
            self._transactional_id,
            request,
            AddPartitionsToTxnResponse,
            errors=lambda answer: [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ],
            max_version=_ADD_PARTITIONS_VERSION_MAX,
        )

    def _produce(self, entries: Sequence[Entry]) -> int:
        from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
        from ottla.wire.messages.produce_response import ProduceResponse

        builder = BatchBuilder(
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        now_ms = time.time_ns() // 1_000_000
        for key, value in entries:
            builder.append(now_ms, key, value)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    partition_data=[PartitionProduceData(index=PARTITION, records=bytes(builder.build()))],
                )
            ],
        )
        client = self._client
        answer = client.ask(
            client.leader_of(self._topic, PARTITION), request, ProduceResponse, max_version=_PRODUCE_VERSION_MAX
        )
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)
        return result.base_offset

    def _commit(self) -> None:
        from ottla.wire.messages.end_txn_request import EndTxnRequest
        from ottla.wire.messages.end_txn_response import EndTxnResponse

        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=True,
        )
        self._client.to_coordinator(
            CoordinatorKind.TRANSACTION,
            self._transactional_id,
            request,
            EndTxnResponse,
            max_version=_END_TXN_VERSION_MAX,
            retry_lost=False,
        )
