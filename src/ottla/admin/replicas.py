"""Every replica of one partition at one moment: log end, in sync or not, size; and the watermark between them.

Log ends come from the replicas themselves, asked as Kafka's tools that compare replicas ask (as a debugger), so that a
follower's is its own and not what the leader believes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.admin.log_dirs import LogDirectory, describe_log_dirs
from ottla.admin.offsets import DEBUGGER, EARLIEST, LATEST, FoundOffset, ask_replicas, look_up
from ottla.admin.topics import Partition, describe_topics
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A figure is none where the broker does not answer, and then `error` says why."""

    node: int
    is_leader: bool
    in_sync: bool
    is_eligible: bool
    """Outside the in-sync set, but with everything that is committed (KIP-966)."""
    start_offset: int | None
    end_offset: int | None
    leader_epoch: int | None
    """The newest that the replica knows of."""
    size_bytes: int | None
    directory: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPicture:
    partition: Partition
    high_watermark: int | None
    """None while there is no leader."""
    last_stable_offset: int | None
    """Where the first open transaction begins, or the watermark."""
    replicas: tuple[Replica, ...]
    """In the order of the assignment."""


def replica_picture(client: BlockingClient, topic: str, partition: int) -> ReplicaPicture:
    """Asks all replicas; those that do not answer are part of the picture."""
    (found,) = describe_topics(client, [topic])
    described = next((each for each in found.partitions if each.partition == partition), None)
    if described is None:
        message = f"The topic {topic} has no partition {partition}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    key = TopicPartition(topic, partition)
    client.topics([topic])  # The leader may have moved since it was last heard of.
    watermark = look_up(client, {key: LATEST})[key]
    stable = look_up(client, {key: LATEST}, committed=True)[key]
    directories = describe_log_dirs(client, [key], described.replicas)
    return ReplicaPicture(
        partition=described,
        high_watermark=watermark.offset if isinstance(watermark, FoundOffset) else None,
        last_stable_offset=stable.offset if isinstance(stable, FoundOffset) else None,
        replicas=tuple(_replica(client, described, node, directories) for node in described.replicas),
    )


def _replica(client: BlockingClient, partition: Partition, node: int, directories: list[LogDirectory]) -> Replica:
    key = TopicPartition(partition.topic, partition.partition)
    start = ask_replicas(client, {node: {key: EARLIEST}}, replica_id=DEBUGGER)[key]
    end = ask_replicas(client, {node: {key: LATEST}}, replica_id=DEBUGGER)[key]
    stored = [
        (directory.path, each.size_bytes)
        for directory in directories
        if directory.node == node
        for each in directory.replicas
        if not each.is_future and (each.topic, each.partition) == key
    ]
    return Replica(
        node=node,
        is_leader=node == partition.leader,
        in_sync=node in partition.isr,
        is_eligible=node in partition.elr,
        start_offset=start.offset if isinstance(start, FoundOffset) else None,
        end_offset=end.offset if isinstance(end, FoundOffset) else None,
        leader_epoch=end.leader_epoch if isinstance(end, FoundOffset) else None,
        size_bytes=stored[0][1] if stored else None,
        directory=stored[0][0] if stored else None,
        error=end.message if isinstance(end, KafkaError) else None,
    )
