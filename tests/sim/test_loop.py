"""Virtual time: what is ready runs first, then the clock jumps; a paused loop waits, and a dead one is silent."""

from __future__ import annotations

import asyncio

import pytest

from ottla.sim.clock import SimClock
from ottla.sim.loop import WALL_MS, NodeDied, Scheduler, SimLoop


def loop_on(scheduler: Scheduler, name: str = "n1", rate: float = 1.0) -> SimLoop:
    return SimLoop(scheduler, SimClock(scheduler, wall_ms=WALL_MS, rate=rate), name)


def test_a_day_passes_at_once() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler)
    woken: list[float] = []

    async def sleeper() -> None:
        for _ in range(24):
            await asyncio.sleep(3600)
            woken.append(scheduler.now)

    loop.create_task(sleeper())
    scheduler.run(86_401)
    assert woken == [3600.0 * (hour + 1) for hour in range(24)]
    assert scheduler.now == 86_401


def test_callbacks_run_in_the_order_in_which_they_were_asked_for() -> None:
    scheduler = Scheduler()
    one, two = loop_on(scheduler, "n1"), loop_on(scheduler, "n2")
    seen: list[str] = []
    one.call_later(1, seen.append, "late")
    one.call_soon(seen.append, "a")
    two.call_soon(seen.append, "b")
    one.call_soon(seen.append, "c")
    two.call_later(1, seen.append, "late too")
    scheduler.run(2)
    assert seen == ["a", "b", "c", "late", "late too"]


def test_each_node_finds_its_own_loop_running() -> None:
    scheduler = Scheduler()
    loops = [loop_on(scheduler, name) for name in ("n1", "n2")]
    found: list[asyncio.AbstractEventLoop] = []
    for loop in loops:
        loop.call_soon(lambda: found.append(asyncio.get_running_loop()))
    scheduler.run(1)
    assert found == loops
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_paused_loop_does_everything_later_and_in_order() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler)
    seen: list[tuple[str, float]] = []
    for delay, name in ((2, "second"), (1, "first"), (9, "after")):
        loop.call_later(delay, lambda name=name: seen.append((name, scheduler.now)))
    loop.pause()
    scheduler.run(5)
    assert seen == []
    loop.resume()
    scheduler.run(10)
    assert seen == [("first", 5), ("second", 5), ("after", 9)]


def test_a_callback_that_waits_for_the_disk_holds_its_loop_up_and_nobody_else() -> None:
    scheduler = Scheduler()
    busy, other = loop_on(scheduler, "n1"), loop_on(scheduler, "n2")
    seen: list[tuple[str, float]] = []

    def work() -> None:
        busy.stall(3)
        seen.append(("work", scheduler.now))

    busy.call_soon(work)
    busy.call_later(1, lambda: seen.append(("busy", scheduler.now)))
    other.call_later(1, lambda: seen.append(("other", scheduler.now)))
    scheduler.run(10)
    assert seen == [("work", 0), ("other", 1), ("busy", 3)]


def test_a_dead_loop_runs_nothing_not_even_what_would_tidy_up() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler)
    seen: list[str] = []

    async def worker() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            seen.append("tidied up")

    loop.create_task(worker())
    loop.call_later(2, seen.append, "timer")
    scheduler.run(1)
    tasks = loop.kill()
    scheduler.run(100)
    assert seen == []
    assert len(tasks) == 1
    tasks[0].get_coro().close()


def test_death_in_the_middle_of_a_callback_ends_it() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler)
    seen: list[str] = []

    def dies() -> None:
        loop.kill()
        raise NodeDied

    loop.call_soon(dies)
    loop.call_soon(seen.append, "more")
    scheduler.run(1)
    assert seen == []


def test_a_fast_clock_makes_timers_come_early() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler, rate=2.0)
    seen: list[float] = []
    loop.call_later(10, lambda: seen.append(scheduler.now))
    scheduler.run(6)
    assert seen == [5.0]


def test_an_exception_goes_to_whoever_watches() -> None:
    scheduler = Scheduler()
    loop = loop_on(scheduler)
    errors: list[BaseException] = []
    loop.on_error = lambda _, context: errors.append(context["exception"])
    loop.call_soon(lambda: 1 // 0)
    scheduler.run(1)
    assert isinstance(errors[0], ZeroDivisionError)


def test_after_each_step_the_loops_that_ran_are_told() -> None:
    scheduler = Scheduler()
    one, two = loop_on(scheduler, "n1"), loop_on(scheduler, "n2")
    steps: list[list[str]] = []
    scheduler.after_step = lambda touched: steps.append([loop.name for loop in touched])
    one.call_soon(lambda: two.call_soon(lambda: None))
    two.call_later(1, lambda: None)
    scheduler.run(2)
    assert steps == [["n1", "n2"], ["n2"]]


def test_clocks_step_and_drift_without_a_jump_in_monotonic_time() -> None:
    scheduler = Scheduler()
    clock = SimClock(scheduler, wall_ms=1_000_000, uptime_s=50)
    scheduler.run(10)
    assert (clock.monotonic(), clock.wall_ms()) == (60, 1_010_000)
    clock.step(-5_000)
    assert (clock.monotonic(), clock.wall_ms()) == (60, 1_005_000)
    clock.drift(2.0)
    assert clock.monotonic() == 60
    scheduler.run(20)
    assert (clock.monotonic(), clock.wall_ms()) == (80, 1_025_000)
