"""The active controller's request loop.

A request generates records from the newest state; they are appended and replayed at once, and the answer waits for the
commit, while the next request already builds on them. Answers leave in the order of the log. A request without records
still waits for what was appended before it: it may have read state that is not yet committed.

A controller comes and goes with the leadership of its epoch. What it had appended and not seen committed is answered
with NOT_CONTROLLER: the next leader may keep it or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from ottla.broker.control.raft_driver import RaftDriver
from ottla.controller.controller import METHODS, Controller
from ottla.controller.generated import Generated
from ottla.controller.requester import ANYBODY, Requester
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataBatch, MetadataState
from ottla.metrics.instruments import Histogram
from ottla.runtime.seams import Clock
from ottla.runtime.timers import Timer, TimerWheel
from ottla.wire.message import Message

_log = logging.getLogger(__name__)

R = TypeVar("R")

Operation = Callable[[Controller, int], Generated[R]]

RECORDS_PER_BATCH_MAX = 10_000

_STALL_MS = 1_000
"""Timed work that comes this late says that this process was paused, not that the brokers were."""


class ControllerDriver:
    """Inactive → active (`activate`) → inactive (`deactivate`), as often as this node is elected."""

    def __init__(
        self,
        *,
        raft: RaftDriver,
        clock: Clock,
        timers: TimerWheel,
        make_controller: Callable[[MetadataState, int, int], Controller],
        bootstrap: Callable[[], Sequence[MetadataRecord]],
    ) -> None:
        """`make_controller` gets the committed state, the log's end and the time."""
        self._raft = raft
        self._clock = clock
        self._timers = timers
        self._make_controller = make_controller
        self._bootstrap = bootstrap
        self._controller: Controller | None = None
        self._epoch = -1
        self._waiting: deque[tuple[int, asyncio.Future[object], object, float]] = deque()
        self._timer: Timer | None = None
        self._timer_ms = 0
        self.processing_time = Histogram()
        """How long changes took to be worked out and appended; the node puts its own in place, as of the next."""
        self.commit_latency = Histogram()
        """From a change to its commit."""

    @property
    def active(self) -> Controller | None:
        return self._controller

    # Leadership.

    def activate(self, epoch: int, committed: MetadataState) -> None:
        """This node leads `epoch`, and `committed` is all that was decided before."""
        assert self._controller is None, "a controller is activated once an epoch"
        controller = self._make_controller(committed, self._raft.log.log_end_offset, self._now_ms())
        self._controller, self._epoch = controller, epoch
        self._append(controller.activate(self._bootstrap()).records)
        self._schedule_timed_work()

    def deactivate(self, error: KafkaError) -> None:
        """What was appended and not committed may survive or not; nobody is told that it did."""
        controller, self._controller = self._controller, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for _, future, _, _ in waiting:
            if not future.done():
                future.set_exception(error)
        if controller is not None:
            controller.revert()

    # Requests.

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        """Carry out `operation` in this turn of the loop, so that what follows shares its flush; the result comes when
        it is committed. Refusals are `KafkaError`."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        began_s = self._clock.monotonic()
        try:
            controller = self._require_active()
            generated = operation(controller, self._tell_time(controller))
            self._append(generated.records)
            if self._controller is not controller:
                # The log took the records, and failed at what had to follow them: this node decides nothing any more.
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller any more.")
        except KafkaError as error:
            future.set_exception(error)
        except Exception as error:
            self._on_bug(error)
            future.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed."))
        else:
            if controller.has_uncommitted:
                self._waiting.append((controller.next_offset - 1, future, generated.response, began_s))
            else:
                future.set_result(generated.response)
        self.processing_time.observe(self._microseconds_since(began_s))
        return cast("asyncio.Future[R]", future)

    def _on_bug(self, error: Exception) -> None:
        """Nobody knows whether the state still is what the log says, so this node decides nothing more."""
        _log.error("the controller failed", exc_info=error)
        self._raft.fail(error)

    def submit_request(self, request: Message, requester: Requester = ANYBODY) -> asyncio.Future[Message]:
        """As `submit`, for one of the wire's requests."""
        name = METHODS.get(type(request).__name__)
        if name == "update_features":
            return self.submit(lambda active, now_ms: self._update_features(active, request, now_ms, requester))

        def operation(controller: Controller, now_ms: int) -> Generated[Message]:
            if name is None:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {type(request).__name__}."
                )
            generated: Generated[Message] = getattr(controller, name)(request, now_ms, requester)
            return generated

        return self.submit(operation)

    def _update_features(
        self, controller: Controller, request: Message, now_ms: int, requester: Requester
    ) -> Generated[Message]:
        """kraft.version is among the features, but the quorum's own: it is raised with the rest or not at all."""
        from ottla.wire.messages.update_features_request import UpdateFeaturesRequest

        assert isinstance(request, UpdateFeaturesRequest)
        machine = self._raft.machine
        wanted = {update.feature: update.max_version_level for update in request.feature_updates}
        level = wanted.get(KRAFT_VERSION, machine.kraft_version)
        upgrades = level > machine.kraft_version
        controller.on_quorum(machine.voters.latest.ids, level if upgrades else machine.kraft_version)
        generated = controller.update_features(request, now_ms, requester)
        if upgrades:
            self._raft.upgrade_kraft_version(level, self._epoch, validate_only=request.validate_only)
        return cast("Generated[Message]", generated)

    def _require_active(self) -> Controller:
        # The machine knows first that its leadership is over; this driver hears of it when the new epoch is durable.
        if self._controller is None or not self._raft.machine.leads(self._epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._controller

    def _append(self, records: list[MetadataRecord]) -> None:
        from ottla.wire.messages.no_op_record import NoOpRecord

        # Requests are one batch each; only the death of a broker with very many partitions needs more.
        idle = all(isinstance(record.message, NoOpRecord) for record in records)
        for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
            self._raft.append(records[start : start + RECORDS_PER_BATCH_MAX], self._epoch, idle=idle)
        if records:
            self._schedule_timed_work()  # They may have brought it forward.

    def on_appended(self, batch: MetadataBatch) -> None:
        """In the order of the log: what this driver appended, and what the raft layer did."""
        if self._controller is not None:
            self._controller.replay(batch)

    def on_committed(self, high_watermark: int) -> None:
        """What is before `high_watermark` is committed, and has been published."""
        if self._controller is not None:
            self._controller.on_committed(high_watermark)
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _, future, response, began_s = waiting.popleft()
            self.commit_latency.observe(self._microseconds_since(began_s))
            if not future.done():
                future.set_result(response)

    # Time.

    def _now_ms(self) -> int:
        """Sessions must not jump with the wall clock."""
        return int(self._clock.monotonic() * 1000)

    def _microseconds_since(self, began_s: float) -> int:
        return int((self._clock.monotonic() - began_s) * 1e6)

    def _tell_time(self, controller: Controller) -> int:
        now_ms = self._now_ms()
        controller.on_wall_clock(self._clock.wall_ms() - now_ms)
        return now_ms

    def _schedule_timed_work(self) -> None:
        controller = self._controller
        if controller is None:
            return
        now_ms = self._now_ms()
        due_ms = max(controller.next_timed_work_ms(), now_ms + 1)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._timers.after(due_ms - now_ms, self._do_timed_work)

    def _do_timed_work(self) -> None:
        self._timer = None
        controller = self._controller
        if controller is None:
            return
        now_ms = self._tell_time(controller)
        if now_ms > self._timer_ms + _STALL_MS:
            controller.on_paused(now_ms)
        status = self._raft.machine.describe(now_ms)
        controller.on_listeners(present=status is not None and len(status.voters) + len(status.observers) > 1)
        try:
            while (generated := controller.timed_work(now_ms)).records:
                self._append(generated.records)
        except KafkaError:
            return  # The leadership or the log is lost, and whoever listens to the raft driver will be told.
        except Exception as error:
            self._on_bug(error)
            return
        self._schedule_timed_work()
