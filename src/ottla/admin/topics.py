"""Topics: which there are, where their partitions are, and making, growing, trimming and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.admin.asking import TIMEOUT_MS, ask_each, ask_once, check, refusal
from ottla.admin.log_dirs import describe_log_dirs, sizes_of
from ottla.admin.offsets import known_bounds
from ottla.client.blocking import NO_NODE, BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition, uuid_to_text
from ottla.wire.message import Message
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

DEFAULT = -1
"""As number of partitions or replicas: what the cluster gives to new topics."""

TO_THE_END = -1
"""As the offset before which records are deleted: all that are committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    """The first is the preferred leader."""
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Outside the in-sync set, but with everything that is committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_offline(self) -> bool:
        return self.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExtent:
    """What a partition holds. A figure is none where nobody could be asked for it."""

    start_offset: int | None
    end_offset: int | None
    """The high watermark."""
    size_bytes: int | None
    """Of the leader's replica."""
    sizes_bytes: Mapping[int, int]
    """Of each broker's replica."""

    @property
    def records(self) -> int | None:
        """At most so many: compaction and control records leave gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


def list_topics(client: BlockingClient, names: Iterable[str] | None = None) -> list[Topic]:
    """These topics, or all, sorted by name. One that does not exist is `KafkaError`."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    if wanted is not None and not wanted:
        return []
    answer = client.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
    return sorted((_of_metadata(each) for each in answer.topics), key=lambda topic: topic.name)


def describe_topics(client: BlockingClient, names: Iterable[str]) -> list[Topic]:
    """With the eligible leaders (KIP-966) too, where the cluster knows of them; sorted by name."""
    wanted = sorted(set(names))
    found: dict[str, list[Partition]] = {}
    topics: dict[str, Topic] = {}
    cursor: Cursor | None = None
    while wanted:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in wanted], cursor=cursor)
        try:
            answer = client.ask_any(request, DescribeTopicPartitionsResponse)
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return list_topics(client, wanted)
        for topic in answer.topics:
            name = topic.name or ""
            check(topic.error_code, None, f"The topic {name} cannot be described")
            found.setdefault(name, []).extend(
                Partition(
                    topic=name,
                    partition=each.partition_index,
                    leader=None if each.leader_id == NO_NODE else each.leader_id,
                    leader_epoch=each.leader_epoch,
                    replicas=tuple(each.replica_nodes),
                    isr=tuple(each.isr_nodes),
                    offline_replicas=tuple(each.offline_replicas),
                    elr=tuple(each.eligible_leader_replicas or ()),
                    last_known_elr=tuple(each.last_known_elr or ()),
                )
                for each in topic.partitions
            )
            topics[name] = Topic(
                name=name,
                topic_id=uuid_to_text(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=tuple(sorted(found[name], key=lambda each: each.partition)),
            )
        if answer.next_cursor is None:
            break
        cursor = Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        wanted = [name for name in wanted if name >= cursor.topic_name]
    return [topics[name] for name in sorted(topics)]


def extents_of(client: BlockingClient, topics: Iterable[Topic]) -> dict[TopicPartition, PartitionExtent]:
    """Offsets and sizes of every partition, as far as brokers answer."""
    partitions = {TopicPartition(each.topic, each.partition): each for topic in topics for each in topic.partitions}
    if not partitions:
        return {}
    bounds = known_bounds(client, partitions)
    sizes = sizes_of(describe_log_dirs(client, partitions))
    extents = {}
    for key, each in partitions.items():
        bound, stored = bounds.get(key), sizes.get(key, {})
        extents[key] = PartitionExtent(
            start_offset=None if bound is None else bound.start,
            end_offset=None if bound is None else bound.end,
            size_bytes=None if each.leader is None else stored.get(each.leader),
            sizes_bytes=stored,
        )
    return extents


def create_topic(
    client: BlockingClient,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """`assignment` names the brokers of each partition, and then says how many partitions and replicas there are."""
    asked = CreatableTopic(
        name=name,
        num_partitions=partitions if assignment is None else -1,
        replication_factor=replication_factor if assignment is None else -1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(assignment or ())
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    for result in ask_once(client, request, CreateTopicsResponse).topics:
        check(result.error_code, result.error_message, f"The topic {name} cannot be created")


def delete_topic(client: BlockingClient, name: str) -> None:
    """It is gone for good, with its records."""
    # Until version 6 (KIP-516) topics are deleted by name alone, and only the field of that time is understood.
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
    for result in ask_once(client, request, DeleteTopicsResponse).responses:
        check(result.error_code, result.error_message, f"The topic {name} cannot be deleted")
    client.forget(name)


def add_partitions(client: BlockingClient, name: str, count: int) -> None:
    """The topic then has `count` partitions in all. Keys go elsewhere from then on."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=TIMEOUT_MS
    )
    for result in ask_once(client, request, CreatePartitionsResponse).results:
        check(result.error_code, result.error_message, f"The topic {name} cannot get more partitions")
    client.forget(name)


def delete_records(client: BlockingClient, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes what lies before these offsets; `TO_THE_END` is all. Returns where each partition begins now."""
    client.topics({each.topic for each in before})
    by_leader: dict[int, dict[str, list[DeleteRecordsPartition]]] = {}
    for each, offset in before.items():
        topics = by_leader.setdefault(client.leader_of(*each), {})
        asked = DeleteRecordsPartition(partition_index=each.partition, offset=offset)
        topics.setdefault(each.topic, []).append(asked)
    requests: dict[int, Message] = {
        node: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=asked) for name, asked in topics.items()],
            timeout_ms=TIMEOUT_MS,
        )
        for node, topics in by_leader.items()
    }
    starts: dict[TopicPartition, int] = {}
    refused: KafkaError | None = None
    for answer in ask_each(client, requests, DeleteRecordsResponse).values():
        if isinstance(answer, KafkaError):
            refused = answer
            continue
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code:
                    refused = refusal(result.error_code, None, f"The records of {partition} cannot be deleted")
                else:
                    starts[partition] = result.low_watermark
    if refused is not None:
        raise refused
    return starts


def _of_metadata(topic: MetadataResponseTopic) -> Topic:
    name = topic.name or ""
    if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        check(topic.error_code, None, f"The topic {name} cannot be described")
    partitions = [
        Partition(
            topic=name,
            partition=each.partition_index,
            leader=None if each.leader_id == NO_NODE else each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline_replicas=tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    return Topic(
        name=name,
        topic_id=uuid_to_text(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda each: each.partition)),
    )
