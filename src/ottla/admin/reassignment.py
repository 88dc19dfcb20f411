"""Moving replicas to other brokers: a plan, which can be shown; its start; how far it is; and calling it off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.admin.asking import TIMEOUT_MS, ask_once, check
from ottla.admin.log_dirs import describe_log_dirs, sizes_of
from ottla.admin.topics import Topic, list_topics
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from ottla.wire.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMove:
    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    """The first is the preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingMove:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    """Old and new ones together, until it is done."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    move: OngoingMove
    copied_bytes: int
    """By all replicas that are being added."""
    total_bytes: int


def plan_moves(
    topics: Iterable[Topic],
    brokers: Sequence[int],
    *,
    racks: Mapping[int, str | None] | None = None,
    replication_factor: int | None = None,
) -> list[ReplicaMove]:
    """Spreads these topics over these brokers evenly, replicas and preferred leaders, moving as little as that allows:
    a replica that may stay, stays. Replicas of one partition go to different racks as far as there are any."""
    replicas_of: dict[int, int] = dict.fromkeys(brokers, 0)
    leaders_of: dict[int, int] = dict.fromkeys(brokers, 0)
    known_racks = racks or {}
    partitions = [each for topic in topics for each in topic.partitions]
    counts = [replication_factor or len(each.replicas) for each in partitions]
    for topic_partition, count in zip(partitions, counts, strict=True):
        if count > len(brokers):
            message = (
                f"{topic_partition.topic}-{topic_partition.partition} has {count} replicas, which {len(brokers)} "
                "brokers cannot hold: name more brokers, or fewer replicas."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    share = -(-sum(counts) // len(brokers)) if brokers else 0
    moves = []
    for each, count in zip(partitions, counts, strict=True):
        kept: list[int] = []
        for node in each.replicas:
            if node in replicas_of and len(kept) < count and replicas_of[node] < share:
                kept.append(node)
                replicas_of[node] += 1
        while len(kept) < count:
            used = {known_racks.get(node) for node in kept} - {None}
            candidates = [node for node in brokers if node not in kept]
            chosen = min(candidates, key=lambda node: (known_racks.get(node) in used, replicas_of[node], node))
            kept.append(chosen)
            replicas_of[chosen] += 1
        leader = min(kept, key=lambda node: (leaders_of[node], kept.index(node)))
        leaders_of[leader] += 1
        after = (leader, *(node for node in kept if node != leader))
        if after != each.replicas:
            moves.append(ReplicaMove(topic=each.topic, partition=each.partition, before=each.replicas, after=after))
    return moves


def start_moves(client: BlockingClient, moves: Iterable[ReplicaMove]) -> None:
    """The cluster copies in the background; `list_moves` says what is left."""
    _alter(client, {TopicPartition(each.topic, each.partition): list(each.after) for each in moves})


def cancel_moves(client: BlockingClient, partitions: Iterable[TopicPartition]) -> None:
    """What was copied is thrown away, and the replicas are those from before."""
    _alter(client, dict.fromkeys(partitions))


def list_moves(client: BlockingClient) -> list[OngoingMove]:
    """What is being moved now, sorted."""
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = client.ask_any(request, ListPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message, "What is being moved cannot be listed")
    moves = [
        OngoingMove(
            topic=topic.name,
            partition=each.partition_index,
            replicas=tuple(each.replicas),
            adding=tuple(each.adding_replicas),
            removing=tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]
    return sorted(moves, key=lambda move: (move.topic, move.partition))


def progress_of(client: BlockingClient, moves: Sequence[OngoingMove]) -> list[MoveProgress]:
    """How much of the leaders' logs the new replicas have, by size."""
    if not moves:
        return []
    leaders = {
        TopicPartition(each.topic, each.partition): each.leader
        for topic in list_topics(client, {move.topic for move in moves})
        for each in topic.partitions
    }
    keys = [TopicPartition(move.topic, move.partition) for move in moves]
    sizes = sizes_of(describe_log_dirs(client, keys))
    progress = []
    for key, move in zip(keys, moves, strict=True):
        stored = sizes.get(key, {})
        leader = leaders.get(key)
        whole = stored.get(leader, 0) if leader is not None else 0
        copied = sum(min(stored.get(node, 0), whole) for node in move.adding)
        progress.append(MoveProgress(move=move, copied_bytes=copied, total_bytes=whole * len(move.adding)))
    return progress


def _alter(client: BlockingClient, targets: Mapping[TopicPartition, list[int] | None]) -> None:
    by_topic: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for each, replicas in targets.items():
        asked = ReassignablePartition(partition_index=each.partition)
        asked.replicas = replicas
        by_topic[each.topic].append(asked)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[ReassignableTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
    )
    answer = ask_once(client, request, AlterPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message, "Nothing can be moved")
    for topic in answer.responses:
        for result in topic.partitions:
            subject = f"The replicas of {topic.name}-{result.partition_index} cannot be moved"
            check(result.error_code, result.error_message, subject)
