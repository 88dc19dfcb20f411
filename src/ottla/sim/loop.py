"""Virtual time, and an asyncio event loop for each node on it.

One `Scheduler` owns the time of the whole simulation: a queue of what is ready and a heap of what is due later. While
anything is ready, time stands still; when nothing is, it jumps to the next thing due. Each node (each incarnation of
one, in fact) has a `SimLoop` on it, so that whatever a node schedules is known to be its own: a paused node's callbacks
are kept until it goes on, a dead one's are never called.

Everything that runs between two jumps is one step; `after_step` is called with the loops that took part in it.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.sim.clock import SimClock

T = TypeVar("T")

RUNNING, PAUSED, DEAD = 0, 1, 2

WALL_MS = 1_800_000_000_000
"""When every simulation begins, by the wall clock."""


class NodeDied(BaseException):
    """Raised into the code of a node at the very moment of its death, and by all that it touches afterwards.

    Not an `Exception`: nothing a node does may catch it and go on.
    """


class Handle:
    """A callback that is ready or due; asyncio's handles, reduced to what is used of them."""

    __slots__ = ("args", "callback", "context", "due", "loop")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None, loop: SimLoop, due: float
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.loop = loop
        self.due = due

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.due


class Scheduler:
    """The time of everybody. `now` is in seconds since the simulation began; nodes see it through their clocks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: deque[Handle] = deque()
        self.heap: list[tuple[float, int, Handle]] = []
        self.sequence = 0
        self.callbacks = 0
        """How many have run."""
        self.steps = 0
        self.after_step: Callable[[dict[SimLoop, None]], None] | None = None
        self.touched: dict[SimLoop, None] = {}
        """The loops that ran anything in this step."""
        self.stopped = False
        self.world = SimLoop(self, SimClock(self, wall_ms=WALL_MS), "world")
        """For what is no node: faults, clients, the network's own doing."""

    def push(self, when: float, handle: Handle) -> None:
        self.sequence += 1
        heappush(self.heap, (when, self.sequence, handle))

    def stop(self) -> None:
        """Return from `run` after this callback."""
        self.stopped = True

    def run(self, until: float) -> None:
        """Let time pass until `until`, or until somebody calls `stop`."""
        ready, heap, touched = self.ready, self.heap, self.touched
        popleft, enter = ready.popleft, events._set_running_loop
        current: SimLoop | None = None
        count = 0
        outer = events._get_running_loop()
        self.stopped = False
        try:
            while True:
                while ready:
                    handle = popleft()
                    callback = handle.callback
                    if callback is None:
                        continue
                    loop = handle.loop
                    if loop.state:
                        if loop.state == PAUSED:
                            loop.held.append(handle)
                        continue
                    if loop is not current:
                        current = loop
                        touched[loop] = None
                        enter(loop)
                    handle.callback = None
                    count += 1
                    try:
                        if handle.context is None:
                            callback(*handle.args)
                        else:
                            handle.context.run(callback, *handle.args)
                    except (KeyboardInterrupt, SystemExit):
                        raise
                    except NodeDied:
                        assert loop.state == DEAD
                    except BaseException as error:
                        loop.call_exception_handler({"message": f"{callback!r} failed", "exception": error})
                    if self.stopped:
                        return
                if touched:
                    self.steps += 1
                    if self.after_step is not None:
                        enter(None)
                        self.after_step(touched)
                    touched.clear()
                    current = None
                    if self.stopped:
                        return
                    if ready:
                        continue
                if not heap or heap[0][0] > until:
                    if until > self.now:
                        self.now = until
                    return
                when, _, handle = heappop(heap)
                if handle.callback is None:
                    continue
                if when > self.now:
                    self.now = when
                ready.append(handle)
                # What is due at the same moment runs in the order in which it was asked for.
                while heap and heap[0][0] <= when:
                    ready.append(heappop(heap)[2])
        finally:
            self.callbacks += count
            enter(outer)


if TYPE_CHECKING:
    _Loop = asyncio.BaseEventLoop
else:
    _Loop = asyncio.AbstractEventLoop
    """Whatever is not needed raises `NotImplementedError`; only its stubs insist on all of it."""


class SimLoop(_Loop):
    """What one incarnation of a node sees as its event loop. States: running ⇄ paused → dead."""

    def __init__(self, scheduler: Scheduler, clock: SimClock, name: str) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.name = name
        self.state = RUNNING
        self.held: deque[Handle] = deque()
        """What came due while paused."""
        self.on_error: Callable[[SimLoop, dict[str, Any]], None] | None = None
        self._append = scheduler.ready.append
        self._pauses = 0

    def __repr__(self) -> str:
        return f"<loop of {self.name}>"

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.clock.monotonic()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        handle = Handle(callback, args, context, self, 0.0)
        self._append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        scheduler = self.scheduler
        due = scheduler.now + delay / self.clock.rate if delay > 0 else scheduler.now
        handle = Handle(callback, args, context, self, due)
        scheduler.sequence += 1
        heappush(scheduler.heap, (due, scheduler.sequence, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_later(when - self.clock.monotonic(), callback, *args, context=context)

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        """As `call_at`, in the time of the simulation. For the seams."""
        handle = Handle(callback, args, None, self, when)
        self.scheduler.push(when, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.state == RUNNING

    def is_closed(self) -> bool:
        return self.state == DEAD

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state != DEAD and self.on_error is not None:
            self.on_error(self, context)

    # What the simulation does to it.

    def pause(self) -> None:
        """As SIGSTOP does. Pauses nest: a node that is stopped may also be waiting for its disk."""
        self._pauses += 1
        if self.state == RUNNING:
            self.state = PAUSED

    def resume(self) -> None:
        if self.state == DEAD:
            return
        self._pauses -= 1
        assert self._pauses >= 0
        if not self._pauses:
            self.state = RUNNING
            self.scheduler.ready.extend(self.held)
            self.held.clear()

    def stall(self, seconds: float) -> None:
        """The callback that runs now takes this long: nothing else of this loop runs meanwhile."""
        if seconds > 0 and self.state != DEAD:
            self.pause()
            self.scheduler.world.at(self.scheduler.now + seconds, self.resume)

    def kill(self) -> list[asyncio.Task[Any]]:
        """Not another instruction. Returns the tasks that will never end: keep them, since dropping one runs its
        `finally` blocks."""
        self.state = DEAD
        self.held.clear()
        tasks = sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        return tasks
