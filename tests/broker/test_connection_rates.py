"""`max.connection.creation.rate`: peers over it are not refused, they wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ottla.broker.bounds.connection_rates import UNLIMITED, ConnectionRates, TokenBucket
from ottla.runtime.timers import Timer, TimerWheel


class World:
    """A clock that a test moves, timers on it, and a listener that knows whether its door is open."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        raise AssertionError("rates are of the monotonic clock")

    def after(self, delay_ms: float, call: Callable[[], None]) -> Timer:
        self._due.append((self.now_s + delay_ms / 1000, call))
        return Timer(call)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [call for at_s, call in self._due if at_s <= self.now_s + 1e-9]
        self._due = [(at_s, call) for at_s, call in self._due if at_s > self.now_s + 1e-9]
        for call in due:
            call()


class Door:
    address = ("memory", 1)

    def __init__(self) -> None:
        self.open = True

    def start(self) -> None:
        self.open = True

    def pause(self) -> None:
        self.open = False

    def close(self) -> None:
        self.open = False


def rates(world: World, doors: dict[str, Door], *, controllers: tuple[str, ...] = ()) -> ConnectionRates:
    built = ConnectionRates(world, cast(TimerWheel, world))
    for name, door in doors.items():
        built.watch(name, door, on_controller=name in controllers)
    return built


def limit(rates: ConnectionRates, node: int = UNLIMITED, exempt: str = "", **listeners: int) -> None:
    rates.set_limits(node_rate=node, listener_rates=listeners, exempt=exempt, window_s=1, samples=2)


def accepted_within(world: World, rates: ConnectionRates, doors: dict[str, Door], name: str, seconds: float) -> int:
    """How many of an endless queue of peers come in at the door `name`, looked at every millisecond."""
    count = 0
    ends_s = world.now_s + seconds
    while world.now_s < ends_s - 1e-9:
        for _ in range(100):
            if not doors[name].open:
                break
            rates.on_accepted(name)
            count += 1
        world.advance(0.001)
    return count


def test_a_quiet_node_takes_a_burst_and_then_so_many_a_second() -> None:
    world, doors = World(), {"A": Door()}
    it = rates(world, doors)
    limit(it, node=20, A=UNLIMITED)
    assert accepted_within(world, it, doors, "A", 0.01) == 21  # A window's worth, and the one that was too many.
    assert 99 <= accepted_within(world, it, doors, "A", 5) <= 101


def test_without_a_limit_nobody_waits() -> None:
    world, doors = World(), {"A": Door()}
    it = rates(world, doors)
    limit(it)
    for _ in range(10_000):
        it.on_accepted("A")
    assert doors["A"].open


def test_a_listener_has_a_rate_of_its_own() -> None:
    world, doors = World(), {"A": Door(), "B": Door()}
    it = rates(world, doors)
    limit(it, A=1, B=UNLIMITED)
    for name in ("A", "A", "B", "B", "B"):
        it.on_accepted(name)
    assert not doors["A"].open
    assert doors["B"].open


def test_the_listener_between_brokers_does_not_wait_for_clients() -> None:
    world, doors = World(), {"CLIENTS": Door(), "BROKERS": Door()}
    it = rates(world, doors)
    limit(it, node=2, exempt="BROKERS", CLIENTS=UNLIMITED, BROKERS=UNLIMITED)
    for _ in range(3):
        it.on_accepted("CLIENTS")
        it.on_accepted("BROKERS")
    assert not doors["CLIENTS"].open
    assert doors["BROKERS"].open


def test_but_it_waits_when_it_is_the_only_one() -> None:
    world, doors = World(), {"BROKERS": Door(), "CONTROLLER": Door()}
    it = rates(world, doors, controllers=("CONTROLLER",))
    limit(it, node=1, exempt="BROKERS", BROKERS=UNLIMITED, CONTROLLER=UNLIMITED)
    it.on_accepted("BROKERS")
    it.on_accepted("BROKERS")
    assert not doors["BROKERS"].open
    it.on_accepted("CONTROLLER")
    assert doors["CONTROLLER"].open


def test_one_pause_is_at_most_a_window_whatever_the_rate() -> None:
    world, doors = World(), {"A": Door()}
    it = rates(world, doors)
    limit(it, node=0)
    it.on_accepted("A")
    assert not doors["A"].open
    world.advance(0.999)
    assert not doors["A"].open
    world.advance(0.001)
    assert doors["A"].open


def test_a_rate_that_rises_is_there_at_once() -> None:
    bucket = TokenBucket(0.0)
    bucket.set_rate(1, 1, 0.0)
    assert [bucket.take(0.0, 1.0) for _ in range(2)] == [0.0, 1.0]
    bucket.set_rate(10, 10, 0.0)
    assert [bucket.take(0.0, 1.0) for _ in range(8)] == [0.0] * 8
    assert bucket.take(0.0, 1.0) > 0
