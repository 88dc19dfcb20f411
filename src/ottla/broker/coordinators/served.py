"""One shard in one leadership of its partition: takes what it decides, and makes it so.

    an outcome ─► its records are replayed, at the offsets that they will have ─► gathered with those of the same turn
    of the loop ─► appended as one batch ─► the high watermark passes it ─► answers leave, effects are carried out

An urgent outcome, for which a whole group waits, does not wait for the end of the turn.

Batches follow each other without waiting: a request sees the newest state, and is answered when that is committed. An
outcome without records waits for the last batch before it. A batch that cannot be appended is undone, and with it those
that were gathered behind it, since what they hold was decided on what it held. Those before it are in the log.

Whoever is told that a batch is committed may ask for more, and even have it appended, before the next is told.

States: loading → active → closed; loading or active → failed → closed. Driven by `runtime.py`, by the partition's high
watermark and by timers, on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.batches import (
    RECORD_OVERHEAD_MAX,
    Batch,
    GrowingBatch,
    KeyValue,
    TimerKey,
    Wait,
    Waiting,
    read_outsider,
    split,
)
from ottla.broker.coordinators.refusals import as_told
from ottla.broker.hosted import HostedPartition
from ottla.broker.promise import Promise, broken
from ottla.coordinator.outcome import Answer, AnyEffect, CancelTimer, Effect, Outcome, SetTimer
from ottla.coordinator.shard import Shard
from ottla.coordinator.stored import AnyRecord, EncodedRecord, StoredRecord
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.log.producers import VerificationGuard
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records import HEADER_SIZE, end_txn_batch
from ottla.runtime.timers import Deadline

if TYPE_CHECKING:
    from ottla.broker.coordinators.runtime import CoordinatorRuntime

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

TIMER_RETRY_MS = 500
"""After which a timer whose outcome could not be written is called again, as in Kafka."""

Records = list[StoredRecord] | list[AnyRecord]


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


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
        self._gathered: deque[GrowingBatch] = deque()
        """In the order of their offsets: replayed, and appended when the turn ends. The last may yet grow."""
        self._turn_ends = False
        """Is `_end_turn` about to be called?"""
        self._uncommitted: deque[Batch] = deque()
        """In the order of their offsets: appended, or about to be, and above the high watermark."""
        self._steps: Iterator[list[AnyEffect]] | None = None
        """What is left of taking up what was read; None before that has begun."""
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
        elif outcome.records or outcome.effects:
            self._take(outcome, now_ms, token=token)
        return promise

    def write_transactional(
        self,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S, int], Outcome[R]],
        guard: VerificationGuard | None,
    ) -> Promise[R]:
        self.flush()  # First: what is decided must not rest on what is undone by this.
        if self.closed:
            return broken(KafkaError(ErrorCode.NOT_COORDINATOR))
        now_ms = self._services.clock.wall_ms()
        try:
            outcome = operation(self.shard, now_ms)
        except KafkaError as error:
            return broken(error)
        promise: Promise[R] = Promise()
        if not outcome.records:
            self._take(outcome, now_ms, promise)
            return promise
        batch = GrowingBatch(self.next_offset, now_ms)
        wait = self._wait(outcome, promise)
        if not self._add(batch, outcome.records, producer_id, producer_epoch):
            self._refuse(wait, KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
            return promise
        batch.waits.append(wait)
        data = batch.build(self.partition.rules.timestamp_type, self._runtime.compression, producer_id, producer_epoch)
        self._append(batch, data, guard=guard)
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
            self._runtime.taking_up.add(self)

    def take_up(self, until_s: float) -> bool:
        """Let the shard take up what was read, step by step, until `until_s` of the monotonic clock. Returns whether
        there is nothing left to do: then it is served."""
        if not self.waiting:
            return True
        try:
            if self._steps is None:
                self._steps = self.shard.take_up(self._services.image)
            for timers in self._steps:
                self._set_timers(timers)
                if self._services.clock.monotonic() >= until_s:
                    return False
            now_ms = self._services.clock.wall_ms()
            self.state = ShardState.ACTIVE
            self.active = True
            self._take(self.shard.on_loaded(self._services.image, now_ms), now_ms)
        except Exception as error:
            self.fail(error)
        return True

    def on_metadata(self) -> None:
        now_ms = self._services.clock.wall_ms()
        self._take(self.shard.on_metadata(self._services.image, now_ms), now_ms)

    def _on_timer(self, key: TimerKey) -> None:
        del self._timers[key]
        if not self.active:
            # What was read is still being taken up: the shard is not asked for anything else meanwhile.
            self._timers[key] = self._services.ageing.deadline(TIMER_RETRY_MS, partial(self._on_timer, key))
            return
        now_ms = self._services.clock.wall_ms()
        self._take(self.shard.on_timer(key, now_ms), now_ms, retry=key)

    def on_outsider(self, batch: memoryview, first_offset: int) -> None:
        """Somebody else has appended `batch`, and all that was gathered lies before it.

        What the shard keeps as it lies in the log (offsets) is replayed. Groups and transactions have timers, and
        members that wait: those that a stranger changes are loaded anew, with all others.
        """
        if first_offset != self.next_offset:
            return  # `_append` finds out.
        try:
            records = read_outsider(batch, self._runtime.kinds.decode, self.partition.topic_partition)
            if records is None:
                self._runtime.reload(self)
                return
            for offset_delta, record in records:
                self._timeline.begin(first_offset + offset_delta)
                self.shard.replay(record, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        except Exception as error:
            self.fail(error)
            return
        log = self.partition.log
        self.next_offset = log.log_end_offset
        self._timeline.commit(log.high_watermark)
        if self._timeline.pending:
            self.partition.watermark_waiters.append((self.next_offset, self))

    def fail(self, error: Exception) -> None:
        """The log cannot be read as what it should be: nothing is served of it in this leadership.

        Whatever the error is, a failed assertion too: what is replayed was written by anybody, and would stop one
        leader of the partition after the other.
        """
        if self.closed:
            return
        traceback = None if isinstance(error, KafkaError | Malformed) else error
        _log.error(
            "%s cannot be loaded, and is not served: %s", self.partition.topic_partition, error, exc_info=traceback
        )
        self.close()
        self.state = ShardState.FAILED

    def close(self) -> None:
        """The leadership is lost. What was appended may survive or not: whoever waits is to ask the next leader."""
        self.state = ShardState.CLOSED
        self.active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        batches: list[Batch] = [*self._uncommitted, *self._gathered]
        self._uncommitted.clear()
        self._gathered.clear()
        waiting = list(self._tokens.values())
        self._tokens.clear()
        for batch in batches:
            if batch.timer is not None:
                batch.timer.cancel()
            self._tell(self._lose, batch.waits)
        self._tell(self._lose, waiting)

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
            if outcome.urgent:
                self.flush()
                self._services.replicas.wake_fetches()
        elif self._gathered:
            self._gathered[-1].waits.append(wait)
        elif self._uncommitted:
            last = self._uncommitted[-1]
            if last.timer is not None:
                last.waits.append(wait)
            else:
                # Those who waited for it have been told that it takes too long: this one's time begins now.
                last = Batch(last.end_offset)
                last.waits.append(wait)
                self._uncommitted.append(last)
                self._await_commit(last)
        else:
            self._keep(wait)

    def _wait(
        self,
        outcome: Outcome[R],
        promise: Promise[R] | None,
        token: int | None = None,
        retry: TimerKey | None = None,
    ) -> Waiting:
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
        timers, wheel = self._timers, self._services.ageing
        now_ms = wheel.now_ms()
        for effect in effects:
            if isinstance(effect, SetTimer):
                key = effect.key
                timer = timers.get(key)
                if timer is not None:
                    timer.put(now_ms + effect.delay_ms)
                else:
                    timers[key] = wheel.deadline(effect.delay_ms, partial(self._on_timer, key))
            elif isinstance(effect, CancelTimer):
                if effect.key in timers:
                    timers.pop(effect.key).cancel()
            else:
                rest.append(effect)
        return rest

    def _write(self, records: Records, wait: Waiting, now_ms: int, atomic: bool) -> None:
        gathered = self._gathered
        if gathered and self._add(gathered[-1], records):
            gathered[-1].waits.append(wait)
            return
        batch = GrowingBatch(self.next_offset, now_ms)
        if self._add(batch, records):
            self._gather(batch)
        else:
            size_max = self.partition.rules.max_message_bytes - HEADER_SIZE
            parts = None if atomic else split(records, self._encode, size_max)
            if parts is None:
                self._refuse(wait, KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
                return
            for part in parts:
                batch = GrowingBatch(self.next_offset, now_ms)
                fits = self._add(batch, part)
                assert fits
                self._gather(batch)
        # Who waits for the last of several waits for all: it is not appended without those before it.
        batch.waits.append(wait)

    def _gather(self, batch: GrowingBatch) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)
        self._gathered.append(batch)

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
            size += len(key) + RECORD_OVERHEAD_MAX
            if value is not None:
                size += len(value)
        if size > self.partition.rules.max_message_bytes - HEADER_SIZE:
            return False
        batch.size = size
        batch.records += encoded
        timeline, replay, offset = self._timeline, self.shard.replay, self.next_offset
        try:
            for record in records:
                timeline.begin(offset)
                replay(record, producer_id, producer_epoch)
                offset += 1
        except Malformed as error:
            raise AssertionError("a shard made a record that it cannot replay") from error
        self.next_offset = batch.end_offset = offset
        return True

    # Batches.

    def _end_turn(self) -> None:
        self._turn_ends = False
        # What is asked for meanwhile is gathered with what the next turn brings.
        for _ in range(len(self._gathered)):
            self._append_next()
        self._services.replicas.wake_fetches()

    def flush(self) -> None:
        """Append what has been gathered, and what those who are told of that ask for."""
        while self._gathered:
            self._append_next()

    def _append_next(self) -> None:
        if self._gathered:
            batch = self._gathered.popleft()
            self._append(batch, batch.build(self.partition.rules.timestamp_type, self._runtime.compression))

    def _append(
        self,
        batch: Batch,
        data: bytearray,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> None:
        # At once: should the leadership end meanwhile, those who wait for it are told with the others.
        self._uncommitted.append(batch)
        if self.partition.log.log_end_offset != batch.first_offset:
            # Somebody has written to the partition unheard, and what we would write is for other offsets.
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
            self._settle_to(batch.end_offset)
        else:
            batch.timer = self._services.timers.after(self._runtime.timeout_ms, partial(self._on_timeout, batch))
            self.partition.watermark_waiters.append((batch.end_offset, self))

    @property
    def waiting(self) -> bool:
        return not self.closed and self.state is not ShardState.FAILED

    def on_safe(self, partition: HostedPartition, offset: int) -> None:
        """The high watermark has passed `offset`."""
        if not self.waiting:
            return
        self._timeline.commit(partition.log.high_watermark)
        if self.state is ShardState.LOADING:
            self._runtime.taking_up.add(self)
            return
        self._settle_to(offset)

    def on_lost(self, partition: HostedPartition, offset: int) -> None:
        """`runtime` is told of a lost leadership once, and closes us."""

    def _settle_to(self, offset: int) -> None:
        """Everything before `offset` is committed."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0].end_offset <= offset:
            batch = uncommitted.popleft()
            if batch.timer is not None:
                batch.timer.cancel()
            self._tell(self._keep, batch.waits)

    def _tell(self, tell: Callable[[Waiting], None], waits: Iterable[Waiting]) -> None:
        """Tell each of them. If one of those who hear of it fails, that is no affair of the others, nor of whoever
        moved the high watermark."""
        for wait in waits:
            try:
                tell(wait)
            except Exception as error:
                _log.error("somebody who waited for %s failed", self.partition.topic_partition, exc_info=error)
                self._services.on_bug(error)

    def _keep(self, wait: Waiting) -> None:
        if self.closed:
            self._lose(wait)
            return
        if type(wait) is Promise:
            wait.keep()
            return
        assert type(wait) is Wait
        try:
            if wait.promise is not None:
                wait.promise.keep()
        finally:
            self._carry_out(wait)

    def _carry_out(self, wait: Wait) -> None:
        for effect in wait.effects:
            if isinstance(effect, Answer):
                self._answer(effect)
            else:
                assert isinstance(effect, Effect)
                self._runtime.carry_out(self.partition.index, self.leader_epoch, effect)
        if wait.tag is not None and not self.closed:
            now_ms = self._services.clock.wall_ms()
            self._take(self.shard.on_written(wait.tag, ErrorCode.NONE, now_ms), now_ms)

    def _answer(self, answer: Answer) -> None:
        promise = self._tokens.pop(answer.token, None)
        if promise is not None:
            promise.resolve(answer.response)

    def _undo(self, batch: Batch, error: KafkaError) -> None:
        """The batch was not appended, so nothing of it was ever true, nor of what was decided after it."""
        if self.closed:
            return  # The disk failed, and our leadership went with it: whoever waits has been told.
        self._uncommitted.remove(batch)
        waits = [wait for each in (batch, *self._gathered) for wait in each.waits]
        self._gathered.clear()
        self._timeline.revert(batch.first_offset)
        self.next_offset = batch.first_offset
        self._tell(partial(self._refuse, error=error), waits)

    def _on_timeout(self, batch: Batch) -> None:
        """It is in the log, and may yet be committed; then its effects are carried out. Nobody waits for that."""
        batch.timer = None
        waits, batch.waits = batch.waits, []
        for wait in waits:
            if isinstance(wait, Wait):
                late: list[AnyEffect] = [effect for effect in wait.effects if isinstance(effect, Effect)]
                if late:
                    batch.waits.append(Wait(None, late))
        self._tell(partial(self._refuse, error=KafkaError(ErrorCode.REQUEST_TIMED_OUT)), waits)

    def _refuse(self, wait: Waiting, error: KafkaError) -> None:
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
            answers = [effect for effect in outcome.effects if isinstance(effect, Answer)]
            answered = {answer.token for answer in answers}
            if not outcome.records:
                # They tell of nothing but the failure, and need not wait for anything.
                outcome.effects = [effect for effect in outcome.effects if not isinstance(effect, Answer)]
                for answer in answers:
                    self._answer(answer)
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
            self._timers[key] = self._services.ageing.deadline(TIMER_RETRY_MS, partial(self._on_timer, key))

    def _lose(self, wait: Waiting) -> None:
        promise = wait if isinstance(wait, Promise) else wait.promise
        if promise is not None and not promise.done:
            promise.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
