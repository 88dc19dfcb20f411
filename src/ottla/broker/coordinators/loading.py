"""Bringing a shard up: its partition is read from the first record to the last, a little in each turn of the loop. What
was read is then taken up in the same way, when all of it is committed.

What lies above the high watermark is replayed too: this node leads, so nobody will take it back, and it becomes
committed in time. A batch of a transaction is replayed as its producer's, and its fate by the marker that follows.

Every batch is checked first, by its CRC and its place: a log that was closed cleanly is not read by a start, so that
this may be the first to see what its disk has done to it. If it is damaged, another replica leads instead, and what
follows is copied from that; where there is none, the partition is not served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.served import ServedShard
from ottla.coordinator.shard import Shard
from ottla.errors import Malformed
from ottla.log import Log, files
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records import BatchHeader, batches, crc_is_valid, iterate, read_end_txn_marker
from ottla.records.batch import MAGIC_V2
from ottla.records.records import keys_and_values
from ottla.runtime import Clock, DiskError, FileSpan

if TYPE_CHECKING:
    from ottla.broker.coordinators.runtime import CoordinatorRuntime

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

TURN_S_MAX = 0.004
"""For how long loading may keep the loop."""
_RECORDS_BETWEEN_LOOKS = 128
_LOAD_TIMES_S = 30


class LoadTimes:
    """How long partitions took to load in the last half minute, as Kafka tells it."""

    __slots__ = ("_clock", "_loads")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[float, float]] = deque()
        """When each ended, and the milliseconds that it took."""

    def add(self, took_s: float) -> None:
        self._forget()
        self._loads.append((self._clock.monotonic(), took_s * 1000))

    @property
    def max_ms(self) -> float:
        self._forget()
        return max((took_ms for _, took_ms in self._loads), default=0.0)

    @property
    def average_ms(self) -> float:
        self._forget()
        return sum(took_ms for _, took_ms in self._loads) / max(1, len(self._loads))

    def _forget(self) -> None:
        since_s = self._clock.monotonic() - _LOAD_TIMES_S
        while self._loads and self._loads[0][0] < since_s:
            self._loads.popleft()


class TakingUp(Generic[S]):
    """Shards whose log has been read and committed, and that have yet to take up what they have read: one after the
    other, and a little in each turn of the loop. Very many groups may have members to wait for."""

    __slots__ = ("_clock", "_goes_on", "_left")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: deque[ServedShard[S]] = deque()
        self._goes_on = False
        """Is `_go_on` about to be called?"""

    def add(self, served: ServedShard[S]) -> None:
        """It is served when this returns, if that takes not too long."""
        self._left.append(served)
        if not self._goes_on:
            self._take_up()

    def _go_on(self) -> None:
        self._goes_on = False
        self._take_up()

    def _take_up(self) -> None:
        until_s = self._clock.monotonic() + TURN_S_MAX
        while self._left and not self._goes_on:
            served = self._left.popleft()
            if not served.take_up(until_s):
                self._left.appendleft(served)
                self._goes_on = True
                asyncio.get_running_loop().call_soon(self._go_on)


class Damaged(Exception):
    """The batch at `offset`, where the one before it ended, is not what was written."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the batch at offset {offset} is not what was written")
        self.offset = offset


async def load(runtime: CoordinatorRuntime[S], served: ServedShard[S]) -> None:
    """Returns when the log has been read, or the shard has failed or been closed meanwhile."""
    partition = served.partition
    began_s = runtime.services.clock.monotonic()
    try:
        records = await _replay(runtime, served)
    except DiskError as error:
        runtime.services.replicas.fail(partition, error)
        return
    except Damaged as damage:
        if not served.closed and not runtime.services.replicas.lacking.on_damage(partition, damage.offset):
            served.fail(Malformed(_advice(partition.log, damage.offset)))
        return
    except Exception as error:
        served.fail(error)
        return
    if not served.closed:
        took_s = runtime.services.clock.monotonic() - began_s
        runtime.load_times.add(took_s)
        _log.info("%s has been loaded: %d records in %.2f s", partition.topic_partition, records, took_s)
        served.on_loaded()


async def _replay(runtime: CoordinatorRuntime[S], served: ServedShard[S]) -> int:
    """To the end of the log; how many records there were."""
    partition, offload = served.partition, runtime.services.offload
    offset = partition.log.log_start_offset
    turn = _Turn(runtime)
    # The partition may have another log meanwhile, with the same in it: the replica moved to another directory.
    while not served.closed and offset < partition.log.log_end_offset:
        span = _next_span(partition.log, offset, runtime.load_bytes)
        if span is None:
            if max(offset, partition.log.log_start_offset) < partition.log.log_end_offset:
                raise Damaged(offset)
            break
        try:
            data = await offload.run(partial(span.file.read, span.position, span.size))
        except DiskError:
            if served.closed:
                return turn.records
            found = _next_span(partition.log, offset, runtime.load_bytes)
            if found is not None and found.file is span.file:
                raise
            continue  # The segment was cleaned or deleted, and its file closed, before the read began.
        turn.begin()
        before = offset
        for header, batch in _checked(data, partition.log, offset):
            if served.closed:
                return turn.records
            await _replay_batch(runtime, served, header, batch, turn)
            offset = header.next_offset
        if offset == before:
            raise Damaged(offset)
    return turn.records


def _checked(data: bytes, log: Log, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches in `data`, the first of which holds `offset`. Raises `Damaged` at one that cannot be what was
    written: its CRC covers all but its format and its place, and compaction leaves gaps, but nothing goes back."""
    found = batches(memoryview(data))
    first = True
    while True:
        try:
            header, batch = next(found)
        except StopIteration:
            return
        except Malformed:
            raise Damaged(offset) from None
        if (
            header.magic != MAGIC_V2
            or not (first or header.base_offset >= offset)
            or not offset < header.next_offset <= log.log_end_offset
            or not crc_is_valid(batch, 0, len(batch))
        ):
            raise Damaged(offset)
        yield header, batch
        first, offset = False, header.next_offset


def _advice(log: Log, offset: int) -> str:
    """What somebody can do where there is no other replica to go on with."""
    parent = log.directory.rpartition("/")[0]
    return (
        f"the batch at offset {offset} is not what was written, and no other replica is in sync that could be told to "
        f"lead: bring {log.directory} back from a backup; or, to go on without all that follows that offset, stop the "
        f"node, remove {files.CLEAN_SHUTDOWN} and {files.RECOVERY_POINT_CHECKPOINT} from {parent}, and start it"
    )


def _next_span(log: Log, offset: int, max_bytes: int) -> FileSpan | None:
    return log.read(max(offset, log.log_start_offset), max_bytes=max_bytes, upper_bound=log.log_end_offset)


class _Turn:
    """How much of the loop's turn is left to loading."""

    __slots__ = ("_clock", "_looked_at", "_until_s", "records")

    def __init__(self, runtime: CoordinatorRuntime[S]) -> None:
        self._clock = runtime.services.clock
        self._until_s = 0.0
        self.records = self._looked_at = 0

    def begin(self) -> None:
        self._until_s = self._clock.monotonic() + TURN_S_MAX

    @property
    def due(self) -> bool:
        """Is it time to look at the clock?"""
        return self.records - self._looked_at >= _RECORDS_BETWEEN_LOOKS

    async def rest(self) -> None:
        """Let others have their turn, if this one has taken long enough."""
        self._looked_at = self.records
        if self._clock.monotonic() >= self._until_s:
            await asyncio.sleep(0)
            self.begin()


async def _replay_batch(
    runtime: CoordinatorRuntime[S], served: ServedShard[S], header: BatchHeader, batch: memoryview, turn: _Turn
) -> None:
    shard, log = served.shard, served.partition.log
    timeline = shard.timeline
    timeline.commit(log.high_watermark)
    timeline.loading = header.next_offset <= log.high_watermark and not timeline.pending
    turn.records += header.record_count
    if header.is_control:
        for control in iterate(batch):
            marker = read_end_txn_marker(control)
            if marker is not None:
                timeline.begin(control.offset)
                shard.replay_marker(header.producer_id, header.producer_epoch, marker.commit)
        return
    producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if header.is_transactional:
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
    decode, replay, base_offset = runtime.kinds.decode, shard.replay, header.base_offset
    records = keys_and_values(batch, header)
    if timeline.loading and not header.is_transactional:
        taken = runtime.load_plainly(shard, base_offset, records)
        if taken:
            records = records[taken:]
    for replayed, (offset_delta, key, value) in enumerate(records, 1):
        if key is None:
            raise Malformed(f"the record at offset {base_offset + offset_delta} has no key")
        record = decode(key, value)
        if record is not None:  # Otherwise it is of a release that knows more than this one.
            timeline.offset = base_offset + offset_delta
            replay(record, producer_id, producer_epoch)
        if not replayed % _RECORDS_BETWEEN_LOOKS:
            await turn.rest()
            if served.closed:
                return
    if turn.due:
        await turn.rest()
