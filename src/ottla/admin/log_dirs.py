"""What lies on the brokers' disks: directories with their room, and the size of every replica in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.admin.asking import ask_each
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.wire.message import Message
from ottla.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse, DescribeLogDirsResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReplica:
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    """Behind what is committed; of a copy on its way to this directory, behind the one in use."""
    is_future: bool


FREE_SHARE_MIN = 0.10
"""Of a volume: less is worth a word."""
FREE_BYTES_ENOUGH = 20 * 1024**3
"""On any volume: a tenth of a large one is room for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """One data directory of one broker; or, with `error` and no path, a broker that does not tell of its own."""

    node: int
    path: str
    error: KafkaError | None
    total_bytes: int
    """Of the volume; -1 where the broker is too old to say."""
    usable_bytes: int
    is_cordoned: bool
    replicas: tuple[StoredReplica, ...]

    def is_nearly_full(
        self, *, free_share_min: float = FREE_SHARE_MIN, free_bytes_enough: float = FREE_BYTES_ENOUGH
    ) -> bool:
        """Has its volume less than that share left, and less than would do in any case?"""
        least = min(free_share_min * self.total_bytes, free_bytes_enough)
        return self.total_bytes > 0 and self.usable_bytes < least


def describe_log_dirs(
    client: BlockingClient, partitions: Iterable[TopicPartition] | None = None, nodes: Iterable[int] | None = None
) -> list[LogDirectory]:
    """Every directory of these brokers, or of all, with these replicas, or all."""
    topics = None
    if partitions is not None:
        wanted: dict[str, list[int]] = defaultdict(list)
        for each in partitions:
            wanted[each.topic].append(each.partition)
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    requests: dict[int, Message] = {
        node: DescribeLogDirsRequest(topics=topics) for node in (client.nodes() if nodes is None else nodes)
    }
    found: list[LogDirectory] = []
    for node, answer in ask_each(client, requests, DescribeLogDirsResponse).items():
        if isinstance(answer, KafkaError):
            found.append(_silent(node, answer))
        elif answer.error_code:
            found.append(_silent(node, KafkaError(ErrorCode(answer.error_code))))
        else:
            found += [_directory(node, each) for each in answer.results]
    return found


def sizes_of(directories: Iterable[LogDirectory]) -> Mapping[TopicPartition, dict[int, int]]:
    """The bytes of each replica that is in use, by partition and broker."""
    sizes: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for directory in directories:
        for each in directory.replicas:
            if not each.is_future:
                sizes[TopicPartition(each.topic, each.partition)][directory.node] = each.size_bytes
    return sizes


def _silent(node: int, error: KafkaError) -> LogDirectory:
    return LogDirectory(
        node=node, path="", error=error, total_bytes=-1, usable_bytes=-1, is_cordoned=False, replicas=()
    )


def _directory(node: int, result: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        node=node,
        path=result.log_dir,
        error=KafkaError(ErrorCode(result.error_code)) if result.error_code else None,
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        is_cordoned=result.is_cordoned,
        replicas=tuple(
            StoredReplica(
                topic=topic.name,
                partition=each.partition_index,
                size_bytes=each.partition_size,
                offset_lag=each.offset_lag,
                is_future=each.is_future_key,
            )
            for topic in result.topics
            for each in topic.partitions
        ),
    )
