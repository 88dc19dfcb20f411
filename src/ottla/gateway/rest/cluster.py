"""What HTTP asks of the cluster, over the blocking client: a `Lane` is for one thread at a time.

A lane writes idempotently, with a producer id of its own. A batch that is sent again after a broken connection has the
sequence numbers that it had, so that the leader takes it once; after an answer that leaves this open the lane begins
anew with another id. What goes wrong is a `KafkaError`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.admin.asking import ask_each
from ottla.admin.offsets import LATEST, ask_offsets
from ottla.client.blocking import BlockingClient, TopicInfo
from ottla.client.reading import seen_records
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.gateway.rest.records import NewRecord
from ottla.model import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.partitioner import partition_of_key
from ottla.records.records import Record
from ottla.wire.message import Message
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

BATCH_BYTES = 512 * 1024
PRODUCE_TIMEOUT_MS = 30_000
_READ_COMMITTED = 1
_SEQUENCES = 1 << 31


class Place(NamedTuple):
    """Where a record was written."""

    partition: int
    offset: int
    timestamp_ms: int


Outcome = Place | KafkaError


class Found(NamedTuple):
    """What a read of a partition found, and where the next one begins."""

    records: list[Record]
    next_offset: int


class Lane:
    """Made when first needed; `close` it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._client = BlockingClient(settings)
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._sequences: dict[tuple[str, int], int] = {}
        self._turn = 0

    def close(self) -> None:
        self._client.close()

    # The cluster.

    def cluster_id(self) -> str:
        from ottla.wire.messages.metadata_request import MetadataRequest
        from ottla.wire.messages.metadata_response import MetadataResponse

        def ask() -> str:
            answer = self._client.ask_any(MetadataRequest(topics=[]), MetadataResponse)
            return answer.cluster_id or ""

        return self._client.persist(ask)

    def topics(self) -> Mapping[str, TopicInfo]:
        return self._client.persist(self._client.topics)

    def topic(self, name: str) -> TopicInfo:
        """As it is now. One that does not exist is not waited for."""
        found = self._client.persist(lambda: self._client.topics([name])).get(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {name} does not exist.")
        return found

    def offsets(self, topic: str, partitions: Sequence[int], when: int) -> dict[int, int]:
        """The first offset at or after a time, `EARLIEST` or `LATEST`, of each; the end if all records are older."""
        found = self._offsets(topic, partitions, when)
        older = [partition for partition, offset in found.items() if offset == NO_OFFSET]
        return found | self._offsets(topic, older, LATEST)

    def _offsets(self, topic: str, partitions: Sequence[int], when: int) -> dict[int, int]:
        wanted = {TopicPartition(topic, partition): when for partition in partitions}
        found = self._client.persist(lambda: ask_offsets(self._client, wanted, committed=True))
        return {each.partition: offset for each, offset in found.items()}

    # Reading.

    def read(self, topic: str, partition: int, offset: int, *, bytes_max: int, wait_ms: int) -> Found:
        """Committed records from `offset` on, waited for so long; perhaps none. One batch at least, if there is one."""

        def attempt() -> Found:
            (found,) = self._read(topic, {partition: offset}, bytes_max, wait_ms).values()
            return found

        return self._client.persist(attempt)

    def follow(self, topic: str, positions: Mapping[int, int], *, bytes_max: int, wait_ms: int) -> dict[int, Found]:
        """The same of several partitions, whose leaders are asked at once."""
        return self._client.persist(lambda: self._read(topic, positions, bytes_max, wait_ms))

    def _read(self, topic: str, positions: Mapping[int, int], bytes_max: int, wait_ms: int) -> dict[int, Found]:
        from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

        client = self._client
        topic_id = client.topic(topic).topic_id
        by_leader: dict[int, list[FetchPartition]] = {}
        for partition, offset in positions.items():
            by_leader.setdefault(client.leader_of(topic, partition), []).append(
                FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
            )
        requests: dict[int, Message] = {
            leader: FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=bytes_max,
                isolation_level=_READ_COMMITTED,
                topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)],
            )
            for leader, wanted in by_leader.items()
        }
        timeout_ms = client.settings.request_timeout_ms + wait_ms
        found: dict[int, Found] = {}
        for answer in ask_each(client, requests, FetchResponse, timeout_ms=timeout_ms).values():
            if isinstance(answer, KafkaError):
                raise answer
            _raise(answer.error_code)
            for data in answer.responses[0].partitions if answer.responses else ():
                found[data.partition_index] = _found(data, positions[data.partition_index])
        return found

    # Writing.

    def produce(self, topic: str, records: Sequence[NewRecord]) -> list[Outcome]:
        """What became of each, in order. Raises `KafkaError` if the topic cannot be written to at all."""
        count = len(self.topic(topic).partitions)
        self._turn += 1
        chosen: dict[int, list[int]] = {}
        outcomes: list[Outcome] = [KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * len(records)
        for index, record in enumerate(records):
            partition = self._choose(record, count)
            if partition < count:
                chosen.setdefault(partition, []).append(index)
        for partition, indexes in chosen.items():
            for some in _portions(records, indexes):
                written = self._write(topic, partition, [records[index] for index in some])
                for at, index in enumerate(some):
                    outcomes[index] = written if isinstance(written, KafkaError) else written[at]
        return outcomes

    def _choose(self, record: NewRecord, count: int) -> int:
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key.data, count)
        return self._turn % count  # Those of one request stay together, and the next go elsewhere.

    def _write(self, topic: str, partition: int, records: Sequence[NewRecord]) -> list[Place] | KafkaError:
        now_ms = time.time_ns() // 1_000_000
        try:
            if self._producer_id == NO_PRODUCER_ID:
                self._begin()
            sequence = self._sequences.get((topic, partition), 0)
            builder = BatchBuilder(
                producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=sequence
            )
            times = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
            for record, timestamp_ms in zip(records, times, strict=True):
                key, value = record.key and record.key.data, record.value and record.value.data
                builder.append(timestamp_ms, key, value, record.headers)
            batch = bytes(builder.build())
            first_offset, append_time_ms = self._client.persist(lambda: self._send(topic, partition, batch))
        except KafkaError as error:
            # Nobody knows whether the sequence numbers are used up: another producer has all of its own.
            self._producer_id = NO_PRODUCER_ID
            return error
        self._sequences[topic, partition] = (sequence + len(records)) % _SEQUENCES
        return [
            Place(partition, first_offset + at, append_time_ms if append_time_ms >= 0 else timestamp_ms)
            for at, timestamp_ms in enumerate(times)
        ]

    def _begin(self) -> None:
        from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
        from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

        def ask() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self._client.ask_any(request, InitProducerIdResponse)
            _raise(answer.error_code)
            return answer

        answer = self._client.persist(ask)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def _send(self, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
        """The first offset, and the time of the append if the topic's records have that."""
        from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
        from ottla.wire.messages.produce_response import ProduceResponse

        client = self._client
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic, topic_id=client.topic(topic).topic_id, partition_data=[data]),
            ],
        )
        answer = client.ask(client.leader_of(topic, partition), request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message)
        return result.base_offset, result.log_append_time_ms


def _portions(records: Sequence[NewRecord], indexes: Sequence[int]) -> list[list[int]]:
    """`indexes` cut into batches that a topic takes by default; a record that is larger by itself is one of its own."""
    portions: list[list[int]] = [[]]
    size = 0
    for index in indexes:
        record = records[index]
        added = 64 + sum(len(part.data) for part in (record.key, record.value) if part is not None)
        added += sum(len(name) + len(value or b"") for name, value in record.headers)
        if portions[-1] and size + added > BATCH_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(index)
        size += added
    return portions


def _found(data: PartitionData, offset: int) -> Found:
    _raise(data.error_code)
    return Found(*seen_records(data, offset))


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
