"""Requests that wait: produce for safety, fetch for bytes, DeleteRecords for the followers. Each leaves when its fact
comes true or its time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.hosted import HostedPartition
from ottla.errors import ErrorCode
from ottla.metrics.instruments import Meter
from ottla.runtime.timers import Timer, TimerWheel

Unsafe = dict[tuple[HostedPartition, int], ErrorCode]
"""Why the append that ended at an offset of a partition is not known to be safe."""


class DelayedProduce:
    """Waits until every partition of one produce request is safe.

    States: waiting → finished, by the last partition, by time, or by the loss of leadership. `finish` is called once,
    with the error of each append that did not make it.
    """

    __slots__ = ("_expired", "_finish", "_left", "_timer", "_unsafe")

    def __init__(self, finish: Callable[[Unsafe], None], expired: Meter) -> None:
        """`expired` counts those whose time ran out."""
        self._expired = expired
        self._finish: Callable[[Unsafe], None] | None = finish
        self._unsafe: Unsafe = {}
        self._left = 0
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        return self._finish is not None

    def wait_for(self, partition: HostedPartition, offset: int, *, committed: bool) -> None:
        """Wait until everything before `offset` is committed, or else only as durable as the flush policy asks."""
        self._left += 1
        self._unsafe[partition, offset] = ErrorCode.REQUEST_TIMED_OUT
        waiters = partition.watermark_waiters if committed else partition.durable_waiters
        while waiters and not waiters[0][1].waiting:
            waiters.popleft()  # Timed out: while nothing is committed, nothing else would remove them.
        waiters.append((offset, self))

    def start(self, timers: TimerWheel, timeout_ms: int) -> None:
        if self._left:
            self._timer = timers.after(timeout_ms, self._on_timeout)

    def on_safe(self, partition: HostedPartition, offset: int) -> None:
        if self._finish is not None:
            self._unsafe.pop((partition, offset), None)
            self._one_less()

    def on_lost(self, partition: HostedPartition, offset: int) -> None:
        if self._finish is not None:
            self._unsafe[partition, offset] = (
                ErrorCode.KAFKA_STORAGE_ERROR if partition.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._end()

    def _on_timeout(self) -> None:
        if self._finish is not None:
            self._expired.value += 1
            self._end()

    def _end(self) -> None:
        assert self._finish is not None
        finish, self._finish = self._finish, None
        if self._timer is not None:
            self._timer.cancel()
        finish(self._unsafe)


class DelayedFetch:
    """Waits until the partitions of one consumer's fetch request together hold enough bytes, or one of them has news.

    `ready` is asked again for each partition that moved; `finish` is called once.
    """

    __slots__ = ("_expired", "_finish", "_partitions", "_ready", "_timer")

    def __init__(
        self,
        partitions: Sequence[HostedPartition],
        ready: Callable[[HostedPartition], bool],
        finish: Callable[[], None],
        timers: TimerWheel,
        timeout_ms: int,
        expired: Meter,
    ) -> None:
        """`expired` counts those whose time ran out."""
        self._expired = expired
        self._partitions = partitions
        self._ready = ready
        self._finish: Callable[[], None] | None = finish
        for partition in partitions:
            partition.fetch_waiters[self] = None
        self._timer = timers.after(timeout_ms, self._on_timeout)

    def on_advance(self, partition: HostedPartition) -> None:
        if self._finish is not None and self._ready(partition):
            self._end()

    def _on_timeout(self) -> None:
        if self._finish is not None:
            self._expired.value += 1
            self._end()

    def cancel(self) -> None:
        """The connection is gone."""
        self._finish = None
        self._leave()

    def _end(self) -> None:
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._leave()
            finish()

    def _leave(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)


class DelayedDeleteRecords:
    """Waits until the low watermark of every partition of one DeleteRecords request has reached what was asked for.

    `finish` is called once, with the low watermark of each partition that made it and the error of each that did not.
    """

    __slots__ = ("_errors", "_finish", "_left", "_low_watermarks", "_timer")

    def __init__(self, finish: Callable[[dict[HostedPartition, int], dict[HostedPartition, ErrorCode]], None]) -> None:
        self._finish = finish
        self._left: dict[HostedPartition, int] = {}
        self._low_watermarks: dict[HostedPartition, int] = {}
        self._errors: dict[HostedPartition, ErrorCode] = {}
        self._timer: Timer | None = None

    def wait_for(self, partition: HostedPartition, offset: int) -> None:
        self._left[partition] = offset
        partition.delete_waiters[self] = None

    def start(self, timers: TimerWheel, timeout_ms: int) -> None:
        self._timer = timers.after(timeout_ms, self._end)

    def on_low_watermark(self, partition: HostedPartition, offset: int) -> bool:
        if offset < self._left[partition]:
            return False
        self._low_watermarks[partition] = offset
        self._one_less(partition)
        return True

    def on_lost(self, partition: HostedPartition) -> None:
        if partition.offline:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        elif partition.forgotten:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._errors[partition] = code
        self._one_less(partition)

    def _one_less(self, partition: HostedPartition) -> None:
        del self._left[partition]
        if not self._left:
            self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._left:
            partition.delete_waiters.pop(self, None)
            self._errors[partition] = ErrorCode.REQUEST_TIMED_OUT
        self._left.clear()
        self._finish(self._low_watermarks, self._errors)
