"""Writes the markers that end transactions into the partitions that this node leads.

A marker is a control batch in the name of the producer (KIP-98); the log checks whether it still may end anything, and
a repeated one ends in success. Whoever asks is answered when the markers are committed.

Driven by WriteTxnMarkers, and by the transaction coordinator of this very node.
"""

from __future__ import annotations

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


def write(services: Services, markers: list[tuple[Marker, list[TopicPartition]]]) -> Promise[list[Codes]]:
    """What became of each marker in each of its partitions, once all of that is known; which may be now."""
    results: list[Codes] = [{} for _ in markers]
    writing = _Writing(results)
    for (marker, partitions), codes in zip(markers, results, strict=True):
        invalid = _invalid(marker)
        if invalid is not None:
            codes.update(dict.fromkeys(partitions, invalid))
            continue
        for topic_partition in partitions:
            if topic_partition.topic == GROUP_TOPIC:
                # The transaction committed offsets of a group, whose coordinator must hear of its end.
                written = services.groups.complete_transaction(topic_partition.partition, *marker)
                writing.wait_for_group(codes, topic_partition, written)
                continue
            partition = services.replicas.partition(*topic_partition)
            if partition is None or partition.offline:
                codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                end_offset = _append(services, marker, partition)
            except KafkaError as error:
                codes[topic_partition] = error.code
            else:
                codes[topic_partition] = ErrorCode.NONE
                if end_offset > partition.log.high_watermark:
                    writing.uncommitted.append((codes, partition, end_offset))
    services.replicas.wake_fetches()
    return writing.start(services)


class _Writing:
    """Waits until it is known of every marker whether it is committed."""

    def __init__(self, results: list[Codes]) -> None:
        self.uncommitted: list[tuple[Codes, HostedPartition, int]] = []
        self._results = results
        self._promise: Promise[list[Codes]] = Promise()
        self._left = 1

    def wait_for_group(self, codes: Codes, topic_partition: TopicPartition, written: Promise[None]) -> None:
        self._left += 1

        def on_written(promise: Promise[None]) -> None:
            codes[topic_partition] = _code_of(promise)
            self._one_less()

        written.when_done(on_written)

    def start(self, services: Services) -> Promise[list[Codes]]:
        if self.uncommitted:
            self._left += 1
            delayed = DelayedProduce(self._on_committed, services.metrics.expired_produces)
            for _, partition, end_offset in self.uncommitted:
                delayed.wait_for(partition, end_offset, committed=True)
            delayed.start(services.timers, services.config.get_int("request.timeout.ms"))
        self._one_less()
        return self._promise

    def _on_committed(self, unsafe: Unsafe) -> None:
        for codes, partition, end_offset in self.uncommitted:
            codes[partition.topic_partition] = unsafe.get((partition, end_offset), ErrorCode.NONE)
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._promise.resolve(self._results)


def _code_of(written: Promise[None]) -> ErrorCode:
    try:
        written.result()
    except KafkaError as error:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NO_COORDINATOR else error.code
    return ErrorCode.NONE


def _invalid(marker: Marker) -> ErrorCode | None:
    """Why no partition can take the marker, if that is so."""
    if marker.producer_id < 0:
        return ErrorCode.INVALID_REQUEST  # A marker ends the transaction of a producer.
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else None


def _append(services: Services, marker: Marker, partition: HostedPartition) -> int:
    """Where the log ends with it (exclusive)."""
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
