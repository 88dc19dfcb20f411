"""Drives compaction: looks for the dirtiest log that is due, has it compacted apart from the loop, swaps in what comes.

One log at a time, one after the other until none is due, then a pause of `log.cleaner.backoff.ms`. The loop does no
more than to choose, and to put a new segment in the place of old ones; reading, comparing and writing happen in a
process that gets what the machine has to spare (`Offload.run_apart`); renaming, syncing and the few reads that choosing
needs (`log/cleaner/lookup`) in a thread. A log whose
records cannot be read is left alone until the node starts again, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from ottla.broker.services import Services
from ottla.log import Log
from ottla.log.cleaner import (
    Cleanable,
    CleaningSettings,
    CorruptSegment,
    LogCleaned,
    Pass,
    SegmentCleaned,
    assess,
    begin_pass,
    clean,
    discard,
    lookup,
    survey,
)
from ottla.model import Uuid
from ottla.runtime import Disk, DiskError, WorkStopped
from ottla.runtime.timers import Timer

_log = logging.getLogger(__name__)

WATCH_MS = 500
"""How often it is asked whether the log that is being compacted is still wanted."""


class Compaction:
    """One instance a node. `start` and `stop` are called once each."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._timer: Timer | None = None
        self._stop_watching: Callable[[], None] = lambda: None
        self._stopping = False
        self._pass: Pass | None = None
        self._uncleanable: set[tuple[Uuid, int]] = set()
        """By topic id: a topic that is made anew under the same name is another one."""
        self._last_run_ms = services.clock.wall_ms()
        self._dirtiest = 0.0
        self._delay_ms = 0
        self._last: LogCleaned | None = None
        self._last_took_s = 0.0
        self._register()

    def start(self) -> None:
        if self._services.config.get_bool("log.cleaner.enable"):
            self._again()
            self._stop_watching = self._services.timers.every(WATCH_MS, self._watch)

    def stop(self) -> None:
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        self._stop_watching()
        self._services.offload.stop_apart()

    def _again(self) -> None:
        """Look for something to do, after the pause that is asked for just now: the key may change."""
        backoff_ms = self._services.config.get_int("log.cleaner.backoff.ms")
        self._timer = self._services.ageing.after(max(1, backoff_ms), self._begin)

    def _begin(self) -> None:
        if not self._stopping:
            self._services.spawn(self._work())

    def _watch(self) -> None:
        if self._pass is not None and not self._pass.is_wanted:
            self._services.offload.stop_apart()

    # One log after the other.

    async def _work(self) -> None:
        try:
            while not self._stopping and (due := await self._choose()) is not None and await self._compact(due.log):
                pass
        except DiskError as error:
            _log.error("compaction failed: %s", error)
            self._services.replicas.fail_offline(error)
        finally:
            # Whatever else went wrong is told by whoever spawned this; the other logs are still to be compacted.
            if not self._stopping:
                self._again()

    async def _choose(self) -> Cleanable | None:
        services = self._services
        self._last_run_ms = now_ms = services.clock.wall_ms()
        await self._look_up([log for log in self._cleanable_logs() if log.config.compact and not log.offline])
        self._uncleanable &= {_identity(log) for log in services.logs.logs.values()}
        dirty = survey(self._cleanable_logs(), now_ms)
        self._dirtiest = dirty[0].dirty_ratio if dirty else 0.0
        self._delay_ms = max((each.overdue_ms for each in dirty), default=0)
        return next((each for each in dirty if each.is_due), None)

    def _cleanable_logs(self) -> Iterator[Log]:
        return (log for log in self._services.logs.logs.values() if _identity(log) not in self._uncleanable)

    async def _look_up(self, logs: list[Log], *, of_transactions: bool = False) -> None:
        """Bring in what is to be known of these logs and lies on the disk."""
        wanted = lookup(self._services.disk, logs, of_transactions=of_transactions)
        if wanted.is_needed:
            await self._services.offload.run(wanted.run)
            wanted.tell()

    async def _compact(self, log: Log) -> bool:
        """Did the pass come to its end?"""
        services = self._services
        began_s = services.clock.monotonic()
        settings = self._settings()
        # What is compacted is never read by a recovery: not all that it would want to know is there any more.
        await services.offload.run(services.logs.prepare_recovery_point_checkpoints().run)
        await self._look_up([log], of_transactions=True)
        now_ms = services.clock.wall_ms()
        if log.offline or self._stopping or not (due := assess(log, now_ms)).is_due:
            return False
        self._pass = current = begin_pass(services.disk, due, settings, services.random, now_ms)
        try:
            return await self._finish(current, settings, began_s)
        except (WorkStopped, CorruptSegment) as error:
            # A log that was cut meanwhile may look corrupt. A worker that died by itself had most likely too little
            # memory, and would have it again.
            if current.is_wanted and not self._stopping:
                self._give_up(log, error)
        except DiskError:
            log.offline = True
            raise
        except Exception as error:
            # It would go wrong again, and never let the others have their turn.
            self._give_up(log, error)
            raise
        finally:
            self._pass = None
        return False

    async def _finish(self, current: Pass, settings: CleaningSettings, began_s: float) -> bool:
        """See a pass through to its end; false if its log has changed meanwhile. Nothing is left of what was written in
        vain, nor under way, when this returns or raises."""
        services, log = self._services, current.log
        swaps = _Swaps(services, current)
        try:
            try:
                cleaned = await services.offload.run_apart(
                    partial(clean, services.disk, current.task),
                    bytes_per_second=settings.bytes_per_second,
                    on_report=swaps.add,
                )
            finally:
                # A swap that failed has stopped the worker, and says why.
                swapped = await swaps.finished()
            if not swapped or not current.finish(cleaned):
                return False
        finally:
            await swaps.end()
        await services.offload.run(services.logs.prepare_cleaner_checkpoint(log).run)
        self._last, self._last_took_s = cleaned, services.clock.monotonic() - began_s
        _log.info(
            "compacted %s to offset %d: %d bytes became %d in %.1f s",
            log.topic_partition,
            cleaned.next_dirty_offset,
            cleaned.bytes_read,
            cleaned.bytes_written,
            self._last_took_s,
        )
        return True

    def _give_up(self, log: Log, error: Exception) -> None:
        _log.error("%s is not compacted any more until the node starts again: %s", log.topic_partition, error)
        self._uncleanable.add(_identity(log))

    def _settings(self) -> CleaningSettings:
        config = self._services.config
        return CleaningSettings(
            map_bytes=config.get_int("log.cleaner.dedupe.buffer.size"),
            map_load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
            io_bytes=config.get_int("log.cleaner.io.buffer.size"),
            bytes_per_second=config.get_float("log.cleaner.io.max.bytes.per.second"),
        )

    # Metrics.

    def _register(self) -> None:
        services, gauge = self._services, self._services.metrics.registry.gauge
        gauge("kafka_log_logcleanermanager_uncleanablepartitionscount", lambda: len(self._uncleanable))
        gauge("kafka_log_logcleanermanager_uncleanablebytes", self._uncleanable_bytes)
        gauge("kafka_log_logcleanermanager_maxdirtypercent", lambda: int(100 * self._dirtiest))
        gauge("kafka_log_logcleanermanager_timesincelastrunms", lambda: services.clock.wall_ms() - self._last_run_ms)
        gauge("kafka_log_logcleaner_cleanerrecopypercent", self._recopy_percent)
        gauge("kafka_log_logcleaner_maxcleantimesecs", lambda: int(self._last_took_s))
        gauge("kafka_log_logcleaner_maxcompactiondelaysecs", lambda: self._delay_ms // 1000)
        gauge(
            "kafka_log_logcleaner_maxbufferutilizationpercent",
            lambda: int(100 * self._last.map_utilization) if self._last is not None else 0,
        )

    def _recopy_percent(self) -> int:
        return 100 * self._last.bytes_written // max(1, self._last.bytes_read) if self._last is not None else 0

    def _uncleanable_bytes(self) -> int:
        logs, now_ms = self._services.logs.logs, self._services.clock.wall_ms()
        found = survey((log for log in logs.values() if _identity(log) in self._uncleanable), now_ms)
        return sum(each.dirty_bytes for each in found)


class _Swaps:
    """The segments of one pass on their way into the log, in order, while the pass goes on."""

    def __init__(self, services: Services, current: Pass) -> None:
        self._services = services
        self._pass = current
        self._waiting: deque[SegmentCleaned] = deque()
        self._task: asyncio.Task[None] | None = None
        self._failed = False

    def add(self, cleaned: SegmentCleaned) -> None:
        if self._failed:
            return
        self._waiting.append(cleaned)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._swap_all())

    async def finished(self) -> bool:
        """Wait for those that were added. Are all of them in? Raises what went wrong with one."""
        if self._task is not None:
            await self._task
        return not self._failed

    async def end(self) -> None:
        """Wait for what is under way, and remove what was written in vain."""
        services, log, task = self._services, self._pass.log, self._pass.task
        if self._task is not None:
            await asyncio.wait([self._task])
        if log.offline and services.logs.logs.get(log.topic_partition) is log:
            return  # Its disk has failed.
        # If the topic was deleted, and made anew under the same name, the worker may have written beside the new log.
        bases = [segment.base_offset for segment in task.segments]
        await services.offload.run(partial(_discard_all, services.disk, task.directory, bases))

    async def _swap_all(self) -> None:
        try:
            while self._waiting:
                await self._swap(self._waiting.popleft())
        except BaseException:
            self._give_up()
            raise

    async def _swap(self, cleaned: SegmentCleaned) -> None:
        offload, clock = self._services.offload, self._services.clock
        swap = self._pass.swap(cleaned)
        try:
            await offload.run(swap.prepare)
        except FileNotFoundError:
            self._give_up()
            return
        if not self._pass.is_wanted or not swap.begin():
            await offload.run(swap.discard)
            self._give_up()
            return
        self._pass.on_swapped(cleaned)
        await offload.run(swap.run)
        swap.finish(clock.wall_ms())

    def _give_up(self) -> None:
        self._failed = True
        self._waiting.clear()
        self._services.offload.stop_apart()


def _identity(log: Log) -> tuple[Uuid, int]:
    return log.topic_id, log.topic_partition.partition


def _discard_all(disk: Disk, directory: str, bases: list[int]) -> None:
    for base in bases:
        discard(disk, directory, base)
