"""Processes and machines that die, stop for a while, or are asked to go."""

from __future__ import annotations

from random import Random

from ottla.sim import view
from ottla.sim.faults.schedule import Faults, downtime


def process_crash(faults: Faults, random: Random) -> bool:
    machine = faults.any_up(random) if random.random() < 0.3 else faults.any_running(random)
    if machine is None or not faults.may_crash(machine):
        return False
    process = machine.process
    assert process is not None

    def strike() -> bool:
        if machine.process is not process or not faults.may_crash(machine):
            return False
        machine.crash()
        faults.restart_later(machine, downtime(random))
        return True

    if random.random() < 0.3:
        process.disk.crash_in(random.randrange(1, 30), strike)
    else:
        strike()
    return True


def power_loss(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    machine.crash(power=True)
    faults.spoil(machine)
    faults.restart_later(machine, downtime(random))
    return True


def blackout(faults: Faults, random: Random) -> bool:
    """The power of all machines at once."""
    if not faults.simulation.options.flush_each or not all(map(faults.may_crash, faults.cluster.machines.values())):
        return False
    for machine in faults.cluster.machines.values():
        machine.crash(power=True)
        faults.restart_later(machine, downtime(random))
    return True


def torn_write(faults: Faults, random: Random) -> bool:
    """The power goes in the middle of some change to the disk."""
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    process = machine.process
    assert process is not None

    def strike() -> bool:
        if machine.process is not process or not faults.may_lose_data(machine):
            return False
        machine.crash(power=True)
        faults.spoil(machine)
        faults.restart_later(machine, downtime(random))
        return True

    process.disk.crash_in(random.randrange(1, 12), strike)
    return True


def pause(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None:
        return False
    machine.pause()
    faults.lasting(random.choice((random.uniform(0.2, 2.0), random.uniform(2.0, 12.0))), machine.resume)
    return True


def controlled_shutdown(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None:
        return False
    machine.stop()
    faults.restart_later(machine, random.uniform(1.0, 8.0))
    return True


def rapid_crashes(faults: Faults, random: Random) -> bool:
    """Leader after leader, each gone before it has written anything (KIP-279)."""
    machine = faults.any_running(random)
    if machine is None:
        return False
    at = 0.0
    for _ in range(random.randrange(2, 5)):
        at += random.uniform(0.0, 1.5)
        faults.scheduler.world.call_later(at, _crash_a_leader, faults, random)
    return True


def _crash_a_leader(faults: Faults, random: Random) -> None:
    if faults.stopped:
        return
    leaders = [
        machine
        for machine in faults.cluster.brokers
        if machine.running and view.leads_any(machine) and faults.may_crash(machine)
    ]
    if leaders:
        machine = random.choice(leaders)
        machine.crash()
        faults.restart_later(machine, random.uniform(0.05, 0.5))
