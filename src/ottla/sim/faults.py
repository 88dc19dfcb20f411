"""Everything that can go wrong around a node, each with a seeded schedule.

A fault begins, lasts and ends; `Faults` keeps the undoing of what lasts. Two rules bound the damage so that what is
promised can be demanded. Faults that lose or spoil data (power, disks) strike a node only while every other replica of
what it holds is in sync and has all of it, unless every acknowledged record is synced. And a node that went down is
started again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.sim import view
from ottla.sim.cluster import Machine

if TYPE_CHECKING:
    from ottla.sim.run import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    name: str
    section: int
    """Of the fault model."""
    strike: Callable[[Faults, Random], bool]
    """Do it; false if it could not be done just now."""
    nodes_min: int = 1
    spoils_data: bool = False


class Faults:
    def __init__(self, simulation: Simulation, random: Random) -> None:
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.fabric = simulation.cluster.fabric
        self.scheduler = simulation.scheduler
        self._random = random
        self.kinds = [KINDS[name] for name in simulation.options.fault_kinds]
        self.counts: dict[str, int] = {}
        self.stopped = False
        self._undo: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._due: dict[int, int] = {}
        self.spoiled: dict[int, float] = {}
        """Nodes that lost data, and when."""

    # The schedule.

    def start(self) -> None:
        self._next()

    def _next(self) -> None:
        wait = self._random.expovariate(self.simulation.options.faults_per_s)
        self.scheduler.world.call_later(wait, self._strike)

    def _strike(self) -> None:
        if self.stopped:
            return
        self._next()
        usable = [kind for kind in self.kinds if kind.nodes_min <= len(self.cluster.machines)]
        if not usable:
            return
        for _ in range(4):
            kind = self._random.choice(usable)
            if kind.strike(self, self._random):
                self.counts[kind.name] = self.counts.get(kind.name, 0) + 1
                return

    def stop(self) -> None:
        """No more of it, and undo all that still lasts."""
        self.stopped = True
        for number in sorted(self._undo):
            self._undo.pop(number)()

    def lasting(self, seconds: float, undo: Callable[[], None]) -> None:
        """Call `undo` after so long, or when all is healed."""
        self._numbers += 1
        number = self._numbers
        self._undo[number] = undo

        def end() -> None:
            found = self._undo.pop(number, None)
            if found is not None:
                found()

        self.scheduler.world.call_later(seconds, end)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.simulation.spawn(work)

    # Whom to strike.

    def any_up(self, random: Random) -> Machine | None:
        up = [machine for machine in self.cluster.machines.values() if machine.process is not None]
        return random.choice(up) if up else None

    def any_running(self, random: Random) -> Machine | None:
        """Leaders and the active controller are struck more often than others."""
        up = [machine for machine in self.cluster.machines.values() if machine.serving and not machine.paused]
        if not up:
            return None
        if random.random() < 0.5:
            important = [machine for machine in up if view.is_active_controller(machine) or view.leads_any(machine)]
            if important:
                return random.choice(important)
        return random.choice(up)

    def may_lose_data(self, machine: Machine) -> bool:
        """Would everything that was promised survive if this node lost what it has not synced?"""
        return self.simulation.options.flush_each or view.others_have_everything(self.cluster, machine)

    def restart_later(self, machine: Machine, seconds: float) -> None:
        self._due[machine.id] = self._due.get(machine.id, 0) + 1

        def start() -> None:
            self._due[machine.id] -= 1
            machine.start()

        self.lasting(seconds, start)

    def is_due(self, machine: Machine) -> bool:
        """Will it be started anyway?"""
        return self._due.get(machine.id, 0) > 0


# The kinds.


def _downtime(random: Random) -> float:
    return random.choice((random.uniform(0.05, 1.0), random.uniform(1.0, 4.0), random.uniform(4.0, 12.0)))


def _process_crash(faults: Faults, random: Random) -> bool:
    machine = faults.any_up(random) if random.random() < 0.3 else faults.any_running(random)
    if machine is None:
        return False
    if random.random() < 0.3:
        machine.crash_in(random.randrange(1, 30), power=False)
        faults.lasting(6.0, lambda: machine.crash())
        faults.restart_later(machine, 6.0 + _downtime(random))
    else:
        machine.crash()
        faults.restart_later(machine, _downtime(random))
    return True


def _power_loss(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    machine.crash(power=True)
    faults.spoiled[machine.id] = faults.scheduler.now
    faults.restart_later(machine, _downtime(random))
    return True


def _blackout(faults: Faults, random: Random) -> bool:
    """The power of all machines at once."""
    if not faults.simulation.options.flush_each:
        return False
    for machine in faults.cluster.machines.values():
        machine.crash(power=True)
        faults.restart_later(machine, _downtime(random))
    return True


def _torn_write(faults: Faults, random: Random) -> bool:
    """The power goes in the middle of some change to the disk."""
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    process = machine.process
    assert process is not None
    faults.spoiled[machine.id] = faults.scheduler.now

    def strike() -> None:
        if machine.process is process and faults.may_lose_data(machine):
            machine.crash(power=True)
            faults.restart_later(machine, _downtime(random))

    process.disk.crash_in(random.randrange(1, 12), strike)
    return True


def _pause(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None:
        return False
    machine.pause()
    faults.lasting(random.choice((random.uniform(0.2, 2.0), random.uniform(2.0, 12.0))), machine.resume)
    return True


def _isolate(faults: Faults, random: Random) -> bool:
    """One node, or several, against the rest, both ways."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    random.shuffle(hosts)
    cut = random.randrange(1, max(2, len(hosts)))
    inside, outside = hosts[:cut], hosts[cut:]
    if random.random() < 0.5:
        outside += [client for client in faults.simulation.client_hosts if random.random() < 0.5]
    return _cut(faults, random, [(a, b) for a in inside for b in outside] + [(b, a) for a in inside for b in outside])


def _one_way(faults: Faults, random: Random) -> bool:
    """A node that is heard and hears nothing, or hears and is not heard."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    one = random.choice(hosts)
    others = [name for name in hosts if name != one]
    heard = random.random() < 0.5
    return _cut(faults, random, [(other, one) if heard else (one, other) for other in others])


def _bridge(faults: Faults, random: Random) -> bool:
    """Two groups that cannot reach each other, and one node that reaches both."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    random.shuffle(hosts)
    rest = hosts[1:]
    half = len(rest) // 2
    pairs = [(a, b) for a in rest[:half] for b in rest[half:]]
    return _cut(faults, random, pairs + [(b, a) for a, b in pairs])


def _cut(faults: Faults, random: Random, pairs: list[tuple[str, str]]) -> bool:
    if not pairs:
        return False
    fabric = faults.fabric
    for source, target in pairs:
        fabric.cut(source, target)
    faults.cluster.trace.note("network", f"cut: {', '.join(f'{a}→{b}' for a, b in pairs)}")

    def undo() -> None:
        faults.cluster.trace.note("network", f"healed: {', '.join(f'{a}→{b}' for a, b in pairs)}")
        for source, target in pairs:
            fabric.heal(source, target)
        if random.random() < 0.5:
            for source, target in pairs:
                fabric.reset_connections(source, target)

    faults.lasting(random.choice((random.uniform(0.2, 2.0), random.uniform(2.0, 10.0))), undo)
    return True


def _swizzle(faults: Faults, random: Random) -> bool:
    """Clog nodes one by one, and unclog them in another order."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    chosen = random.sample(hosts, random.randrange(1, len(hosts) + 1))
    everybody = hosts + faults.simulation.client_hosts
    world = faults.scheduler.world
    at = 0.0
    back = chosen[:]
    random.shuffle(back)

    def clog(host: str) -> None:
        if faults.stopped:
            return
        faults.cluster.trace.note("network", f"clogs {host}")
        for other in everybody:
            if other != host:
                faults.fabric.cut(host, other)
                faults.fabric.cut(other, host)
        clogged[host] = None

    def unclog(host: str) -> None:
        if host in clogged:
            del clogged[host]
            faults.cluster.trace.note("network", f"unclogs {host}")
            for other in everybody:
                if other != host:
                    faults.fabric.heal(host, other)
                    faults.fabric.heal(other, host)

    clogged: dict[str, None] = {}
    for host in chosen:
        at += random.uniform(0.05, 1.0)
        world.call_later(at, clog, host)
    for host in back:
        at += random.uniform(0.05, 1.5)
        faults.lasting(at, lambda host=host: unclog(host))  # type: ignore[misc]
    return True


def _stalls(faults: Faults, random: Random) -> bool:
    """Packets are lost and sent again: delays, and order between connections is anybody's guess."""
    faults.fabric.stall_chance = random.choice((0.01, 0.05, 0.2))
    faults.fabric.stall_s = random.choice((0.05, 0.3, 1.0))
    faults.cluster.trace.note("network", "loses packets")

    def undo() -> None:
        faults.fabric.stall_chance = 0.0

    faults.lasting(random.uniform(0.5, 6.0), undo)
    return True


def _resets(faults: Faults, random: Random) -> bool:
    """Connections break, as they please."""
    hosts = [machine.name for machine in faults.cluster.machines.values()] + faults.simulation.client_hosts
    if random.random() < 0.5 and len(hosts) > 1:
        one, other = random.sample(hosts, 2)
        return faults.fabric.reset_connections(one, other) > 0
    faults.fabric.reset_chance = random.choice((0.005, 0.03))

    def undo() -> None:
        faults.fabric.reset_chance = 0.0

    faults.lasting(random.uniform(0.5, 3.0), undo)
    return True


def _reset_after_processing(faults: Faults, random: Random) -> bool:
    """The server does what was asked, and the answer never arrives."""
    machine = faults.any_running(random)
    if machine is None:
        return False
    hosts = faults.simulation.client_hosts + [
        other.name for other in faults.cluster.machines.values() if other is not machine
    ]
    for host in hosts:
        if random.random() < 0.5:
            faults.fabric.link(machine.name, host).reset_next = True
    return True


def _clock_step(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    step_ms = random.choice((-1, 1)) * random.choice((50, 2_000, 60_000, 3_600_000))
    machine.clock.step(step_ms)
    faults.cluster.trace.note(machine.name, f"wall clock is stepped by {step_ms} ms")
    return True


def _clock_drift(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    rate = random.choice((0.8, 0.95, 1.05, 1.25))
    machine.clock.drift(rate)
    faults.cluster.trace.note(machine.name, f"clocks run at {rate}")
    faults.lasting(random.uniform(2.0, 15.0), lambda: machine.clock.drift(1.0))
    return True


def _disk_error(operation: str) -> Callable[[Faults, Random], bool]:
    def strike(faults: Faults, random: Random) -> bool:
        machine = faults.any_running(random)
        if machine is None or not faults.may_lose_data(machine):
            return False
        chance = random.choice((0.05, 0.5, 1.0))
        setattr(machine.volume.faults, operation, chance)
        machine.rearm()
        faults.spoiled[machine.id] = faults.scheduler.now
        faults.cluster.trace.note(machine.name, f"disk: {operation.replace('_', ' ')} ({chance:.0%})")

        def undo() -> None:
            setattr(machine.volume.faults, operation, 0.0)
            machine.rearm()
            # Whoever looks after the machine replaces the disk's cable and starts the node anew.
            machine.crash()
            machine.start()

        faults.lasting(random.uniform(0.5, 4.0), undo)
        return True

    return strike


def _disk_full(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None:
        return False
    machine.volume.faults.full = True
    machine.rearm()
    faults.cluster.trace.note(machine.name, "disk is full")

    def undo() -> None:
        machine.volume.faults.full = False
        machine.rearm()
        machine.crash()
        machine.start()

    faults.lasting(random.uniform(0.5, 4.0), undo)
    return True


def _slow_sync(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    machine.volume.faults.slow_sync_s = random.choice((0.02, 0.2, 1.5))
    faults.cluster.trace.note(machine.name, f"syncs take up to {machine.volume.faults.slow_sync_s} s")

    def undo() -> None:
        machine.volume.faults.slow_sync_s = 0.0

    faults.lasting(random.uniform(1.0, 8.0), undo)
    return True


def _controlled_shutdown(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None:
        return False
    machine.stop()
    faults.restart_later(machine, random.uniform(1.0, 8.0))
    return True


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="process crash", section=1, strike=_process_crash),
        Kind(name="power loss", section=2, strike=_power_loss, spoils_data=True),
        Kind(name="blackout", section=2, strike=_blackout, spoils_data=True),
        Kind(name="torn write", section=3, strike=_torn_write, spoils_data=True),
        Kind(name="read error", section=6, strike=_disk_error("read_errors"), spoils_data=True),
        Kind(name="write error", section=6, strike=_disk_error("write_errors"), spoils_data=True),
        Kind(name="sync error", section=6, strike=_disk_error("sync_errors"), spoils_data=True),
        Kind(name="disk full", section=6, strike=_disk_full),
        Kind(name="slow sync", section=6, strike=_slow_sync),
        Kind(name="isolation", section=7, strike=_isolate, nodes_min=2),
        Kind(name="one-way partition", section=7, strike=_one_way, nodes_min=2),
        Kind(name="bridge partition", section=7, strike=_bridge, nodes_min=3),
        Kind(name="packet loss", section=7, strike=_stalls),
        Kind(name="connection reset", section=7, strike=_resets),
        Kind(name="reset after processing", section=7, strike=_reset_after_processing),
        Kind(name="swizzle", section=8, strike=_swizzle),
        Kind(name="pause", section=9, strike=_pause),
        Kind(name="clock step", section=10, strike=_clock_step),
        Kind(name="clock drift", section=10, strike=_clock_drift),
        Kind(name="controlled shutdown", section=13, strike=_controlled_shutdown),
    )
}
