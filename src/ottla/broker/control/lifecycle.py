"""A broker's life in the cluster: it registers, catches up, is unfenced, is heard of, and takes its leave.

Speaks to the controller through a `ControllerChannel` alone, so that it neither knows nor cares which node that is, or
that it has become another. Every start is a new incarnation with a new epoch.

    registering    asks until it is accepted: the session of a former self that was killed has to run out first
    catching up    heard of, fenced; waits until it has read its own registration in the metadata log
    unfenced       heard of every `broker.heartbeat.interval.ms`; if it was fenced meanwhile, a heartbeat unfences it
    leaving        asks for leave until the controller has moved its leaderships, or its patience is at an end
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ottla.broker.control.channel import ControllerChannel
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES, has_directory_assignment
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.model import Uuid
from ottla.runtime.seams import Clock
from ottla.runtime.timers import Timer, TimerWheel

_log = logging.getLogger(__name__)

NO_EPOCH = -1

_RETRY_MS = 50
_RETRY_MS_MAX = 1_000

_FOR_GOOD = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""Refusals of a registration that time does not mend."""

_NO_LEAVE_NEEDED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Answers on which a broker that stops does not insist."""

_LEAVE_MS_MAX = 30_000
_NO_CONTROLLER_MS_MAX = 5_000
"""How long a broker that stops waits for leave, and for a controller to ask: longer than an election takes."""


class BrokerLifecycle:
    def __init__(
        self,
        *,
        channel: ControllerChannel,
        clock: Clock,
        timers: TimerWheel,
        broker_id: int,
        cluster_id: str,
        incarnation_id: Uuid,
        rack: str | None,
        log_dirs: Sequence[Uuid],
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        controlled_shutdown: bool,
        metadata_offset: Callable[[], int],
        on_bug: Callable[[Exception], None],
    ) -> None:
        """`metadata_offset` is the last offset of the metadata log that this broker has taken in; `on_bug` is told of
        what no heartbeat should meet: a node without heartbeats must not look alive."""
        self._channel = channel
        self._clock = clock
        self._timers = timers
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._rack = rack
        self._log_dirs = list(log_dirs)
        self._previous_epoch = NO_EPOCH
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._controlled_shutdown = controlled_shutdown
        self._metadata_offset = metadata_offset
        self._on_bug = on_bug
        self._endpoints: Sequence[Endpoint] = ()
        self._offline_log_dirs: list[Uuid] = []
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._failures = 0
        self._registration_due = False
        self._ready = False
        self._stopping = False
        self._caught_up = asyncio.Event()
        self.epoch = NO_EPOCH
        """The offset of this incarnation's registration; every request between brokers carries it."""

        self.fenced = True

    # Arriving.

    async def register(self, endpoints: Sequence[Endpoint], previous_epoch: int = NO_EPOCH) -> None:
        """Make this broker known, fenced as yet. `endpoints` is what clients are told; `previous_epoch` is what the
        last clean shutdown left as its proof (KIP-966), if it did.

        Raises `KafkaError` once `initial.broker.registration.timeout.ms` is over, or where waiting would not help.
        """
        self._endpoints = endpoints
        self._previous_epoch = previous_epoch
        deadline = self._clock.monotonic() + self._registration_timeout_ms / 1000
        pause_ms = _RETRY_MS
        told = False
        while True:
            left_ms = max(1, int((deadline - self._clock.monotonic()) * 1000))
            try:
                await self._register(left_ms)
                break
            except KafkaError as error:
                if error.code in _FOR_GOOD or self._clock.monotonic() + pause_ms / 1000 >= deadline or self._stopping:
                    raise
                if not told:
                    told = True
                    _log.warning("the controller does not register this broker yet, so it asks again: %s", error)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _RETRY_MS_MAX)
        self.on_metadata(self._metadata_offset())
        self._schedule(self._heartbeat_interval_ms)

    async def _register(self, timeout_ms: int) -> None:
        from ottla.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
        from ottla.wire.messages.broker_registration_response import BrokerRegistrationResponse

        request = BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=self._rack,
            log_dirs=self._log_dirs,
            previous_broker_epoch=self._previous_epoch,
        )
        self.epoch = (await self._channel.send(request, BrokerRegistrationResponse, timeout_ms=timeout_ms)).broker_epoch

    def on_metadata(self, offset: int) -> None:
        """This broker has taken in the metadata log up to `offset`."""
        if offset >= self.epoch >= 0:
            self._caught_up.set()

    def on_image(self, image: MetadataImage) -> None:
        """A cluster that has learned to assign directories wants to hear of those of this broker (KIP-858)."""
        own = image.broker(self._broker_id)
        if (
            own is not None
            and own.epoch == self.epoch
            and not own.log_dirs
            and self._log_dirs
            and has_directory_assignment(image.features.metadata_version)
        ):
            self._registration_due = True
            self._beat()

    async def catch_up(self) -> None:
        """Returns when this broker has read its own registration."""
        await self._caught_up.wait()

    async def unfence(self) -> None:
        """This broker can serve: returns when the cluster sends clients to it."""
        self._ready = True
        while self.fenced:
            try:
                await self._heartbeat()
            except KafkaError as error:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    raise
            if self.fenced:
                await asyncio.sleep(_RETRY_MS / 1000)

    # Being heard of.

    async def _heartbeat(self, *, want_shut_down: bool = False, timeout_ms: int | None = None) -> bool:
        """Returns whether this broker may stop."""
        from ottla.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
        from ottla.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse

        response = await self._channel.send(
            BrokerHeartbeatRequest(
                broker_id=self._broker_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=not self._ready,
                want_shut_down=want_shut_down,
                offline_log_dirs=self._offline_log_dirs,
            ),
            BrokerHeartbeatResponse,
            timeout_ms=self._session_timeout_ms if timeout_ms is None else timeout_ms,
        )
        if response.is_fenced and not self.fenced and self._ready and not self._stopping:
            _log.warning("this broker was fenced, and asks to be let in again")
        self.fenced = response.is_fenced
        return response.should_shut_down

    def report_offline(self, directory: Uuid) -> None:
        """A directory failed; the controller hears of it at once and from then on."""
        if directory not in self._offline_log_dirs:
            self._offline_log_dirs.append(directory)
            self._beat()

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopping:
            self._timer = self._timers.after(delay_ms, self._beat)

    def _beat(self) -> None:
        """One at a time; one that is wanted meanwhile follows."""
        if self._task is not None:
            self._again = True
        elif self.epoch != NO_EPOCH and not self._stopping:
            self._task = asyncio.get_running_loop().create_task(self._beat_once(), name="broker-heartbeat")

    async def _beat_once(self) -> None:
        try:
            if self._registration_due:
                # The same incarnation, and so the same epoch.
                await self._register(self._session_timeout_ms)
                self._registration_due = False
            await self._heartbeat()
            self._failures = 0
        except KafkaError as error:
            # The controller is gone or refuses; the next beat asks again.
            if not self._failures:
                _log.warning("a heartbeat of this broker failed: %s", error)
            self._failures += 1
        except Exception as error:
            _log.error("a heartbeat of this broker failed, and there will be no other", exc_info=error)
            self._on_bug(error)
            return
        finally:
            self._task = None
        if self._again:
            self._again = False
            self._beat()
        elif self._failures:
            self._schedule(min(_RETRY_MS << min(self._failures, 10), self._heartbeat_interval_ms))
        else:
            self._schedule(self._heartbeat_interval_ms)

    # Leaving.

    async def shut_down(self, *, with_leave: bool = True) -> None:
        """Leave in order: leaderships are given away first (KIP-841). Returns when the controller lets us go, or when
        there is no hope that it will."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            # It may wait for a controller that does not come; what it says is said again below.
            self._task.cancel()
            await asyncio.wait([self._task])
        if self.epoch == NO_EPOCH or not self._controlled_shutdown or not with_leave:
            return
        deadline = self._clock.monotonic() + _LEAVE_MS_MAX / 1000
        pause_ms = 0
        try:
            while not await self._heartbeat(want_shut_down=True, timeout_ms=_NO_CONTROLLER_MS_MAX):
                if self._clock.monotonic() >= deadline:
                    _log.warning("the controller did not give leave to stop in time, so this broker stops without")
                    return
                # The leaders have moved when the first answer comes; after that we wait for others to see it.
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = _RETRY_MS
        except KafkaError as error:
            if error.code not in _NO_LEAVE_NEEDED:
                _log.warning("this broker stops without leave, for there is no controller to give it: %s", error)
