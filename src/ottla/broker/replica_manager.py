"""Owns every partition that this node hosts, gives each its role, and is the only one who appends as a leader.

It drives the pure `PartitionLeader` with facts from the log (an append, a flush), from followers (their fetches), from
the controller and from the clock, and carries out the effects: a higher watermark frees producers at once and consumers
at the end of the turn, another in-sync set is proposed to the controller. Metadata tells it which partitions to host.

`fail` is the one door for a disk that failed: whoever meets a `DiskError` of a partition comes here with it. That for a
disk that lied, and what a replica may do that lacks committed records, is in `replication/lacking`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import assert_never

from ottla.broker.hosted import Fetchers, HostedPartition, HostedTopic, LeadershipListener, ReplicaReader
from ottla.broker.monitoring.request_metrics import TopicMeters
from ottla.broker.replication.lacking import LackingReplicas
from ottla.errors import ErrorCode, KafkaError
from ottla.log import AppendInfo, AppendOrigin, Flush, Log, VerificationGuard
from ottla.metadata.images import NO_LEADER, MetadataImage, PartitionImage
from ottla.metrics.registry import Registry
from ottla.model import TopicPartition, Uuid
from ottla.partition import Effect, Heard, HighWatermarkAdvanced, LiveBroker, PartitionLeader, ProposeIsr
from ottla.partition.follower import PartitionFollower
from ottla.records import TimestampType, read_header
from ottla.records.validate import DecompressionBudget, stamp, validate_as_it_is, validate_closely
from ottla.runtime import DiskError, Offload, Runtime


class NoFetchers:
    """Where there is nobody to copy from: a node alone."""

    def follow(self, partition: HostedPartition, leader_id: int, leader_epoch: int) -> None:
        pass

    def unfollow(self, partition: HostedPartition) -> None:
        pass

    def on_metadata(self, image: MetadataImage) -> None:
        pass

    def followed(self) -> Iterator[tuple[TopicPartition, PartitionFollower]]:
        return iter(())

    @property
    def lag_max(self) -> int:
        return 0


class ReplicaManager:
    """Driven by the produce, fetch and admin handlers, by the metadata publisher, by the replica fetchers, by whoever
    speaks to the controller (`replication/isr_changes`) and by a timer, all on one event loop."""

    def __init__(self, node_id: int, runtime: Runtime, registry: Registry, lag_ms_max: int = 30_000) -> None:
        """`lag_ms_max` is `replica.lag.time.max.ms`."""
        self.node_id = node_id
        self._lag_ms_max = lag_ms_max
        self._registry = registry
        self._flush_time = registry.histogram("kafka_log_logflushstats_logflushrateandtimems")
        self._clock = runtime.clock
        self._offload: Offload = runtime.offload
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[Uuid, HostedTopic] = {}
        self._advanced: dict[HostedPartition, None] = {}
        """Partitions whose watermark moved, or whose role did, since the waiting fetches were last told."""
        self._appended: dict[HostedPartition, None] = {}
        """Partitions whose log has grown, which is news to followers only."""
        self._waking = False
        self._brokers: dict[int, LiveBroker] = {}
        self.fetchers: Fetchers = NoFetchers()
        self.propose_isr: Callable[[HostedPartition, ProposeIsr], None]
        """Takes a proposal to the controller, and comes back with `on_alter_partition_result`."""
        self.leaderships: dict[str, LeadershipListener] = {}
        """Who wants to know when this node begins and ceases to lead a partition, by the name of the topic."""
        self._tasks: set[asyncio.Future[None]] = set()
        self.on_offline: Callable[[HostedPartition, BaseException], None]
        """The disk under a partition failed; the others on it are the listener's to fail."""
        self.lacking = LackingReplicas(
            node_id, resign=self.resign, unfollow=self._unfollow, wake_all=self._wake_all, fail=self.fail
        )

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
        self.lacking.on_hosted(partition)

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
            partition.leader = None
            self._unfollow(partition)
            self._let_go(partition)
        return partition

    def replica_or_refuse(self, partition: HostedPartition, leader_epoch: int = -1) -> None:
        """Refuse, with Kafka's code, what only a replica in `leader_epoch` (negative: any) may answer (KIP-320)."""
        if partition.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk that holds the partition failed.")
        if leader_epoch >= 0:
            current = partition.image.leader_epoch
            if leader_epoch < current:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if leader_epoch > current:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def leader_or_refuse(self, partition: HostedPartition, leader_epoch: int = -1) -> None:
        """The same, of what only the leader may answer. The epoch comes first: it tells the asker more."""
        self.replica_or_refuse(partition, leader_epoch)
        if partition.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Appending.

    def produce(
        self,
        partition: HostedPartition,
        batch: memoryview,
        acks: int,
        api_version: int,
        budget: DecompressionBudget | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Validate one produced batch and append it. Raises `KafkaError`; then nothing was appended.

        A transactional batch needs a `guard`, from `broker/transactions/verification`.
        """
        meters = partition.meters
        meters.produces.value += 1
        leader = partition.leader
        if leader is None:
            self.leader_or_refuse(partition)
            raise AssertionError
        if acks == -1 and not leader.has_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        wall_ms = self._clock.wall_ms()
        stored = batch
        header = validate_as_it_is(batch, partition.rules, wall_ms)
        if header is None:
            stored, header, _ = validate_closely(batch, partition.rules, wall_ms, api_version >= 7, budget)
        log = partition.log
        try:
            appended = log.append(
                stored, header, leader_epoch=leader.leader_epoch, now_ms=wall_ms, verification_guard=guard
            )
        except DiskError as error:
            self.fail(partition, error)
            raise
        if not appended.duplicate:
            meters.messages_in.value += appended.last_offset - appended.first_offset + 1
            meters.bytes_in.value += len(batch)
            # What `_on_appended` does, in line: this is the way of every record that is produced.
            if not partition.gated:
                end_offset = log.log_end_offset
                if end_offset - log.recovery_point >= log.config.flush_messages:  # `Log.owes_flush`
                    partition.gated = True
                    self.flush(partition)
                else:
                    partition.durable_offset = end_offset
                    if leader.alone and not partition.durable_waiters and not partition.watermark_waiters:
                        # `_on_durable` in line, for a partition that nobody copies and nobody waits for.
                        if leader.on_log_end_alone(end_offset):
                            log.high_watermark = end_offset
                            if log.producers.has_unreplicated:
                                log.producers.on_high_watermark(end_offset)
                            if partition.fetch_waiters:
                                self._advanced[partition] = None
                    else:
                        self._on_durable(partition)
            if partition.replica_readers:
                self._appended[partition] = None
        return appended

    def produce_internally(
        self,
        partition: HostedPartition,
        batch: memoryview,
        acks: int,
        api_version: int,
        budget: DecompressionBudget | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """`produce` to an internal topic: the coordinator that writes there too, if one does, hears of it."""
        listener = self.leaderships.get(partition.topic) if partition.leader is not None else None
        if listener is None:
            return self.produce(partition, batch, acks, api_version, budget, guard)
        listener.before_outsider(partition)
        appended = self.produce(partition, batch, acks, api_version, budget, guard)
        if not appended.duplicate:
            listener.on_outsider(partition, batch, appended.first_offset)
        return appended

    def append_by_coordinator(
        self,
        partition: HostedPartition,
        batch: memoryview,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append a batch that a coordinator of this node made: its records, or a transaction's marker.

        As safe as `acks=all` asks: refused where too few replicas are in sync, and the caller waits for the high
        watermark. Raises `KafkaError`; then nothing was appended.
        """
        leader = partition.leader
        if leader is None:
            self.leader_or_refuse(partition)
            raise AssertionError
        if not leader.has_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        wall_ms = self._clock.wall_ms()
        header = read_header(batch)
        rules = partition.rules
        if len(batch) > rules.max_message_bytes and not header.is_control:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A batch of {len(batch)} bytes is larger than the topic's {rules.max_message_bytes}.",
            )
        if rules.timestamp_type == TimestampType.LOG_APPEND_TIME:
            header = stamp(batch, header, wall_ms)
        log = partition.log
        try:
            appended = log.append(
                batch,
                header,
                leader_epoch=leader.leader_epoch,
                now_ms=wall_ms,
                origin=AppendOrigin.COORDINATOR,
                verification_guard=guard,
                transaction_version=transaction_version,
            )
        except DiskError as error:
            self.fail(partition, error)
            raise
        self._on_appended(partition, appended, len(batch))
        return appended

    def _on_appended(self, partition: HostedPartition, appended: AppendInfo, size: int) -> None:
        """With `flush.messages` a record counts only after its fsync: it waits at the gate, as do those after it."""
        meters, log = partition.meters, partition.log
        meters.messages_in.value += appended.last_offset - appended.first_offset + 1
        meters.bytes_in.value += size
        if not partition.gated:
            if log.owes_flush:
                partition.gated = True
                self.flush(partition)
            else:
                partition.durable_offset = log.log_end_offset
                self._on_durable(partition)
        if partition.replica_readers:
            self._appended[partition] = None

    def _on_durable(self, partition: HostedPartition) -> None:
        """The durable offset moved: our own log end, as far as replication is concerned."""
        offset = partition.durable_offset
        waiters = partition.durable_waiters
        while waiters and waiters[0][0] <= offset:
            required, waiter = waiters.popleft()
            waiter.on_safe(partition, required)
        leader = partition.leader
        if leader is not None:
            if leader.alone:
                if leader.on_log_end_alone(offset):
                    self._on_high_watermark(partition, offset)
            elif effects := leader.on_log_end(offset, self.monotonic_ms()):
                self._carry_out(partition, effects)

    def monotonic_ms(self) -> int:
        """The time of the pure machines, which knows no calendar."""
        return int(self._clock.monotonic() * 1000)

    def _carry_out(self, partition: HostedPartition, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(offset=offset):
                    self._on_high_watermark(partition, offset)
                case ProposeIsr():
                    self.propose_isr(partition, effect)
                case _:
                    assert_never(effect)

    def _on_high_watermark(self, partition: HostedPartition, offset: int) -> None:
        partition.log.update_high_watermark(offset)
        waiters = partition.watermark_waiters
        while waiters and waiters[0][0] <= offset:
            required, waiter = waiters.popleft()
            waiter.on_safe(partition, required)
        if partition.fetch_waiters or partition.replica_readers:
            self._advanced[partition] = None

    def wake_fetches(self) -> None:
        """Tell waiting fetches which partitions moved; called at the end of a turn, after the producers' replies."""
        while self._advanced or self._appended:
            advanced, self._advanced = self._advanced, {}
            appended, self._appended = self._appended, {}
            stirred: dict[ReplicaReader, None] = {}
            for partition in appended:
                for reader in partition.replica_readers:
                    if reader.on_append(partition):
                        stirred[reader] = None
            for partition in advanced:
                for reader in partition.replica_readers:
                    if reader.on_watermark(partition):
                        stirred[reader] = None
            for reader in stirred:
                reader.wake()
            for partition in advanced:
                for waiter in list(partition.fetch_waiters):
                    waiter.on_advance(partition)

    def touch(self, partition: HostedPartition) -> None:
        """Something about the partition changed that everybody who reads it should look at."""
        if partition.fetch_waiters:
            self._advanced[partition] = None
        if partition.replica_readers:
            self._appended[partition] = None

    def touch_all(self) -> None:
        """The same of all, such as after retention moved log starts."""
        for partition in self.partitions():
            self.touch(partition)
        self.wake_fetches()

    def _wake_all(self, partition: HostedPartition) -> None:
        self.touch(partition)
        self.wake_fetches()

    def on_follower_advanced(self, partition: HostedPartition) -> None:
        """Our copy of a partition that we follow has grown, or its watermark has: consumers may be reading it here."""
        if partition.fetch_waiters:
            self._advanced[partition] = None
            if not self._waking:
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self.wake_fetches()

    # Roles.

    def lead(self, partition: HostedPartition, image: PartitionImage) -> None:
        """Lead from now on, in a new leader epoch, if we may. Our own log end may be all that the high watermark waits
        for."""
        log = partition.log
        partition.image = image
        self._unfollow(partition)
        try:
            if not self.lacking.may_lead(partition):
                return
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
            now_ms=self.monotonic_ms(),
            lag_ms_max=self._lag_ms_max,
            brokers=self._brokers,
        )
        if log.owes_flush:
            # What an earlier leadership left unsynced waits at the gate like anything else.
            partition.durable_offset = log.recovery_point
            partition.gated = True
            self.flush(partition)
        else:
            partition.durable_offset = log.log_end_offset
            partition.gated = False
        self._on_durable(partition)
        self._wake_all(partition)
        if (listener := self.leaderships.get(partition.topic)) is not None:
            listener.on_elected(partition)

    def on_partition_changed(self, partition: HostedPartition, image: PartitionImage) -> None:
        """Replicas or ISR are others now, under the same leader epoch."""
        leader = partition.leader
        assert leader is not None
        partition.image = image
        if self.lacking.gives_up(partition):
            return
        isr, now_ms = frozenset(image.isr), self.monotonic_ms()
        effects = leader.on_partition(image.partition_epoch, image.replicas, isr, partition.min_isr, now_ms)
        self._carry_out(partition, effects)
        self._check_low_watermark(partition)
        # A fetch of a replica that was taken away is to learn of it.
        self._wake_all(partition)

    def follow(self, partition: HostedPartition, image: PartitionImage) -> None:
        """Copy from the leader that `image` names, if it names one."""
        before, partition.image = partition.image, image
        if partition.leader is not None:
            self.resign(partition)
        if not self.lacking.mend(partition, before):
            return
        if image.leader == NO_LEADER:
            self._unfollow(partition)
        elif partition.following != (image.leader, image.leader_epoch):
            partition.following = (image.leader, image.leader_epoch)
            self.fetchers.follow(partition, image.leader, image.leader_epoch)
        self._wake_all(partition)

    def resign(self, partition: HostedPartition) -> None:
        """We no longer lead: what was appended may or may not survive, and those who wait are told so."""
        partition.leader = None
        self._let_go(partition)

    def _unfollow(self, partition: HostedPartition) -> None:
        if partition.following is not None:
            partition.following = None
            self.fetchers.unfollow(partition)
            while partition.durable_waiters:
                required, waiter = partition.durable_waiters.popleft()
                waiter.on_lost(partition, required)

    def replace_log(self, partition: HostedPartition, log: Log) -> None:
        """`log` holds what the partition's log does, all of it on the disk, and is its log from now on: the replica has
        moved to another directory. The role stays, and so does everybody who waits."""
        old, partition.log = partition.log, log
        log.update_high_watermark(old.high_watermark)
        log.missing_until = old.missing_until
        log.producers.take_over_verifications(old.producers)
        partition.durable_offset = log.log_end_offset
        partition.gated = partition.flushing = False
        if partition.leader is not None:
            log.begin_epoch(partition.leader.leader_epoch)
        elif partition.following is not None:
            # What is under way was asked for the old log.
            leader, leader_epoch = partition.following
            self._unfollow(partition)
            partition.following = (leader, leader_epoch)
            self.fetchers.follow(partition, leader, leader_epoch)
        self._on_durable(partition)
        self._wake_all(partition)

    # The in-sync set.

    def on_follower_fetch(
        self,
        partition: HostedPartition,
        replica: int,
        broker_epoch: int,
        fetch_offset: int,
        log_end_at_read: int,
        log_start: int,
        heard: Heard,
    ) -> None:
        """A follower whose fetch was served holds everything before `fetch_offset`. The fetch came when `heard` says,
        and so will others that do not name the partition."""
        leader = partition.leader
        assert leader is not None
        effects = leader.on_fetch(
            replica, broker_epoch, fetch_offset, log_end_at_read, heard.ms, log_start=log_start, heard=heard
        )
        if effects:
            self._carry_out(partition, effects)
        if partition.delete_waiters:
            self._check_low_watermark(partition)

    def on_alter_partition_result(self, partition: HostedPartition, proposal: ProposeIsr, error: ErrorCode) -> None:
        leader = partition.leader
        if leader is not None:
            self._carry_out(partition, leader.on_alter_partition_result(proposal, error, self.monotonic_ms()))

    def on_brokers(self, image: MetadataImage) -> None:
        """Brokers were registered, fenced, unfenced or began to shut down."""
        self._brokers = {
            broker.broker_id: LiveBroker(broker.epoch, broker.in_controlled_shutdown)
            for broker in image.alive_brokers()
        }
        now_ms = self.monotonic_ms()
        for partition in self.partitions():
            leader = partition.leader
            if leader is not None and not leader.alone:
                self._carry_out(partition, leader.on_brokers(self._brokers, now_ms))
                self._check_low_watermark(partition)
        self.wake_fetches()

    def on_min_isr(self, partition: HostedPartition) -> None:
        """The minimum may be another now: a leader who has not heard of it with other news hears of it here."""
        leader = partition.leader
        if leader is not None and leader.min_isr != partition.min_isr:
            self._carry_out(partition, leader.on_min_isr(partition.min_isr, self.monotonic_ms()))
            self.wake_fetches()

    def on_tick(self) -> None:
        """Called every half `replica.lag.time.max.ms`: who has fallen behind leaves the in-sync set."""
        now_ms = self.monotonic_ms()
        for partition in self.partitions():
            leader = partition.leader
            if leader is not None and not leader.alone:
                self._carry_out(partition, leader.on_tick(now_ms))
        self.wake_fetches()

    def _check_low_watermark(self, partition: HostedPartition) -> None:
        leader = partition.leader
        if leader is not None and partition.delete_waiters:
            offset = leader.low_watermark(partition.log.log_start_offset)
            for waiter in list(partition.delete_waiters):
                if waiter.on_low_watermark(partition, offset):
                    del partition.delete_waiters[waiter]

    # Flushing.

    def flush(self, partition: HostedPartition) -> None:
        """Make the log durable off the loop; appends go on meanwhile, and those it misses are flushed after it."""
        if partition.flushing or partition.offline:
            return
        partition.flushing = True
        log = partition.log
        flush = log.prepare_flush()
        began_s = self._clock.monotonic()
        self._spawn(self._offload.run(flush.run), partial(self._on_flushed, partition, log, flush, began_s))

    def _on_flushed(
        self, partition: HostedPartition, log: Log, flush: Flush, began_s: float, failure: BaseException | None
    ) -> None:
        if log is not partition.log:
            log.on_flush_ended(flush)  # Another has taken its place, with all of it on the disk.
            return
        partition.flushing = False
        if failure is not None or partition.forgotten:
            log.on_flush_ended(flush)
            if failure is not None and not partition.forgotten:
                self.fail(partition, failure)
            return
        self._flush_time.observe(int((self._clock.monotonic() - began_s) * 1e6))
        log.on_flushed(flush, self._clock.wall_ms())
        if not partition.gated:
            return
        if log.owes_flush:
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
        if partition.failed:
            return
        partition.failed = partition.log.offline = True
        partition.leader = None
        self._unfollow(partition)
        self._let_go(partition)
        self.on_offline(partition, error)

    def fail_offline(self, error: BaseException) -> None:
        """Work on the logs met a disk error: whichever log went offline by it takes its partition along."""
        for partition in list(self.partitions()):
            if partition.offline:
                self.fail(partition, error)

    def _let_go(self, partition: HostedPartition) -> None:
        for waiters in (partition.durable_waiters, partition.watermark_waiters):
            while waiters:
                required, waiter = waiters.popleft()
                waiter.on_lost(partition, required)
        while partition.delete_waiters:
            partition.delete_waiters.popitem()[0].on_lost(partition)
        if (listener := self.leaderships.get(partition.topic)) is not None:
            listener.on_resigned(partition)
        self._wake_all(partition)
