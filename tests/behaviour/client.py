"""A `WireClient` with the verbs that the stories here use: one topic partition at a time, nothing hidden.

Every verb sends exactly one request in the version that the story names (the last one otherwise) and returns the part
of the answer that is about the partition asked for, error code included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeVar

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Uuid
from ottla.records import BatchBuilder, CompressionType, Record, batches, iterate
from ottla.wire.messages import fetch_request as fetch
from ottla.wire.messages import incremental_alter_configs_request as alter
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_records_response import DeleteRecordsPartitionResult, DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderEpochResponse
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse
from tests.wire_client import WireClient, last_version

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

ALL = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

SET = 0
DELETE = 1
TOPIC_RESOURCE = 2

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int | None = None,
    timestamps: Iterable[int] | None = None,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One v2 batch with a record for each value, all of one time unless `timestamps` says otherwise."""
    builder = BatchBuilder(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        control=control,
        log_append_time_ms=log_append_time_ms,
    )
    times = list(timestamps) if timestamps is not None else [now_ms() if timestamp is None else timestamp] * len(values)
    for value, at in zip(values, times, strict=True):
        builder.append(at, key, value)
    return bytes(builder.build())


def records_of(partition: PartitionData) -> list[Record]:
    """Every record that a fetch returned, also those before the offset asked for."""
    if not partition.records:
        return []
    return [record for _, one in batches(partition.records) for record in iterate(one)]


def values_of(partition: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(partition)]


def eventually(ask: Callable[[], T], good: Callable[[T], bool], *, seconds: float = 60) -> T:
    """Ask until the answer is good. For what a server does in its own time."""
    deadline = time.monotonic() + seconds
    while not good(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        time.sleep(0.03)
    return answer


class Topic:
    """A topic by its name and its id, since versions differ in which of the two they speak."""

    def __init__(self, name: str, topic_id: Uuid = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"


class Client(WireClient):
    """The verbs."""

    def another(self) -> Self:
        """A second connection to the same server."""
        host, port = self._socket.getpeername()[:2]
        return type(self)((host, port))

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """A new topic, ready to be used; a config's dots are spelled as underscores."""
        result = self.try_create(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        assert result.error_code == 0, (result.error_code, result.error_message)
        topic = Topic(name, result.topic_id)
        # Brokers other than the controller act on it a moment later.
        eventually(
            lambda: [self.list_offset(topic, LATEST, partition=index).error_code for index in range(partitions)],
            lambda codes: not any(codes),
        )
        return topic

    def try_create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, version: int = 7
    ) -> CreatableTopicResult:
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = self.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), CreateTopicsResponse, version)
        (result,) = response.topics
        return result

    def delete_topic(self, topic: Topic) -> DeletableTopicResult:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
        (result,) = self.call(request, DeleteTopicsResponse).responses
        if not result.error_code:
            eventually(
                lambda: self.list_offset(topic, LATEST).error_code,
                lambda code: code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return result

    def describe_topic(self, name: str) -> MetadataResponseTopic:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = self.call(request, MetadataResponse).topics
        return topic

    def alter_topic(self, topic: Topic, operation: int = SET, **configs: str | None) -> None:
        resource = alter.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            configs=[
                alter.AlterableConfig(name=key.replace("_", "."), config_operation=operation, value=value)
                for key, value in configs.items()
            ],
        )
        request = alter.IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = self.call(request, IncrementalAlterConfigsResponse).responses
        assert result.error_code == 0, (result.error_code, result.error_message)

    # Producing.

    def produce_request(
        self, topic: Topic, records: Buffer | None, *, partition: int = 0, acks: int = ALL, timeout_ms: int = 5_000
    ) -> ProduceRequest:
        data = PartitionProduceData(index=partition, records=None if records is None else bytes(records))
        return ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
        )

    def produce(
        self,
        topic: Topic,
        records: Buffer | None,
        *,
        partition: int = 0,
        acks: int = ALL,
        version: int = 13,
        timeout_ms: int = 5_000,
    ) -> PartitionProduceResponse:
        request = self.produce_request(topic, records, partition=partition, acks=acks, timeout_ms=timeout_ms)
        return produced(self.call(request, ProduceResponse, version))

    def append(self, topic: Topic, *values: bytes | None, partition: int = 0, timestamp: int | None = None) -> int:
        """Produce one batch, which must succeed, and return its first offset."""
        answer = self.produce(topic, batch(*values, timestamp=timestamp), partition=partition)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        return answer.base_offset

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = eventually(
            lambda: self.call(request, InitProducerIdResponse),
            # The first block of ids may still be on its way from the controller.
            lambda answer: answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        assert response.error_code == 0
        return response.producer_id

    # Fetching.

    def fetch_request(
        self,
        topic: Topic,
        offset: int,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = READ_UNCOMMITTED,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> fetch.FetchRequest:
        wanted = fetch.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        return fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[fetch.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[wanted])],
        )

    def fetch(
        self,
        topic: Topic,
        offset: int,
        *,
        version: int = 18,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = READ_UNCOMMITTED,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> PartitionData:
        request = self.fetch_request(
            topic,
            offset,
            partition=partition,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            isolation=isolation,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        response = self.call(request, FetchResponse, version)
        assert response.error_code == 0
        ((found,),) = (each.partitions for each in response.responses)
        return found

    def read_all(self, topic: Topic, *, partition: int = 0, offset: int = 0) -> list[Record]:
        """Every record from `offset` up to the high watermark, by as many fetches as it takes."""
        found: list[Record] = []
        while True:
            answer = self.fetch(topic, offset, partition=partition)
            assert answer.error_code == 0, answer.error_code
            records = [record for record in records_of(answer) if record.offset >= offset]
            if not records:
                return found
            found += records
            offset = records[-1].offset + 1

    # Offsets.

    def list_offset(
        self,
        topic: Topic,
        timestamp: int,
        *,
        partition: int = 0,
        version: int = 11,
        isolation: int = READ_UNCOMMITTED,
        current_leader_epoch: int = -1,
        replica_id: int = -1,
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=current_leader_epoch
        )
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic.name, partitions=[wanted])],
            timeout_ms=5_000,
        )
        ((found,),) = (each.partitions for each in self.call(request, ListOffsetsResponse, version).topics)
        return found

    def epoch_end(
        self,
        topic: Topic,
        epoch: int,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        version: int = 4,
    ) -> EpochEndOffset:
        wanted = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current_leader_epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[wanted])]
        )
        ((found,),) = (each.partitions for each in self.call(request, OffsetForLeaderEpochResponse, version).topics)
        return found

    def delete_records(
        self, topic: Topic, offset: int, *, partition: int = 0, version: int | None = None
    ) -> DeleteRecordsPartitionResult:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])], timeout_ms=5_000
        )
        version = last_version(request) if version is None else version
        ((found,),) = (each.partitions for each in self.call(request, DeleteRecordsResponse, version).topics)
        return found


def produced(response: ProduceResponse) -> PartitionProduceResponse:
    """The answer about the only partition of a produce request."""
    ((answer,),) = (topic.partition_responses for topic in response.responses)
    return answer
