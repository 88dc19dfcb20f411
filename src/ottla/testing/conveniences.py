"""What a test wants of a cluster besides the client that it tests: topics made, records put in and looked at.

Over the blocking client, on the listener that nodes use among themselves, so that scripted faults are met by the tested
client alone. Each call has a connection of its own: any thread may use them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

if TYPE_CHECKING:
    from ottla.client.blocking import BlockingClient
    from ottla.wire.messages.create_topics_request import CreatableTopic
    from ottla.wire.messages.create_topics_response import CreatableTopicResult
    from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition

_LATEST, _EARLIEST = -1, -2
_FETCH_BYTES = 8 * 1024 * 1024
_PRODUCE_VERSION_MAX = 11
"""The last that the topic's name is enough for, whose id may be new."""
_PREFERRED = 0
_STALLED_S = 60.0
_DECIDED = ("PrepareCommit", "PrepareAbort")

Bytes = bytes | str


class Record(NamedTuple):
    """A record as it lies in its partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Conveniences:
    """Of any cluster whose internal addresses are known."""

    def __init__(self, internal: str, *, makes_topics: bool) -> None:
        self._internal = internal
        self._makes_topics = makes_topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Returns when every partition has a leader. Raises `KafkaError`, also if the topic exists."""
        from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig

        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=_text(value)) for key, value in (config or {}).items()],
        )
        with self._client() as client:
            made = _create(client, wanted)
            if made.error_code:
                raise KafkaError(ErrorCode(made.error_code), made.error_message)
            client.persist(lambda: [client.leader_of(name, each) for each in range(partitions)])

    def topics(self) -> dict[str, int]:
        """The names of all topics but Kafka's own, and how many partitions each has."""
        with self._client() as client:
            topics = self._metadata(client).topics
            return {topic.name: len(topic.partitions) for topic in topics if topic.name and not topic.is_internal}

    def produce(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, Bytes | None]] | Mapping[str, Bytes | None] = (),
        timestamp_ms: int | None = None,
    ) -> Record:
        """Acknowledged by all in sync when this returns. Text is written as UTF-8. Without `partition` the key decides,
        as in Java's producer; without both it is partition 0. A topic that nobody has made yet is made, unless the
        setting `auto.create.topics.enable` is off."""
        from ottla.records.builder import BatchBuilder
        from ottla.records.partitioner import partition_of_key
        from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
        from ottla.wire.messages.produce_response import ProduceResponse

        when_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        raw_key, raw_value = _raw("key", key), _raw("value", value)
        named = headers.items() if isinstance(headers, Mapping) else headers
        raw_headers = tuple((name, _raw(f"header {name}", content)) for name, content in named)
        builder = BatchBuilder()
        builder.append(when_ms, raw_key, raw_value, raw_headers)
        batch = bytes(builder.build())

        with self._client() as client:
            self._find(client, topic, may_make=self._makes_topics)
            if partition is not None:
                self._check_partition(client, topic, partition)
                place = partition
            elif raw_key is not None:
                place = partition_of_key(raw_key, client.persist(lambda: client.partition_count(topic)))
            else:
                place = 0

            def attempt() -> int:
                data = PartitionProduceData(index=place, records=batch)
                request = ProduceRequest(
                    acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
                )
                leader = client.leader_of(topic, place)
                answer = client.ask(leader, request, ProduceResponse, max_version=_PRODUCE_VERSION_MAX)
                (result,) = answer.responses[0].partition_responses
                if result.error_code:
                    raise KafkaError(ErrorCode(result.error_code), result.error_message)
                return result.base_offset

            return Record(topic, place, client.persist(attempt), when_ms, raw_key, raw_value, raw_headers)

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> list[Record]:
        """All that a consumer from the beginning would get, by partition and offset; with `committed` off also what
        open and aborted transactions have written. An empty list if there is nothing. What a producer was told is
        committed is there, even if its markers are still on their way."""
        with self._client() as client:
            self._find(client, topic)
            if partition is not None:
                self._check_partition(client, topic, partition)
            count = client.persist(lambda: client.partition_count(topic))
            places = range(count) if partition is None else (partition,)
            if committed:
                client.persist(lambda: _check_settled(client, [TopicPartition(topic, place) for place in places]))
            return [record for place in places for record in self._records(client, topic, place, committed)]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads."""
        with self._client() as client:
            self._find(client, topic)
            self._check_partition(client, topic, partition)
            return client.persist(lambda: client.leader_of(topic, partition))

    def _client(self) -> BlockingClient:
        from ottla.client.blocking import BlockingClient
        from ottla.client.settings import ClientSettings, parse_addresses

        return BlockingClient(ClientSettings(bootstrap=parse_addresses(self._internal), client_id="ottla.testing"))

    # Metadata and leaders.

    def _find(self, client: BlockingClient, topic: str, *, may_make: bool = False) -> None:
        """Raises `KafkaError` at once if there is no such topic. A node may not have heard of one that there is: the
        controller has the last word, so nobody waits for what will never come."""
        from ottla.wire.messages.create_topics_request import CreatableTopic

        if client.persist(lambda: client.topics([topic])):
            return
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        made = _create(client, wanted, validate_only=not may_make)
        if made.error_code and made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(ErrorCode(made.error_code), made.error_message)
        if not made.error_code and not may_make:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic} does not exist: create_topic makes it."
            )

    def _check_partition(self, client: BlockingClient, topic: str, partition: int) -> None:
        """Raises `KafkaError` at once if there is none. Here too the controller has the last word: it would not refuse
        to make as many if there were fewer."""
        from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
        from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse

        known = client.persist(lambda: client.topics([topic])).get(topic)
        if known is not None and partition in known.partitions:
            return
        wanted = CreatePartitionsTopic(name=topic, count=partition + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=True)
        if partition < 0 or not client.ask_any(request, CreatePartitionsResponse).results[0].error_code:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition} in {topic}: they are numbered from 0.",
            )

    def _metadata(self, client: BlockingClient, topic: str | None = None) -> MetadataResponse:
        from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
        from ottla.wire.messages.metadata_response import MetadataResponse

        wanted = None if topic is None else [MetadataRequestTopic(name=topic)]
        return client.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)

    def _partition(self, client: BlockingClient, topic: str, partition: int) -> MetadataResponsePartition:
        for found in self._metadata(client, topic).topics:
            for each in found.partitions:
                if each.partition_index == partition:
                    return each
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}.")

    def _move_leader(self, topic: str, partition: int, to: int) -> None:
        """The replicas in another order, then the first of them is elected: the way of Kafka's own tools."""
        from ottla.wire.messages import alter_partition_reassignments_request as moving
        from ottla.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
        from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
        from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse

        with self._client() as client:
            replicas = self._partition(client, topic, partition).replica_nodes
            if to not in replicas:
                raise ValueError(f"Node {to} has no copy of {topic}-{partition}: its copies are on {replicas}.")
            order = [to, *(each for each in replicas if each != to)]
            target = moving.ReassignablePartition(partition_index=partition, replicas=order)
            reassign = moving.AlterPartitionReassignmentsRequest(
                topics=[moving.ReassignableTopic(name=topic, partitions=[target])]
            )
            elect = ElectLeadersRequest(
                election_type=_PREFERRED, topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])]
            )

            def attempt() -> None:
                found = self._partition(client, topic, partition)
                if found.replica_nodes != order:
                    moved = client.ask_any(reassign, AlterPartitionReassignmentsResponse)
                    _raise_first([moved.error_code, *(each.error_code for each in moved.responses[0].partitions)])
                elif found.leader_id != to:
                    elected = client.ask_any(elect, ElectLeadersResponse)
                    _raise_first(
                        [
                            elected.error_code,
                            *(
                                each.error_code
                                for result in elected.replica_election_results
                                for each in result.partition_result
                                if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
                            ),
                        ]
                    )
                else:
                    return
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} is not led by node {to} yet.")

            client.persist(attempt)

    # Reading.

    def _records(self, client: BlockingClient, topic: str, partition: int, committed: bool) -> Iterable[Record]:
        from ottla.client.reading import fetch, seen_records

        offset = _offset(client, topic, partition, _EARLIEST, committed)
        end = _offset(client, topic, partition, _LATEST, committed)
        deadline_s = time.monotonic() + _STALLED_S
        while offset < end:
            read = partial(fetch, client, topic, partition, offset, bytes_max=_FETCH_BYTES, committed=committed)
            began = offset
            found, offset = seen_records(client.persist(read), offset)
            if offset > began:
                deadline_s = time.monotonic() + _STALLED_S
            elif time.monotonic() > deadline_s:  # A leader that was not in sync was elected meanwhile, and has less.
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{topic}-{partition} said that it ends at {end}, and has nothing behind {offset}.",
                )
            yield from (Record(topic, partition, *each) for each in found if each[0] < end)


def _create(client: BlockingClient, topic: CreatableTopic, *, validate_only: bool = False) -> CreatableTopicResult:
    from ottla.wire.messages.create_topics_request import CreateTopicsRequest
    from ottla.wire.messages.create_topics_response import CreateTopicsResponse

    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate_only)
    (made,) = client.ask_any(request, CreateTopicsResponse).topics
    return made


def _offset(client: BlockingClient, topic: str, partition: int, when: int, committed: bool) -> int:
    from ottla.admin.offsets import ask_offsets

    place = TopicPartition(topic, partition)
    return client.persist(lambda: ask_offsets(client, {place: when}, committed=committed))[place]


def _check_settled(client: BlockingClient, places: list[TopicPartition]) -> None:
    """A commit is answered when it is decided, and its markers are written after that. Raises `KafkaError`, one that
    passes, while some may be missing in these partitions."""
    from ottla.admin.offsets import ask_offsets
    from ottla.admin.transactions import list_transactions

    ends = dict.fromkeys(places, _LATEST)
    if ask_offsets(client, ends, committed=True) == ask_offsets(client, ends):
        return
    if any(each.state in _DECIDED for each in list_transactions(client)):
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "The end of a transaction has not been written yet.")


def _raise_first(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise KafkaError(ErrorCode(code))


def _raw(what: str, content: Bytes | None) -> bytes | None:
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    raise TypeError(f"The {what} is of type {type(content).__name__}: give text or bytes, as json.dumps makes them.")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
