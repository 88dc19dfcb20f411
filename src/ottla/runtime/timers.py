"""One wheel of timers for everything that waits: purgatories, sessions, throttles, periodic work.

A timer costs an entry in the slot of its tick, and is taken out when it is cancelled: most are, long before their time
comes, and those that stayed would be what the garbage collector looks at again and again. What is put off many times
before it comes is a `Deadline`. The event loop sees a single handle, the next tick on which something is due. Ticks are
milliseconds, as all of Kafka's timeouts are.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from ottla.runtime.seams import Clock

_LATE_ENOUGH = 0.0005
"""Seconds added to a tick, so that a loop which wakes a hair early does not find nothing due and sleep again."""


class Timer:
    """Something that will be called once, unless it is cancelled."""

    __slots__ = ("_call", "_slots", "_tick")

    def __init__(
        self, call: Callable[[], None], slots: dict[int, dict[Timer, None]] | None = None, tick: int = 0
    ) -> None:
        """`slots` is the wheel's, in which the timer lies at `tick`, if it waits for one."""
        self._call: Callable[[], None] | None = call
        self._slots = slots
        self._tick = tick

    def cancel(self) -> None:
        if self._call is None:
            return
        self._call = None
        if self._slots is not None and (slot := self._slots.get(self._tick)) is not None:
            slot.pop(self, None)
            if not slot:
                del self._slots[self._tick]

    def _fire(self) -> None:
        if self._call is not None:
            call, self._call = self._call, None
            call()


class Deadline:
    """A call that is put off far more often than it comes, as that of a session is: to put it off costs one store.

    One timer of the wheel stands for it, and looks when it fires whether its time has come. Only a deadline that draws
    nearer takes another one.
    """

    __slots__ = ("_call", "_due_ms", "_timer", "_timer_ms", "_wheel")

    def __init__(self, wheel: TimerWheel, delay_ms: float, call: Callable[[], None]) -> None:
        self._wheel = wheel
        self._call = call
        self._due_ms = self._timer_ms = wheel.now_ms() + delay_ms
        self._timer = wheel.after(delay_ms, self._on_timer)

    def put(self, due_ms: float) -> None:
        """The call comes at `due_ms` by the wheel's clock, and not when it was to come before."""
        self._due_ms = due_ms
        if due_ms < self._timer_ms:
            self._timer.cancel()
            self._arm()

    def cancel(self) -> None:
        self._timer.cancel()

    def _arm(self) -> None:
        self._timer_ms = self._due_ms
        self._timer = self._wheel.after(self._due_ms - self._wheel.now_ms(), self._on_timer)

    def _on_timer(self) -> None:
        if self._due_ms > self._timer_ms:
            self._arm()
        else:
            self._call()


class TimerWheel:
    """Owned by one event loop; `after` may be called from inside a timer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: dict[int, dict[Timer, None]] = {}
        self._ticks: list[int] = []
        """A heap of the ticks that have, or had, a slot: one whose timers were all cancelled stays till it is first."""
        self._handle: asyncio.TimerHandle | None = None
        self._armed_tick = 0
        self._closed = False

    def now_ms(self) -> float:
        return self._clock.monotonic() * 1000

    def after(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        slots = self._slots
        if delay_ms <= 0:
            # No tick to wait for: when the others have had their turn.
            timer = Timer(call)
            asyncio.get_running_loop().call_soon(timer._fire)
            return timer
        tick = int(self._clock.monotonic() * 1000 + delay_ms) + 1
        timer = Timer(call, slots, tick)
        slot = slots.get(tick)
        if slot is None:
            slots[tick] = {timer: None}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm()
        else:
            slot[timer] = None
        return timer

    def deadline(self, delay_ms: float, call: Callable[[], None]) -> Deadline:
        """Like `after`, for what will be put off again and again."""
        return Deadline(self, delay_ms, call)

    def every(self, period_ms: float, call: Callable[[], None], *, first_ms: float | None = None) -> Callable[[], None]:
        """Call again and again, `period_ms` after the last call returned and at first after `first_ms`, or else
        `period_ms`; the result stops it."""
        stopped = False

        def again() -> None:
            if stopped:
                return
            try:
                call()
            finally:
                self.after(period_ms, again)

        def stop() -> None:
            nonlocal stopped
            stopped = True

        self.after(period_ms if first_ms is None else first_ms, again)
        return stop

    def on_clock_moved(self) -> None:
        """The clock was set ahead: what has become due is called now, and the next tick is waited for anew."""
        if self._handle is not None:
            self._handle.cancel()
        self._turn()

    def close(self) -> None:
        self._closed = True
        self._slots.clear()
        self._ticks.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        ticks, slots = self._ticks, self._slots
        while ticks and ticks[0] not in slots:
            heapq.heappop(ticks)
        if self._closed or not ticks:
            return
        tick = ticks[0]
        if self._handle is not None:
            if self._armed_tick == tick:
                return
            self._handle.cancel()
        loop = asyncio.get_running_loop()
        delay = tick / 1000 - self._clock.monotonic() + _LATE_ENOUGH
        self._armed_tick = tick
        self._handle = loop.call_later(max(0.0, delay), self._turn)

    def _turn(self) -> None:
        self._handle = None
        now = int(self._clock.monotonic() * 1000)
        due: list[Timer] = []
        while self._ticks and self._ticks[0] <= now:
            due.extend(self._slots.pop(heapq.heappop(self._ticks), ()))
        for timer in due:
            try:
                timer._fire()
            except Exception as error:
                # One bad timer must not take the others of its tick with it.
                asyncio.get_running_loop().call_exception_handler({"message": "a timer failed", "exception": error})
        self._arm()
