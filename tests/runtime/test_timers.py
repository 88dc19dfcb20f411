"""The timer wheel: calls come in order, once, and not after a cancellation."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ottla.runtime.clock import SystemClock
from ottla.runtime.timers import Timer, TimerWheel


async def test_timers_fire_in_the_order_of_their_delays() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[int] = []
    for delay in (30, 10, 20):
        wheel.after(delay, lambda delay=delay: fired.append(delay))  # type: ignore[misc]
    await asyncio.sleep(0.08)
    assert fired == [10, 20, 30]


async def test_a_cancelled_timer_does_not_fire() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[str] = []
    wheel.after(5, lambda: fired.append("kept"))
    wheel.after(5, lambda: fired.append("cancelled")).cancel()
    await asyncio.sleep(0.03)
    assert fired == ["kept"]


async def test_what_is_cancelled_is_let_go_at_once() -> None:
    """Requests set timers of half a minute, a thousand a second, and cancel nearly all of them."""
    wheel = TimerWheel(SystemClock())
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            wheel.after(30_000, lambda: None).cancel()
        # Of this wheel: nodes of other tests may be alive in this process, and theirs with them.
        assert not [each for each in gc.get_objects() if type(each) is Timer and each._slots is wheel._slots]
    finally:
        gc.enable()
        wheel.close()


async def test_a_tick_may_be_used_again_after_a_cancellation() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[str] = []
    for _ in range(3):
        wheel.after(10, lambda: fired.append("cancelled")).cancel()
        wheel.after(20, lambda: fired.append("kept"))
        wheel.after(20, lambda: fired.append("cancelled")).cancel()
    await asyncio.sleep(0.06)
    assert fired == ["kept"] * 3
    wheel.after(5, lambda: fired.append("later"))
    await asyncio.sleep(0.03)
    assert fired[3:] == ["later"]


async def test_a_timer_may_cancel_its_neighbour_of_the_same_tick() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[str] = []
    neighbours: list[Timer] = []
    wheel.after(5, lambda: neighbours[0].cancel())
    neighbours.append(wheel.after(5, lambda: fired.append("cancelled")))
    await asyncio.sleep(0.03)
    assert not fired


async def test_an_earlier_timer_overtakes_the_one_that_the_loop_waits_for() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[str] = []
    wheel.after(10_000, lambda: fired.append("late"))
    wheel.after(5, lambda: fired.append("early"))
    await asyncio.sleep(0.03)
    assert fired == ["early"]
    wheel.close()


async def test_a_timer_that_fails_does_not_take_its_neighbours_with_it() -> None:
    wheel = TimerWheel(SystemClock())
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    fired: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    wheel.after(5, fail)
    wheel.after(5, lambda: fired.append("neighbour"))
    await asyncio.sleep(0.03)
    assert fired == ["neighbour"]
    assert len(failures) == 1


async def test_a_period_repeats_until_it_is_stopped() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[int] = []
    stop = wheel.every(5, lambda: fired.append(1))
    await asyncio.sleep(0.06)
    stop()
    count = len(fired)
    assert count >= 2
    await asyncio.sleep(0.03)
    assert len(fired) == count


async def test_a_period_can_stop_itself() -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[int] = []

    def once() -> None:
        fired.append(1)
        stop()

    stop = wheel.every(2, once)
    await asyncio.sleep(0.03)
    assert fired == [1]


@pytest.mark.parametrize("delay", [0, -5])
async def test_a_delay_that_is_over_fires_at_the_next_turn(delay: int) -> None:
    wheel = TimerWheel(SystemClock())
    fired: list[int] = []
    wheel.after(delay, lambda: fired.append(1))
    assert fired == []
    await asyncio.sleep(0.02)
    assert fired == [1]


class HandClock(SystemClock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def pass_ms(wheel: TimerWheel, clock: HandClock, milliseconds: int) -> None:
    for _ in range(milliseconds):
        clock.now_s += 0.001
        wheel._turn()


async def test_a_deadline_that_is_put_off_a_thousand_times_is_one_timer() -> None:
    clock = HandClock()
    wheel = TimerWheel(clock)
    fired: list[float] = []
    deadline = wheel.deadline(45_000, lambda: fired.append(clock.now_s))
    for _ in range(1000):
        pass_ms(wheel, clock, 3)
        deadline.put(wheel.now_ms() + 45_000)
    assert sum(len(slot) for slot in wheel._slots.values()) == 1
    last_put_s = clock.now_s
    pass_ms(wheel, clock, 44_999)
    assert fired == []
    pass_ms(wheel, clock, 3)
    assert len(fired) == 1
    assert fired[0] - last_put_s >= 45
    pass_ms(wheel, clock, 100)
    assert len(fired) == 1
    wheel.close()


async def test_a_deadline_draws_nearer_and_can_be_cancelled() -> None:
    clock = HandClock()
    wheel = TimerWheel(clock)
    fired: list[str] = []
    nearer = wheel.deadline(500, lambda: fired.append("nearer"))
    nearer.put(wheel.now_ms() + 10)
    put_off = wheel.deadline(10, lambda: fired.append("put off and cancelled"))
    put_off.put(wheel.now_ms() + 20)
    pass_ms(wheel, clock, 15)
    assert fired == ["nearer"]
    put_off.cancel()
    pass_ms(wheel, clock, 600)
    assert fired == ["nearer"]
    wheel.close()


async def test_a_clock_that_is_set_ahead_makes_due_what_it_passes() -> None:
    clock = HandClock()
    wheel = TimerWheel(clock)
    fired: list[str] = []
    wheel.after(5_000, lambda: fired.append("passed"))
    wheel.after(50_000, lambda: fired.append("to come"))
    deadline = wheel.deadline(8_000, lambda: fired.append("put off"))
    deadline.put(wheel.now_ms() + 20_000)
    clock.now_s += 10
    wheel.on_clock_moved()
    assert fired == ["passed"]
    clock.now_s += 100
    wheel.on_clock_moved()
    # The one that was put off looks at its time when its own tick comes, and is then called at once.
    await asyncio.sleep(0)
    assert sorted(fired) == ["passed", "put off", "to come"]
    wheel.on_clock_moved()
    assert len(fired) == 3
    wheel.close()
