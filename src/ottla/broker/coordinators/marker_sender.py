"""Sends the decisions of transactions to the partitions that they concern, until each has its marker.

Owns the markers under way. A node is sent one request at a time; what comes up meanwhile goes into its next one, so
that many transactions share a request. The partitions that this node leads are written to at once: where nobody else
copies them, a transaction is complete before its producer hears that it has ended, and need not wait for the next.

A marker is sent again, to whoever leads the partition then, for as long as this node coordinates the transaction. One
that is written twice does no harm. A partition of a topic that was deleted needs none.

Driven by `runtime.py`: `carry_out` when a decision is committed, `on_unloaded` when this node does not coordinate any
more; and by published metadata, which tells what nodes are not worth waiting for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.node_lines import Line, Lines
from ottla.broker.transactions import transaction_markers
from ottla.broker.transactions.transaction_markers import Marker
from ottla.client.peer import Peers
from ottla.coordinator.outcome import Effect
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.runtime.timers import Timer
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.images import MetadataImage

_log = logging.getLogger(__name__)

RETRY_MS = 100
RETRIED_A_SECOND_MAX = 5_000
"""Decisions. More of them are tried again less often: a partition that nobody leads for a while may keep very many
waiting, and others want the loop, too."""
PARTITIONS_AT_ONCE_MAX = 5_000
"""In one request."""

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # A later epoch has written there, so that nothing of this transaction is open.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""What happens while leaders change."""


class _Job:
    """One decision, of one leadership of the coordinator's partition."""

    __slots__ = ("effect", "leader_epoch", "partition")

    def __init__(self, effect: SendMarkers, partition: int, leader_epoch: int) -> None:
        self.effect = effect
        self.partition = partition
        self.leader_epoch = leader_epoch


Markers = dict[_Job, set[TopicPartition]]


MarkerLine = Line[_Job, set[TopicPartition]]


class MarkerSender:
    """One instance a node."""

    def __init__(self, services: Services, peers: Peers) -> None:
        self._services = services
        self._leader_epochs: dict[int, int] = {}
        """Of the coordinator's partitions that markers are sent for."""
        self._lines: Lines[_Job, set[TopicPartition]] = Lines(services, peers, self._on_line_lost)
        self._later: Markers = {}
        self._retry: Timer | None = None
        self._tried_s = 0.0
        """When what had been put off was last tried again."""
        self._closed = False

    def carry_out(self, partition: int, leader_epoch: int, effect: Effect) -> None:
        assert isinstance(effect, SendMarkers)
        self._leader_epochs[partition] = leader_epoch
        self._send(_Job(effect, partition, leader_epoch), effect.partitions)

    def on_unloaded(self, partition: int) -> None:
        self._leader_epochs.pop(partition, None)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, offset: int) -> None:
        for broker_id in self._lines:
            broker = image.broker(broker_id)
            if broker is None or broker.fenced:
                # Its partitions have other leaders, or wait for one; what it was asked is asked there.
                self._lines.drop(broker_id)

    def close(self) -> None:
        self._closed = True
        self._leader_epochs.clear()
        if self._retry is not None:
            self._retry.cancel()
        self._lines.close()

    # Whom to send to.

    def _send(self, job: _Job, partitions: Iterable[TopicPartition]) -> None:
        if self._leader_epochs.get(job.partition) != job.leader_epoch:
            return  # Whoever coordinates now has sent them again.
        image = self._services.image
        gone: set[TopicPartition] = set()
        here: list[TopicPartition] = []
        for partition in partitions:
            found = image.partition(*partition)
            if found is None:
                gone.add(partition)
                continue
            if found.leader == self._services.node_id:
                here.append(partition)
                continue
            line = self._lines.to(found.leader)
            if line is None:
                self._put_off({job: {partition}})
                continue
            line.waiting.setdefault(job, set()).add(partition)
            if not line.busy:
                line.busy = True
                self._services.spawn(self._converse(line))
        if gone:
            self._report(job, gone)
        if here:
            self._write_here(job, here)

    def _write_here(self, job: _Job, partitions: list[TopicPartition]) -> None:
        effect = job.effect
        marker = Marker(
            producer_id=effect.producer_id,
            producer_epoch=effect.producer_epoch,
            coordinator_epoch=effect.coordinator_epoch,
            commit=effect.commit,
            transaction_version=effect.transaction_version,
        )
        written = transaction_markers.write(self._services, [(marker, partitions)])
        written.when_done(lambda promise: self._on_answer(job, promise.result()[0]))

    def _on_line_lost(self, line: MarkerLine) -> None:
        self._put_off(line.waiting)
        line.waiting = {}

    def _put_off(self, markers: Markers) -> None:
        for job, partitions in markers.items():
            self._later.setdefault(job, set()).update(partitions)
        if self._later and self._retry is None and not self._closed:
            self._retry = self._services.timers.after(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        now_s = self._services.clock.monotonic()
        early_s = self._tried_s + len(self._later) / RETRIED_A_SECOND_MAX - now_s
        if early_s > 0:
            self._retry = self._services.timers.after(max(1, early_s * 1000), self._try_again)
            return
        self._tried_s = now_s
        markers, self._later = self._later, {}
        for job, partitions in markers.items():
            self._send(job, sorted(partitions))

    # Requests.

    async def _converse(self, line: MarkerLine) -> None:
        try:
            while line.waiting and not self._closed:
                batch = self._next_batch(line)
                try:
                    await self._deliver(line, batch)
                except Exception as error:
                    # Whatever it is, no decision is forgotten: what was answered already does no harm.
                    _log.error("a request with markers failed, and is sent again", exc_info=error)
                    self._services.on_bug(error)
                    self._put_off(batch)
        finally:
            line.busy = False

    def _next_batch(self, line: MarkerLine) -> Markers:
        """What goes into one request: of one producer one decision, since answers are by producer id."""
        batch: Markers = {}
        producers: set[int] = set()
        count = 0
        for job in list(line.waiting):
            if count >= PARTITIONS_AT_ONCE_MAX:
                break
            if job.effect.producer_id not in producers:
                producers.add(job.effect.producer_id)
                batch[job] = line.waiting.pop(job)
                count += len(batch[job])
        return batch

    async def _deliver(self, line: MarkerLine, batch: Markers) -> None:
        timeout_ms = self._services.config.get_int("request.timeout.ms")
        assert line.peer is not None  # What this node leads it writes to itself.
        try:
            response = await line.peer.send(_request(batch), WriteTxnMarkersResponse, timeout_ms=timeout_ms)
        except KafkaError as error:
            _log.info("markers of %d transactions were not answered, and are sent again: %s", len(batch), error)
            self._put_off(batch)
            return
        codes = {
            (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code)
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        for job, partitions in batch.items():
            self._on_answer(
                job,
                {
                    # Where nothing is said of a partition, nothing was done.
                    partition: codes.get((job.effect.producer_id, *partition), ErrorCode.REQUEST_TIMED_OUT)
                    for partition in partitions
                },
            )

    def _on_answer(self, job: _Job, codes: dict[TopicPartition, ErrorCode]) -> None:
        done = {partition for partition, code in codes.items() if code in _DONE}
        if done:
            self._report(job, done)
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in codes.values():
            _log.info("transactional id %r is coordinated elsewhere", job.effect.transactional_id)
            return
        again = {partition: code for partition, code in codes.items() if partition not in done}
        for partition, code in again.items():
            if code not in _EXPECTED:
                name = job.effect.transactional_id
                _log.error("%s refused the marker of transactional id %r: %s", partition, name, code.name)
        if again:
            self._put_off({job: set(again)})

    def _report(self, job: _Job, partitions: set[TopicPartition]) -> None:
        effect = job.effect
        self._services.transactions.write(
            effect.transactional_id, lambda shard, now_ms: shard.on_markers_written(effect, partitions, now_ms)
        )


def _request(batch: Markers) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[_marker(job.effect, partitions) for job, partitions in batch.items()])


def _marker(effect: SendMarkers, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, WritableTxnMarkerTopic(name=topic)).partition_indexes.append(index)
    return WritableTxnMarker(
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        transaction_result=effect.commit,
        topics=list(topics.values()),
        coordinator_epoch=effect.coordinator_epoch,
        transaction_version=effect.transaction_version,
    )
