"""One shard in one leadership of its partition: takes what it decides, and makes it so.

    an outcome ─► its records are replayed, at the offsets that they will have ─► gathered with those of the same turn
    of the loop ─► appended as one batch ─► the high watermark passes it ─► answers leave, effects are carried out

Batches follow each other without waiting: a request sees the newest state, and is answered when that is committed. An
outcome without records waits for the last batch before it. A batch that cannot be appended is undone, alone: those
before it are in the log, and there are none after it.

States: loading → active → closed; loading → failed → closed. Driven by `runtime.py`, by the partition's high watermark
and by timers, on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.refusals import as_told
from ottla.broker.hosted import HostedPartition
from ottla.broker.promise import Promise, broken
from ottla.coordinator.outcome import Answer, AnyEffect, CancelTimer, Effect, Outcome, SetTimer
from ottla.coordinator.shard import Shard
from ottla.coordinator.stored import AnyRecord, EncodedRecord, StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers import VerificationGuard
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records import HEADER_SIZE, BatchBuilder, TimestampType, end_txn_batch
from ottla.runtime.timers import Deadline, Timer

if TYPE_CHECKING:
    from ottla.broker.coordinators.runtime import CoordinatorRuntime

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

TIMER_RETRY_MS = 500
"""After which a timer whose outcome could not be written is called again, as in Kafka."""
_RECORD_OVERHEAD_MAX = 32
"""What a record needs beside its key and value: lengths, offset, timestamp."""

TimerKey = tuple[str, ...]
KeyValue = tuple[bytes, bytes | None]
Records = list[StoredRecord] | list[AnyRecord]


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


class Wait:
    """What happens when a batch is committed, or is not: one outcome's promise, answers, effects and tag."""

    __slots__ = ("effects", "promise", "retry", "tag", "token")

    def __init__(
        self,
        promise: Promise[object] | None,
        effects: list[AnyEffect],
        tag: object = None,
        token: int | None = None,
        retry: TimerKey | None = None,
    ) -> None:
        self.promise = promise
        self.effects = effects
        self.tag = tag
        self.token = token
        """Of the request that made the outcome, if it is one that waits."""
        self.retry = retry
        """The timer that made it, if it was one."""


class Batch:
    """Records that are appended together, and those who wait for them. It may be of no records: then it stands for the
    end of the batch before."""

    __slots__ = ("end_offset", "first_offset", "timer", "waits")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = self.end_offset = first_offset
        self.waits: list[Wait | Promise[object]] = []
        """A promise by itself is an outcome that has nothing else to it, as most have."""
        self.timer: Timer | None = None


class GrowingBatch(Batch):
    """One that more records may be added to, until it is appended."""

    __slots__ = ("now_ms", "records", "size")

    def __init__(self, first_offset: int, now_ms: int) -> None:
        super().__init__(first_offset)
        self.now_ms = now_ms
        self.records: list[KeyValue] = []
        self.size = 0
        """Of the records in the batch, at most."""


class ServedShard(Generic[S]):
    """One instance for each leadership of a partition of a coordinator's topic."""

    def __init__(self, runtime: CoordinatorRuntime[S], partition: HostedPartition, leader_epoch: int, shard: S) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ShardState.LOADING
        self.active = False
        self.next_offset = 0
        """Of the next record that is made; set when the log has been read."""
        self._runtime = runtime
        self._services = runtime.services
        self._timeline = shard.timeline
        self._encode = runtime.kinds.encode
        self._loop = asyncio.get_running_loop()
        self._gathering: GrowingBatch | None = None
        self._uncommitted: deque[Batch] = deque()
        """In the order of their offsets: appended, and above the high watermark."""
        self._tokens: dict[int, Promise[object]] = {}
        self._next_token = 1
        self._timers: dict[TimerKey, Deadline] = {}

    @property
    def closed(self) -> bool:
        return self.state is ShardState.CLOSED

    # What is asked of the shard.

    def write(self, operation: Callable[[S, int], Outcome[R]]) -> Promise[R]:
        now_ms = self._services.clock.wall_ms()
        try:
            outcome = operation(self.shard, now_ms)
        except KafkaError as error:
            return broken(error)
        promise: Promise[R] = Promise()
        self._take(outcome, now_ms, promise)
        return promise

    def write_waiting(self, operation: Callable[[S, int, int], Outcome[R]]) -> Promise[R]:
        now_ms = self._services.clock.wall_ms()
        token = self._next_token
        self._next_token = token + 1
        promise: Promise[R] = Promise()
        self._tokens[token] = promise  # type: ignore[assignment]
        try:
            outcome = operation(self.shard, token, now_ms)
        except KafkaError as error:
            del self._tokens[token]
            return broken(error)
        if outcome.response is not None:
            del self._tokens[token]
            self._take(outcome, now_ms, promise)
        else:
            self._take(outcome, now_ms, token=token)
        return promise

    def write_transactional(
        self,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S, int], Outcome[R]],
        guard: VerificationGuard | None,
    ) -> Promise[R]:
        now_ms = self._services.clock.wall_ms()
        try:
            outcome = operation(self.shard, now_ms)
        except KafkaError as error:
            return broken(error)
        promise: Promise[R] = Promise()
        if not outcome.records:
            self._take(outcome, now_ms, promise)
            return promise
        self.flush()
        if self.closed:
            return broken(KafkaError(ErrorCode.NOT_COORDINATOR))
        batch = GrowingBatch(self.next_offset, now_ms)
        wait = self._wait(outcome, promise)
        if not self._add(batch, outcome.records, producer_id, producer_epoch):
            self._refuse(wait, KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
            return promise
        batch.waits.append(wait)
        self._append(batch, self._build(batch, producer_id, producer_epoch), guard=guard)
        return promise

    def complete_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool, transaction_version: int
    ) -> Promise[None]:
        self.flush()
        if self.closed:
            return broken(KafkaError(ErrorCode.NOT_COORDINATOR))
        marker = end_txn_batch(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._services.clock.wall_ms(),
        )
        promise: Promise[None] = Promise()
        batch = Batch(self.next_offset)
        batch.waits.append(promise)  # type: ignore[arg-type]
        self._timeline.begin(self.next_offset)
        self.shard.replay_marker(producer_id, producer_epoch, commit)
        self.next_offset = batch.end_offset = self.next_offset + 1
        self._append(batch, marker, transaction_version=transaction_version)
        return promise

    # What happens to it.

    def on_loaded(self) -> None:
        """The log has been replayed to its end. What an earlier leader wrote last is in it, and will be committed in
        time. That leader may have seen it committed already, and told so: until we know, nothing is served that might
        be older than what it said (C14)."""
        log = self.partition.log
        self._timeline.loading = False
        self.next_offset = log.log_end_offset
        self._timeline.commit(log.high_watermark)
        if self._timeline.pending:
            self.partition.watermark_waiters.append((self.next_offset, self))
        else:
            self._activate()

    def _activate(self) -> None:
        self.state = ShardState.ACTIVE
        self.active = True
        now_ms = self._services.clock.wall_ms()
        self._take(self.shard.on_loaded(self._services.image, now_ms), now_ms)

    def on_metadata(self) -> None:
        now_ms = self._services.clock.wall_ms()
        self._take(self.shard.on_metadata(self._services.image, now_ms), now_ms)

    def _on_timer(self, key: TimerKey) -> None:
        del self._timers[key]
        now_ms = self._services.clock.wall_ms()
        self._take(self.shard.on_timer(key, now_ms), now_ms, retry=key)

    def fail(self) -> None:
        """The log cannot be read as what it should be: nothing is served of it in this leadership."""
        self.state = ShardState.FAILED

    def close(self) -> None:
        """The leadership is lost. What was appended may survive or not: whoever waits is to ask the next leader."""
        self.state = ShardState.CLOSED
        self.active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        batches: list[Batch] = [*self._uncommitted]
        if self._gathering is not None:
            batches.append(self._gathering)
        self._uncommitted.clear()
        self._gathering = None
        waiting = list(self._tokens.values())
        self._tokens.clear()
        for batch in batches:
            if batch.timer is not None:
                batch.timer.cancel()
            for wait in batch.waits:
                self._lose(wait)
        for promise in waiting:
            promise.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

    # Outcomes.

    def _take(
        self,
        outcome: Outcome[R],
        now_ms: int,
        promise: Promise[R] | None = None,
        token: int | None = None,
        retry: TimerKey | None = None,
    ) -> None:
        """Make an outcome so. Whoever asked is told by `promise`, when all is committed that the outcome tells of."""
        wait = self._wait(outcome, promise, token, retry)
        if outcome.records:
            self._write(outcome.records, wait, now_ms, outcome.atomic)
        elif self._gathering is not None:
            self._gathering.waits.append(wait)
        elif self._uncommitted:
            last = self._uncommitted[-1]
            if last.timer is None:
                # Those who waited for it have been told that it takes too long: this one's time begins now.
                last = Batch(last.end_offset)
                self._await_commit(last)
            last.waits.append(wait)
        else:
            self._keep(wait)

    def _wait(
        self,
        outcome: Outcome[R],
        promise: Promise[R] | None,
        token: int | None = None,
        retry: TimerKey | None = None,
    ) -> Wait | Promise[object]:
        """What waits for the outcome's commit. Timers do not: they run from now on."""
        effects = outcome.effects
        if effects:
            effects = self._set_timers(effects)
        if promise is not None:
            promise.prepare(outcome.response)  # type: ignore[arg-type]
            if not effects and outcome.tag is None:
                return promise  # type: ignore[return-value]
        return Wait(promise, effects, outcome.tag, token, retry)  # type: ignore[arg-type]

    def _set_timers(self, effects: list[AnyEffect]) -> list[AnyEffect]:
        """Set and cancel timers; the other effects are returned."""
        rest: list[AnyEffect] = []
        timers = self._timers
        for effect in effects:
            if isinstance(effect, SetTimer):
                key = effect.key
                if key in timers:
                    timers[key].put(effect.delay_ms)
                else:
                    timers[key] = self._services.timers.deadline(effect.delay_ms, partial(self._on_timer, key))
            elif isinstance(effect, CancelTimer):
                if effect.key in timers:
                    timers.pop(effect.key).cancel()
            else:
                rest.append(effect)
        return rest

    def _write(self, records: Records, wait: Wait | Promise[object], now_ms: int, atomic: bool) -> None:
        batch = self._gathering
        if batch is not None and self._add(batch, records):
            batch.waits.append(wait)
            return
        if batch is not None:
            self.flush()
            if self.closed:
                self._lose(wait)
                return
        batch = GrowingBatch(self.next_offset, now_ms)
        if self._add(batch, records):
            batch.waits.append(wait)
            self._gathering = batch
            self._loop.call_soon(self._end_turn)
        elif atomic or len(records) == 1:
            self._refuse(wait, KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
        else:
            half = len(records) // 2
            self._write(records[:half], Wait(None, []), now_ms, atomic)
            self._write(records[half:], wait, now_ms, atomic)

    def _add(
        self,
        batch: GrowingBatch,
        records: Records,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> bool:
        """Add the records to the batch, unless they are too many for it. Speculation: the shard sees them at once, at
        the offsets that they will have."""
        size = batch.size
        encoded: list[KeyValue] = []
        for record in records:
            pair = (record[0], record[1]) if type(record) is EncodedRecord else self._encode(record)
            encoded.append(pair)
            key, value = pair
            size += len(key) + _RECORD_OVERHEAD_MAX
            if value is not None:
                size += len(value)
        if size > self.partition.rules.max_message_bytes - HEADER_SIZE:
            return False
        batch.size = size
        batch.records += encoded
        timeline, replay, offset = self._timeline, self.shard.replay, self.next_offset
        for record in records:
            timeline.begin(offset)
            replay(record, producer_id, producer_epoch)
            offset += 1
        self.next_offset = batch.end_offset = offset
        return True

    def _build(
        self, batch: GrowingBatch, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
    ) -> bytearray:
        stamped = self.partition.rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        builder = BatchBuilder(
            compression=self._runtime.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
            log_append_time_ms=batch.now_ms if stamped else None,
        )
        builder.append_all(batch.now_ms, batch.records)
        return builder.build()

    # Batches.

    def _end_turn(self) -> None:
        self.flush()
        self._services.replicas.wake_fetches()

    def flush(self) -> None:
        """Append what has been gathered."""
        batch = self._gathering
        if batch is not None:
            self._gathering = None
            self._append(batch, self._build(batch))

    def _append(
        self,
        batch: Batch,
        data: bytearray,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> None:
        if self.partition.log.log_end_offset != batch.first_offset:
            # An administrator has produced to the topic, and what we would write is for other offsets.
            self._uncommitted.append(batch)
            self._runtime.reload(self)
            return
        try:
            self._services.replicas.append_by_coordinator(
                self.partition, memoryview(data), guard=guard, transaction_version=transaction_version
            )
        except KafkaError as error:
            self._undo(batch, error)
        else:
            if not self.closed:
                self._await_commit(batch)

    def _await_commit(self, batch: Batch) -> None:
        if batch.end_offset <= self.partition.log.high_watermark:
            self._timeline.commit(batch.end_offset)
            self._settle(batch)
        else:
            batch.timer = self._services.timers.after(self._runtime.timeout_ms, partial(self._on_timeout, batch))
            self._uncommitted.append(batch)
            self.partition.watermark_waiters.append((batch.end_offset, self))

    @property
    def waiting(self) -> bool:
        return not self.closed

    def on_safe(self, partition: HostedPartition, offset: int) -> None:
        """The high watermark has passed `offset`."""
        if self.closed:
            return
        self._timeline.commit(partition.log.high_watermark)
        if not self.active:
            self._activate()
            return
        while self._uncommitted and self._uncommitted[0].end_offset <= offset:
            self._settle(self._uncommitted.popleft())

    def on_lost(self, partition: HostedPartition, offset: int) -> None:
        """`runtime` is told of a lost leadership once, and closes us."""

    def _settle(self, batch: Batch) -> None:
        """The batch is committed. Those who are told may at once ask for more."""
        if batch.timer is not None:
            batch.timer.cancel()
        for wait in batch.waits:
            self._keep(wait)

    def _keep(self, wait: Wait | Promise[object]) -> None:
        if self.closed:
            self._lose(wait)
            return
        if type(wait) is Promise:
            wait.keep()
            return
        assert type(wait) is Wait
        if wait.promise is not None:
            wait.promise.keep()
        for effect in wait.effects:
            if isinstance(effect, Answer):
                promise = self._tokens.pop(effect.token, None)
                if promise is not None:
                    promise.resolve(effect.response)
            else:
                assert isinstance(effect, Effect)
                self._runtime.carry_out(self.partition.index, self.leader_epoch, effect)
        if wait.tag is not None and not self.closed:
            now_ms = self._services.clock.wall_ms()
            self._take(self.shard.on_written(wait.tag, ErrorCode.NONE, now_ms), now_ms)

    def _undo(self, batch: Batch, error: KafkaError) -> None:
        """The batch was not appended, so nothing of it was ever true."""
        if self.closed:
            # The disk failed: our leadership went with it.
            for wait in batch.waits:
                self._lose(wait)
            return
        self._timeline.revert(batch.first_offset)
        self.next_offset = batch.first_offset
        for wait in batch.waits:
            self._refuse(wait, error)

    def _on_timeout(self, batch: Batch) -> None:
        """It is in the log, and may yet be committed; then its effects are carried out. Nobody waits for that."""
        batch.timer = None
        waits, batch.waits = batch.waits, []
        for wait in waits:
            if isinstance(wait, Wait):
                late: list[AnyEffect] = [effect for effect in wait.effects if isinstance(effect, Effect)]
                if late:
                    batch.waits.append(Wait(None, late))
        for wait in waits:
            self._refuse(wait, KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _refuse(self, wait: Wait | Promise[object], error: KafkaError) -> None:
        """Tell everybody that the outcome did not come to be: first the shard, which may have better answers."""
        if self.closed:
            self._lose(wait)
            return
        told = as_told(error)
        if isinstance(wait, Promise):
            wait.fail(told)
            return
        answered: set[int] = set()
        if wait.tag is not None:
            now_ms = self._services.clock.wall_ms()
            outcome = self.shard.on_written(wait.tag, told.code, now_ms)
            answered = {effect.token for effect in outcome.effects if isinstance(effect, Answer)}
            self._take(outcome, now_ms)
        if wait.promise is not None:
            wait.promise.fail(told)
        tokens = [effect.token for effect in wait.effects if isinstance(effect, Answer)]
        if wait.token is not None and wait.token not in tokens:
            tokens.append(wait.token)
        for token in tokens:
            promise = None if token in answered else self._tokens.pop(token, None)
            if promise is not None:
                promise.fail(told)
        key = wait.retry
        if key is not None and key not in self._timers and not self.closed:
            _log.warning("what timer %s of %s decided was not written: %s", key, self.partition.topic_partition, error)
            self._timers[key] = self._services.timers.deadline(TIMER_RETRY_MS, partial(self._on_timer, key))

    def _lose(self, wait: Wait | Promise[object]) -> None:
        promise = wait if isinstance(wait, Promise) else wait.promise
        if promise is not None and not promise.done:
            promise.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
