"""Where partitions begin and end, and which offset belongs to a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.admin.asking import ask_each, refusal
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The record with the newest timestamp (KIP-734)."""

CONSUMER = -1
DEBUGGER = -2
"""As replica id: sees to the end of the log, and may ask whichever replica it likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffset:
    offset: int
    """-1 if no record is as young as the time that was asked for."""
    timestamp_ms: int
    """Of the record that was found by time, else -1."""
    leader_epoch: int


def list_offsets(
    client: BlockingClient, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the offset at `EARLIEST`, `LATEST`, `MAX_TIMESTAMP` or a time in milliseconds. `committed` is
    the end that readers of committed records see. Waits while leaders move; raises `KafkaError`."""
    topics = client.topics({each.topic for each in wanted})
    for each in wanted:
        if each.topic not in topics or each.partition not in topics[each.topic].partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {each}.")
    found: dict[TopicPartition, FoundOffset] = {}

    def attempt() -> None:
        missing = {each: at for each, at in wanted.items() if each not in found}
        client.topics({each.topic for each in missing})
        for each, answer in look_up(client, missing, committed=committed).items():
            if isinstance(answer, KafkaError):
                raise answer
            found[each] = answer

    client.persist(attempt)
    return {each: found[each] for each in wanted}


def look_up(
    client: BlockingClient, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """Like `list_offsets`, asked once of the leaders that are known: what cannot be answered now is an error."""
    answers: dict[TopicPartition, FoundOffset | KafkaError] = {}
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for each, at in wanted.items():
        try:
            by_leader[client.leader_of(*each)][each] = at
        except KafkaError as error:
            answers[each] = error
    answers.update(ask_replicas(client, by_leader, committed=committed))
    return {each: answers[each] for each in wanted}


def ask_offsets(
    client: BlockingClient, wanted: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """The offsets alone, asked once: for whoever tries again himself. Raises `KafkaError` if any is not to be had."""
    found: dict[TopicPartition, int] = {}
    for each, answer in look_up(client, wanted, committed=committed).items():
        if isinstance(answer, KafkaError):
            raise answer
        found[each] = answer.offset
    return found


def ask_replicas(
    client: BlockingClient,
    wanted: Mapping[int, Mapping[TopicPartition, int]],
    *,
    replica_id: int = CONSUMER,
    committed: bool = False,
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """Asks these brokers for these partitions, which no two of them share."""
    requests: dict[int, Message] = {
        node: ListOffsetsRequest(
            replica_id=replica_id, isolation_level=int(committed), topics=_topics(partitions), timeout_ms=10_000
        )
        for node, partitions in wanted.items()
    }
    answers: dict[TopicPartition, FoundOffset | KafkaError] = {}
    for node, answer in ask_each(client, requests, ListOffsetsResponse).items():
        if isinstance(answer, KafkaError):
            answers.update(dict.fromkeys(wanted[node], answer))
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    answers[partition] = refusal(
                        each.error_code, None, f"The offsets of {partition} cannot be looked up"
                    )
                else:
                    answers[partition] = FoundOffset(
                        offset=each.offset, timestamp_ms=each.timestamp, leader_epoch=each.leader_epoch
                    )
    return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What of a partition can be read: from `start` up to, and without, `end`."""

    start: int
    end: int


def bounds_of(
    client: BlockingClient, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, Bounds]:
    """Raises `KafkaError` where a partition cannot be asked."""
    wanted = list(partitions)
    starts = list_offsets(client, dict.fromkeys(wanted, EARLIEST))
    ends = list_offsets(client, dict.fromkeys(wanted, LATEST), committed=committed)
    return {each: Bounds(start=starts[each].offset, end=ends[each].offset) for each in wanted}


def known_bounds(client: BlockingClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """The bounds of those partitions that answer now, asked once; for pictures of a cluster that may be in trouble."""
    wanted = list(partitions)
    if not wanted:
        return {}
    client.topics({each.topic for each in wanted})
    starts = look_up(client, dict.fromkeys(wanted, EARLIEST))
    ends = look_up(client, dict.fromkeys(wanted, LATEST))
    found = {}
    for each in wanted:
        start, end = starts[each], ends[each]
        if isinstance(start, FoundOffset) and isinstance(end, FoundOffset):
            found[each] = Bounds(start=start.offset, end=end.offset)
    return found


def _topics(partitions: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each, at in partitions.items():
        by_topic[each.topic].append(ListOffsetsPartition(partition_index=each.partition, timestamp=at))
    return [ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()]
