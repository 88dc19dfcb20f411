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
    partitions = [each for topic in topics for each in topic.partitions]
    spread = _Spread(brokers, racks or {})
    for each in partitions:
        count = replication_factor or len(each.replicas)
        if count > len(brokers):
            message = (
                f"{each.topic}-{each.partition} has {count} replicas, which {len(brokers)} brokers cannot hold: name "
                "more brokers, or fewer replicas."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        spread.add([node for node in each.replicas if node in brokers][:count], count)
    spread.fill()
    spread.level_replicas()
    spread.level_leaders()
    return [
        ReplicaMove(topic=each.topic, partition=each.partition, before=each.replicas, after=tuple(after))
        for each, after in zip(partitions, spread.replicas, strict=True)
        if tuple(after) != each.replicas
    ]


class _Spread:
    """Replicas of partitions on brokers, made even step by step; the first of each partition is to lead."""

    def __init__(self, brokers: Sequence[int], racks: Mapping[int, str | None]) -> None:
        self._brokers = brokers
        self._racks = racks
        self._counts: list[int] = []
        self._held = dict.fromkeys(brokers, 0)
        self.replicas: list[list[int]] = []

    def add(self, kept: list[int], count: int) -> None:
        self.replicas.append(kept)
        self._counts.append(count)
        for node in kept:
            self._held[node] += 1

    def fill(self) -> None:
        for replicas, count in zip(self.replicas, self._counts, strict=True):
            while len(replicas) < count:
                candidates = [node for node in self._brokers if node not in replicas]
                chosen = min(candidates, key=lambda node: (self._crowding(replicas, node), self._held[node], node))
                replicas.append(chosen)
                self._held[chosen] += 1

    def level_replicas(self) -> None:
        """One replica at a time from whoever has most to whoever has least, until no such step helps."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        for giver in sorted(self._brokers, key=lambda node: -self._held[node]):
            for taker in sorted(self._brokers, key=lambda node: self._held[node]):
                if self._held[giver] - self._held[taker] < 2:
                    break
                for replicas in self.replicas:
                    if giver not in replicas or taker in replicas:
                        continue
                    others = [node for node in replicas if node != giver]
                    if self._crowding(others, taker) > self._crowding(others, giver):
                        continue
                    replicas[replicas.index(giver)] = taker
                    self._held[giver] -= 1
                    self._held[taker] += 1
                    return True
        return False

    def level_leaders(self) -> None:
        leads = dict.fromkeys(self._brokers, 0)
        for replicas in self.replicas:
            leads[replicas[0]] += 1
        changed = True
        while changed:
            changed = False
            for replicas in self.replicas:
                best = min(replicas, key=lambda node: leads[node])
                if leads[replicas[0]] - leads[best] >= 2:
                    leads[replicas[0]] -= 1
                    leads[best] += 1
                    replicas.remove(best)
                    replicas.insert(0, best)
                    changed = True

    def _crowding(self, others: Sequence[int], node: int) -> int:
        """How many of `others` share the rack of `node`."""
        rack = self._racks.get(node)
        return 0 if rack is None else sum(self._racks.get(other) == rack for other in others)


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
