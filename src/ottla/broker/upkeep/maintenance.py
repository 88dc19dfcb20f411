"""What a node does to its logs by the clock: retention, flushes that are due, checkpoints, expiry, removal, and a look
at who has fallen out of sync."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from ottla.broker.monitoring.telemetry import SWEEP_MS
from ottla.broker.services import Services
from ottla.runtime import DiskError

_log = logging.getLogger(__name__)

TICK_MS = 1_000
"""How often flushes (`flush.ms`, sealed segments) and removals (`file.delete.delay.ms`) are looked for."""


class LogMaintenance:
    """Timers on the node's wheels. A round of a kind that is still running is not started again."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._running: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        config = self._services.config
        self._every("tick", TICK_MS, self._tick)
        for name, key, work in (
            ("watermarks", "replica.high.watermark.checkpoint.interval.ms", self._checkpoint_watermarks),
            ("producers", "producer.id.expiration.check.interval.ms", self._expire_producers),
        ):
            self._every(name, config.get_int(key), work)
        # A node that has just started has better things to do.
        first_ms = config.get_int("log.initial.task.delay.ms")
        for name, key, work in (
            ("retention", "log.retention.check.interval.ms", self._retain),
            ("recovery points", "log.flush.offset.checkpoint.interval.ms", self._checkpoint_recovery_points),
            ("log starts", "log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_log_starts),
        ):
            self._every(name, config.get_int(key), work, first_ms)
        self._stops.append(self._services.timers.every(SWEEP_MS, self._services.telemetry.sweep))
        lag_ms_max = config.get_int("replica.lag.time.max.ms")
        self._stops.append(self._services.timers.every(max(1, lag_ms_max // 2), self._services.replicas.on_tick))

    def stop(self) -> None:
        for stop in self._stops:
            stop()

    async def settled(self) -> None:
        """Until no round is running."""
        await self._idle.wait()

    def _every(
        self,
        name: str,
        period_ms: int,
        work: Callable[[], Coroutine[object, object, None]],
        first_ms: int | None = None,
    ) -> None:
        def begin() -> None:
            if name not in self._running:
                self._running.add(name)
                self._idle.clear()
                self._services.spawn(self._guarded(name, work))

        self._stops.append(self._services.ageing.every(period_ms, begin, first_ms=first_ms))

    async def _guarded(self, name: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except DiskError as error:
            _log.error("%s of the logs failed: %s", name, error)
            self._services.replicas.fail_offline(error)
        finally:
            self._running.discard(name)
            if not self._running:
                self._idle.set()

    async def _tick(self) -> None:
        services = self._services
        now_ms = services.clock.wall_ms()
        for partition in list(services.replicas.partitions()):
            if not partition.offline and partition.log.flush_due(now_ms):
                services.replicas.flush(partition)
        removal = services.logs.begin_removal(now_ms)
        if removal:
            await services.offload.run(removal.run)

    async def _retain(self) -> None:
        """The new log starts are on the disk before any file goes, so that a crash leaves no hole above them."""
        services = self._services
        log_starts = services.logs.begin_retention(services.clock.wall_ms())
        if log_starts:
            await services.offload.run(log_starts.run)
            services.metrics.segments_deleted.value += services.logs.finish_retention(services.clock.wall_ms())
            services.replicas.touch_all()

    async def _checkpoint_recovery_points(self) -> None:
        await self._services.offload.run(self._services.logs.prepare_recovery_point_checkpoints().run)

    async def _checkpoint_log_starts(self) -> None:
        await self._services.offload.run(self._services.logs.prepare_log_start_checkpoints().run)

    async def _checkpoint_watermarks(self) -> None:
        await self._services.offload.run(self._services.logs.prepare_high_watermark_checkpoints().run)

    async def _expire_producers(self) -> None:
        self._services.logs.expire_producers(self._services.clock.wall_ms())
