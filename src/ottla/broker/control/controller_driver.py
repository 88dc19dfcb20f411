"""The active controller's request loop.

A request generates records from the newest state; they are appended and replayed at once, and the answer waits for the
commit, while the next request already builds on them. Answers leave in the order of the log. A request without records
still waits for what was appended before it: it may have read state that is not yet committed.

Nothing is written while there is nothing to say. Kafka appends a no-op twice a second, so that observers can tell a
quiet log from a dead leader; a quorum of one has nobody to tell.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from ottla.broker.control.raft_driver import RaftDriver
from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.records import MetadataRecord
from ottla.metadata.state import MetadataState
from ottla.runtime.seams import Clock
from ottla.runtime.timers import Timer, TimerWheel

R = TypeVar("R")

Operation = Callable[[Controller, int], Generated[R]]

RECORDS_PER_BATCH_MAX = 10_000

_STALL_MS = 1_000
"""A session check that comes this late says that this process was paused, not that the brokers were."""


class ControllerDriver:
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
        self._waiting: deque[tuple[int, asyncio.Future[object], object]] = deque()
        self._session_timer: Timer | None = None
        self._session_check_ms = 0

    @property
    def active(self) -> Controller | None:
        return self._controller

    # Leadership.

    def activate(self, committed: MetadataState) -> None:
        """This node leads, and `committed` is all that was decided before."""
        assert self._controller is None, "a controller is activated once an epoch"
        controller = self._make_controller(committed, self._raft.log.log_end_offset, self._now_ms())
        self._controller = controller
        generated = controller.activate(self._bootstrap())
        if generated.records:
            controller.replay(self._raft.append(generated.records))
        self._schedule_session_check()

    def deactivate(self, error: KafkaError) -> None:
        """What was appended and not committed may survive or not; nobody is told that it did."""
        controller, self._controller = self._controller, None
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        waiting, self._waiting = self._waiting, deque()
        for _, future, _ in waiting:
            if not future.done():
                future.set_exception(error)
        if controller is not None:
            controller.revert()

    # Requests.

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        """Carry out `operation`; the result comes when it is committed. Refusals are `KafkaError`."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            controller = self._require_active()
            generated = operation(controller, self._now_ms())
            self._append(controller, generated.records)
        except KafkaError as error:
            future.set_exception(error)
        else:
            if controller.has_uncommitted:
                self._waiting.append((controller.next_offset - 1, future, generated.response))
            else:
                future.set_result(generated.response)
        return cast("asyncio.Future[R]", future)

    def _require_active(self) -> Controller:
        if self._controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        return self._controller

    def _append(self, controller: Controller, records: list[MetadataRecord]) -> None:
        # Requests are one batch each; only the death of a broker with very many partitions needs more.
        for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
            controller.replay(self._raft.append(records[start : start + RECORDS_PER_BATCH_MAX]))

    def answer(self, high_watermark: int) -> None:
        """What is before `high_watermark` is committed, and has been published."""
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _, future, response = waiting.popleft()
            if not future.done():
                future.set_result(response)

    # Sessions.

    def _now_ms(self) -> int:
        """Sessions must not jump with the wall clock."""
        return int(self._clock.monotonic() * 1000)

    def _schedule_session_check(self) -> None:
        controller = self._controller
        if controller is None:
            return
        now_ms = self._now_ms()
        # Whoever is unfenced meanwhile has a full session before him, but what a request brings forward must not wait.
        self._session_check_ms = min(max(controller.next_timed_work_ms(), now_ms + 1), now_ms + _STALL_MS)
        self._session_timer = self._timers.after(self._session_check_ms - now_ms, self._check_sessions)

    def _check_sessions(self) -> None:
        controller = self._controller
        if controller is None:
            return
        now_ms = self._now_ms()
        if now_ms > self._session_check_ms + _STALL_MS:
            controller.on_paused(now_ms)
        try:
            while (generated := controller.timed_work(now_ms)).records:
                self._append(controller, generated.records)
        except KafkaError:
            return  # The log failed, and whoever listens to the raft driver has been told.
        self._schedule_session_check()
