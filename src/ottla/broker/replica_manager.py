"""Owns every partition that this node hosts, and is the only one who appends to them.

It drives the pure `PartitionLeader` with facts from the log (an append, a flush) and carries out the effects: a higher
watermark frees producers at once and consumers at the end of the turn. Metadata tells it which partitions to host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from ottla.broker.hosted import HostedPartition, HostedTopic
from ottla.broker.request_metrics import TopicMeters
from ottla.errors import ErrorCode, KafkaError
from ottla.log import AppendInfo, Flush
from ottla.metadata.images import PartitionImage
from ottla.metrics.registry import Registry
from ottla.model import Uuid
from ottla.partition import Effect, PartitionLeader
from ottla.records.validate import DecompressionBudget, validate_as_it_is, validate_closely
from ottla.runtime import DiskError, Offload, Runtime

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Driven by the produce, fetch and admin handlers and by the metadata publisher, all on one event loop."""

    def __init__(self, node_id: int, runtime: Runtime, registry: Registry) -> None:
        self.node_id = node_id
        self._registry = registry
        self._flush_time = registry.histogram("kafka_log_logflushstats_logflushrateandtimems")
        self._clock = runtime.clock
        self._offload: Offload = runtime.offload
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[Uuid, HostedTopic] = {}
        self._advanced: dict[HostedPartition, None] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self.on_offline: Callable[[HostedPartition, BaseException], None] = lambda partition, error: None
        """The disk under a partition failed; the others on it are the listener's to fail."""

    # Finding partitions.

    def partition(self, topic: str, index: int) -> HostedPartition | None:
        hosted = self.by_name.get(topic)
        return hosted.partitions.get(index) if hosted is not None else None

    def partitions(self) -> Iterator[HostedPartition]:
        for topic in self.by_name.values():
            yield from topic.partitions.values()

    def host(self, partition: HostedPartition) -> None:
        topic = self.by_name.get(partition.topic)
        if topic is None:
            topic = HostedTopic(partition.topic, partition.topic_id, TopicMeters(self._registry, partition.topic))
            self.by_name[partition.topic] = self.by_id[partition.topic_id] = topic
        partition.meters = topic.meters
        topic.partitions[partition.index] = partition

    def forget(self, topic_name: str, index: int) -> HostedPartition | None:
        topic = self.by_name.get(topic_name)
        if topic is None:
            return None
        partition = topic.partitions.pop(index, None)
        if not topic.partitions:
            del self.by_name[topic_name]
            del self.by_id[topic.topic_id]
            topic.meters.remove()
        if partition is not None:
            partition.forgotten = True
            self._let_go(partition)
        return partition

    def resign(self, partition: HostedPartition) -> None:
        """We no longer lead: what was appended may or may not survive, and those who wait are told so."""
        partition.leader = None
        self._let_go(partition)

    def leader_or_refuse(self, partition: HostedPartition, leader_epoch: int = -1) -> None:
        """Refuse, with Kafka's code, what only the leader of `leader_epoch` (negative: any) may answer (KIP-320)."""
        if partition.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk that holds the partition failed.")
        leader = partition.leader
        current = leader.leader_epoch if leader is not None else partition.log.epochs.latest_epoch
        if leader_epoch >= 0 and current is not None:
            if leader_epoch < current:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if leader_epoch > current:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Appending.

    def produce(
        self,
        partition: HostedPartition,
        batch: memoryview,
        acks: int,
        api_version: int,
        budget: DecompressionBudget | None = None,
    ) -> AppendInfo:
        """Validate one produced batch and append it. Raises `KafkaError`; then nothing was appended."""
        meters = partition.meters
        meters.produces.value += 1
        leader = partition.leader
        if leader is None or partition.offline:
            self.leader_or_refuse(partition)
            assert leader is not None
        if acks == -1 and not leader.has_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        now_ms = self._clock.wall_ms()
        stored = batch
        header = validate_as_it_is(batch, partition.rules, now_ms)
        if header is None:
            stored, header, _ = validate_closely(batch, partition.rules, now_ms, api_version >= 7, budget)
        log = partition.log
        try:
            appended = log.append(stored, header, leader_epoch=leader.leader_epoch, now_ms=now_ms)
        except DiskError as error:
            self.fail(partition, error)
            raise
        if not appended.duplicate:
            meters.messages_in.value += appended.last_offset - appended.first_offset + 1
            meters.bytes_in.value += len(batch)
            # With `flush.messages` a record counts only after its fsync: it waits at the gate, as do those after it.
            if not partition.gated:
                end_offset = log.log_end_offset
                if end_offset - log.recovery_point >= log.config.flush_messages:
                    partition.gated = True
                    self.flush(partition)
                else:
                    partition.durable_offset = end_offset
                    self._on_durable(partition)
        return appended

    def _on_durable(self, partition: HostedPartition) -> None:
        """The durable offset moved: our own log end, as far as replication is concerned."""
        offset = partition.durable_offset
        waiters = partition.durable_waiters
        while waiters and waiters[0][0] <= offset:
            required, waiter = waiters.popleft()
            waiter.on_safe(partition, required)
        leader = partition.leader
        if leader is not None:
            effects = leader.on_log_end(self.node_id, offset)
            if effects:
                self._carry_out(partition, effects)

    def _carry_out(self, partition: HostedPartition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            offset = effect.offset
            partition.log.update_high_watermark(offset)
            waiters = partition.watermark_waiters
            while waiters and waiters[0][0] <= offset:
                required, waiter = waiters.popleft()
                waiter.on_safe(partition, required)
            if partition.fetch_waiters:
                self._advanced[partition] = None

    def wake_fetches(self) -> None:
        """Tell waiting fetches which partitions moved; called at the end of a turn, after the producers' replies."""
        while self._advanced:
            advanced, self._advanced = self._advanced, {}
            for partition in advanced:
                for waiter in list(partition.fetch_waiters):
                    waiter.on_advance(partition)

    # Leading.

    def lead(self, partition: HostedPartition, image: PartitionImage) -> None:
        """Lead from now on, in a new leader epoch. Our own log end may be all that the high watermark waits for."""
        log = partition.log
        try:
            # Before any append: back-to-back elections would break truncation without the entry (KIP-279).
            log.begin_epoch(image.leader_epoch)
        except DiskError as error:
            self.fail(partition, error)
            return
        partition.leader = PartitionLeader(
            replica_id=self.node_id,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            start_offset=log.log_end_offset,
            replicas=image.replicas,
            isr=frozenset(image.isr),
            min_isr=partition.min_isr,
            high_watermark=log.high_watermark,
        )
        if log.unflushed_messages >= log.config.flush_messages:
            # What an earlier leadership left unsynced waits at the gate like anything else.
            partition.durable_offset = log.recovery_point
            partition.gated = True
            self.flush(partition)
        else:
            partition.durable_offset = log.log_end_offset
            partition.gated = False
        self._on_durable(partition)
        self.wake_fetches()

    def on_partition_changed(self, partition: HostedPartition, image: PartitionImage) -> None:
        """Replicas or ISR are others now, under the same leader epoch."""
        assert partition.leader is not None
        effects = partition.leader.on_partition(image.partition_epoch, image.replicas, frozenset(image.isr))
        self._carry_out(partition, effects)
        self.wake_fetches()

    def on_min_isr(self, partition: HostedPartition) -> None:
        leader = partition.leader
        if leader is not None and leader.min_isr != partition.min_isr:
            self._carry_out(partition, leader.on_min_isr(partition.min_isr))
            self.wake_fetches()

    # Flushing.

    def flush(self, partition: HostedPartition) -> None:
        """Make the log durable off the loop; appends go on meanwhile, and those it misses are flushed after it."""
        if partition.flushing or partition.offline:
            return
        partition.flushing = True
        flush = partition.log.prepare_flush()
        began_s = self._clock.monotonic()
        self._spawn(self._offload.run(flush.run), partial(self._on_flushed, partition, flush, began_s))

    def _on_flushed(
        self, partition: HostedPartition, flush: Flush, began_s: float, failure: BaseException | None
    ) -> None:
        partition.flushing = False
        if failure is not None or partition.forgotten:
            partition.log.on_flush_ended(flush)
            if failure is not None and not partition.forgotten:
                self.fail(partition, failure)
            return
        self._flush_time.observe(int((self._clock.monotonic() - began_s) * 1e6))
        log = partition.log
        log.on_flushed(flush, self._clock.wall_ms())
        if not partition.gated:
            return
        if log.unflushed_messages >= log.config.flush_messages:
            partition.durable_offset = max(partition.durable_offset, log.recovery_point)
            self.flush(partition)
        else:
            partition.gated = False
            partition.durable_offset = log.log_end_offset
        self._on_durable(partition)
        self.wake_fetches()

    def _spawn(self, work: Awaitable[None], then: Callable[[BaseException | None], None]) -> None:
        future = asyncio.ensure_future(work)
        self._tasks.add(future)

        def done(finished: asyncio.Future[None]) -> None:
            self._tasks.discard(finished)
            then(None if finished.cancelled() else finished.exception())

        future.add_done_callback(done)

    async def drain(self) -> None:
        """Wait for the flushes under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    # Failing.

    def fail(self, partition: HostedPartition, error: BaseException) -> None:
        """A failed disk fences the replica: what the failed write or sync held is not known, so nothing is retried."""
        if partition.offline:
            return
        partition.offline = True
        self._let_go(partition)
        self.on_offline(partition, error)

    def _let_go(self, partition: HostedPartition) -> None:
        for waiters in (partition.durable_waiters, partition.watermark_waiters):
            while waiters:
                required, waiter = waiters.popleft()
                waiter.on_lost(partition, required)
        if partition.fetch_waiters:
            self._advanced[partition] = None
            self.wake_fetches()
