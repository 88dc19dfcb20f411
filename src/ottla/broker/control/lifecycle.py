"""A broker's life in the cluster: it registers, catches up, is unfenced, is heard of, and takes its leave.

Speaks to the controller through a `ControllerChannel` alone. Every start is a new incarnation with a new epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.broker.control.channel import ControllerChannel
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.images import Endpoint
from ottla.model import Uuid
from ottla.runtime.timers import Timer, TimerWheel

NO_EPOCH = -1

_RETRY_MS = 50

_NOBODY_TO_ASK = (ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_BROKER_EPOCH)
"""Answers on which a broker that stops need not insist."""


class BrokerLifecycle:
    def __init__(
        self,
        *,
        channel: ControllerChannel,
        timers: TimerWheel,
        broker_id: int,
        cluster_id: str,
        incarnation_id: Uuid,
        rack: str | None,
        log_dirs: Sequence[Uuid],
        previous_epoch: int,
        heartbeat_interval_ms: int,
        metadata_offset: Callable[[], int],
    ) -> None:
        """`metadata_offset` is the last offset of the metadata log that this broker has taken in; `previous_epoch` is
        what the last clean shutdown left as its proof (KIP-966), or -1."""
        self._channel = channel
        self._timers = timers
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._rack = rack
        self._log_dirs = list(log_dirs)
        self._previous_epoch = previous_epoch
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._metadata_offset = metadata_offset
        self._offline_log_dirs: list[Uuid] = []
        self._timer: Timer | None = None
        self._beating: asyncio.Task[None] | None = None
        self._stopping = False
        self._caught_up: asyncio.Event = asyncio.Event()
        self.epoch = NO_EPOCH
        """The offset of this incarnation's registration; every request between brokers carries it."""

        self.fenced = True

    async def register(self, endpoints: Sequence[Endpoint]) -> None:
        """Make this broker known, fenced as yet. `endpoints` is what clients are told. Raises `KafkaError`."""
        from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
        from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse

        request = BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=self._rack,
            log_dirs=self._log_dirs,
            previous_broker_epoch=self._previous_epoch,
        )
        self.epoch = (await self._channel.send(request, BrokerRegistrationResponse)).broker_epoch

    def on_metadata(self, offset: int) -> None:
        """This broker has taken in the metadata log up to `offset`."""
        if offset >= self.epoch >= 0:
            self._caught_up.set()

    async def unfence(self) -> None:
        """Ask to be unfenced as soon as the own registration has come back, then be heard of regularly."""
        self.on_metadata(self._metadata_offset())
        await self._caught_up.wait()
        while self.fenced:
            await self._heartbeat()
            if self.fenced:
                await asyncio.sleep(_RETRY_MS / 1000)
        self._schedule()

    async def _heartbeat(self, *, want_shut_down: bool = False) -> bool:
        """Returns whether this broker may stop."""
        from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
        from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse

        response = await self._channel.send(
            BrokerHeartbeatRequest(
                broker_id=self._broker_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=False,
                want_shut_down=want_shut_down,
                offline_log_dirs=self._offline_log_dirs,
            ),
            BrokerHeartbeatResponse,
        )
        self.fenced = response.is_fenced
        return response.should_shut_down

    def report_offline(self, directory: Uuid) -> None:
        """A directory failed; the controller hears of it at once and from then on."""
        if directory not in self._offline_log_dirs:
            self._offline_log_dirs.append(directory)
            self._beat()

    def _schedule(self) -> None:
        if not self._stopping:
            self._timer = self._timers.after(self._heartbeat_interval_ms, self._beat)

    def _beat(self) -> None:
        if self._beating is None and not self._stopping and self.epoch != NO_EPOCH:
            if self._timer is not None:
                self._timer.cancel()
            self._beating = asyncio.get_running_loop().create_task(self._beat_once(), name="broker-heartbeat")

    async def _beat_once(self) -> None:
        try:
            await self._heartbeat()
        except KafkaError:
            pass  # The controller is gone or refuses; the next beat asks again.
        finally:
            self._beating = None
            self._schedule()

    async def shut_down(self) -> None:
        """Leave in order: leaderships are given away first (KIP-841). Returns when the controller lets us go."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            await self._beating
        if self.epoch == NO_EPOCH:
            return
        try:
            pause_ms = 0
            while not await self._heartbeat(want_shut_down=True):
                # The leaders have moved when the first answer comes; after that we wait for others to see it.
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = _RETRY_MS
        except KafkaError as error:
            if error.code not in _NOBODY_TO_ASK:
                raise
