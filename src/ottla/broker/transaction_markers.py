"""Writes the markers that end transactions into the partitions that this node leads.

A marker is a control batch in the name of the producer (KIP-98); the log checks whether it still may end anything, and
a repeated one ends in success. Whoever asks is answered when the markers are committed.

Driven by WriteTxnMarkers, and by the transaction coordinator of this very node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.hosted import HostedPartition
from ottla.broker.promise import Promise
from ottla.broker.purgatory import DelayedProduce, Unsafe
from ottla.errors import ErrorCode, KafkaError
from ottla.model import GROUP_TOPIC, TopicPartition
from ottla.records import end_txn_batch

if TYPE_CHECKING:
    from ottla.broker.services import Services


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


Codes = dict[TopicPartition, ErrorCode]

_NO_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a transaction's coordinator hears of as a partition that is led elsewhere, or not at all."""


async def write(services: Services, markers: list[tuple[Marker, list[TopicPartition]]]) -> list[Codes]:
    """What became of each marker in each of its partitions, once all of that is known."""
    results: list[Codes] = [{} for _ in markers]
    appended: list[tuple[Codes, HostedPartition, int]] = []
    of_groups: list[tuple[Codes, TopicPartition, Promise[None]]] = []
    for (marker, partitions), codes in zip(markers, results, strict=True):
        for topic_partition in partitions:
            if topic_partition.topic == GROUP_TOPIC:
                # The transaction committed offsets of a group, whose coordinator must hear of its end.
                written = services.groups.complete_transaction(topic_partition.partition, *marker)
                of_groups.append((codes, topic_partition, written))
                continue
            partition = services.replicas.partition(*topic_partition)
            if partition is None or partition.offline:
                codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                appended.append((codes, partition, _append(services, marker, partition)))
            except KafkaError as error:
                codes[topic_partition] = error.code
    services.replicas.wake_fetches()
    unsafe = await _until_committed(services, [(partition, end_offset) for _, partition, end_offset in appended])
    for codes, partition, end_offset in appended:
        codes[partition.topic_partition] = unsafe.get((partition, end_offset), ErrorCode.NONE)
    for codes, topic_partition, written in of_groups:
        codes[topic_partition] = await _code_of(written)
    return results


async def _code_of(written: Promise[None]) -> ErrorCode:
    try:
        await written
    except KafkaError as error:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NO_COORDINATOR else error.code
    return ErrorCode.NONE


def _append(services: Services, marker: Marker, partition: HostedPartition) -> int:
    """Where the log ends with it (exclusive)."""
    if marker.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A marker ends the transaction of a producer.")
    if marker.producer_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    batch = end_txn_batch(
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=services.clock.wall_ms(),
    )
    info = services.replicas.append_by_coordinator(
        partition, memoryview(batch), transaction_version=marker.transaction_version
    )
    return info.last_offset + 1


def _until_committed(services: Services, appended: list[tuple[HostedPartition, int]]) -> Awaitable[Unsafe]:
    future: asyncio.Future[Unsafe] = asyncio.get_running_loop().create_future()
    waits = [(partition, end) for partition, end in appended if end > partition.log.high_watermark]
    if not waits:
        future.set_result({})
        return future
    delayed = DelayedProduce(future.set_result, services.metrics.expired_produces)
    for partition, end_offset in waits:
        delayed.wait_for(partition, end_offset, committed=True)
    delayed.start(services.timers, services.config.get_int("request.timeout.ms"))
    return future
