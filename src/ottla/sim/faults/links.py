"""Everything between machines: cuts of every shape, lost packets, broken connections."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.sim.faults.schedule import Faults


def isolate(faults: Faults, random: Random) -> bool:
    """One node, or several, against the rest, both ways."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    random.shuffle(hosts)
    size = random.randrange(1, max(2, len(hosts)))
    inside, outside = hosts[:size], hosts[size:]
    if random.random() < 0.5:
        outside += [client for client in faults.simulation.client_hosts if random.random() < 0.5]
    return cut(faults, random, [(a, b) for a in inside for b in outside] + [(b, a) for a in inside for b in outside])


def one_way(faults: Faults, random: Random) -> bool:
    """A node that is heard and hears nothing, or hears and is not heard."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    one = random.choice(hosts)
    others = [name for name in hosts if name != one]
    heard = random.random() < 0.5
    return cut(faults, random, [(other, one) if heard else (one, other) for other in others])


def bridge(faults: Faults, random: Random) -> bool:
    """Two groups that cannot reach each other, and one node that reaches both."""
    hosts = [machine.name for machine in faults.cluster.machines.values()]
    random.shuffle(hosts)
    rest = hosts[1:]
    half = len(rest) // 2
    pairs = [(a, b) for a in rest[:half] for b in rest[half:]]
    return cut(faults, random, pairs + [(b, a) for a, b in pairs])


def cut(faults: Faults, random: Random, pairs: list[tuple[str, str]]) -> bool:
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


def cut_for(faults: Faults, pairs: list[tuple[str, str]], seconds: float) -> Callable[[], None]:
    """Both ways, for so long at most; what is returned mends it earlier."""
    fabric = faults.fabric
    both = [*pairs, *((b, a) for a, b in pairs)]
    for source, target in both:
        fabric.cut(source, target)
    faults.cluster.trace.note("network", f"cut: {', '.join(f'{a}↔{b}' for a, b in pairs)}")

    def mend() -> None:
        if both:
            faults.cluster.trace.note("network", f"healed: {', '.join(f'{a}↔{b}' for a, b in pairs)}")
        while both:
            fabric.heal(*both.pop())

    faults.lasting(seconds, mend)
    return mend


def swizzle(faults: Faults, random: Random) -> bool:
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


def stalls(faults: Faults, random: Random) -> bool:
    """Packets are lost and sent again: delays, and order between connections is anybody's guess."""
    faults.fabric.stall_chance = random.choice((0.01, 0.05, 0.2))
    faults.fabric.stall_s = random.choice((0.05, 0.3, 1.0))
    faults.cluster.trace.note("network", "loses packets")

    def undo() -> None:
        faults.fabric.stall_chance = 0.0

    faults.lasting(random.uniform(0.5, 6.0), undo)
    return True


def resets(faults: Faults, random: Random) -> bool:
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


def reset_after_processing(faults: Faults, random: Random) -> bool:
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
