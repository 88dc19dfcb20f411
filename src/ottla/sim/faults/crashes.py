"""Processes and machines that die, stop for a while, or are asked to go."""

from __future__ import annotations

from random import Random

from ottla.sim import view
from ottla.sim.cluster import Machine
from ottla.sim.faults import links
from ottla.sim.faults.schedule import Faults, downtime


def process_crash(faults: Faults, random: Random) -> bool | None:
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

    def strike_in_the_middle() -> bool:
        struck = strike()
        if struck:
            faults.count("process crash")
        return struck

    if random.random() < 0.3:
        process.disk.crash_in(random.randrange(1, 30), strike_in_the_middle)
        return None
    return strike()


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


def torn_write(faults: Faults, random: Random) -> bool | None:
    """The power goes in the middle of some change to the disk. Where all of it or nothing survives, nothing was torn,
    and it was a power loss like any other."""
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    process = machine.process
    assert process is not None

    def strike() -> bool:
        if machine.process is not process or not faults.may_lose_data(machine):
            return False
        torn = machine.volume.torn
        machine.crash(power=True)
        faults.count("torn write" if machine.volume.torn > torn else "power loss")
        faults.spoil(machine)
        faults.restart_later(machine, downtime(random))
        return True

    process.disk.crash_in(random.randrange(1, 12), strike)
    return None


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


def silent_return(faults: Faults, random: Random) -> bool | None:
    """A follower is lost to the controllers and not to its leader; it loses power, and is back with the controllers and
    not with its leader. Whom the leader knows to have caught up is not who is registered (KIP-903)."""
    found = [
        (machine, leader)
        for partition in view.newest_partitions(faults.cluster)
        for machine in faults.cluster.brokers
        if machine.id in partition.replicas and machine.id != partition.leader and machine.serving
        for leader in faults.cluster.brokers
        if leader.id == partition.leader and leader.serving
    ]
    fit = [
        (machine, leader)
        for machine, leader in found
        if not machine.paused and not view.is_active_controller(machine) and not view.is_active_controller(leader)
    ]
    if not fit or faults.operator_busy or faults.leaving_in_silence:
        return False
    faults.leaving_in_silence = True
    faults.spawn(_leave_and_return(faults, random, *random.choice(fit)))
    return None


async def _leave_and_return(faults: Faults, random: Random, machine: Machine, leader: Machine) -> None:
    sleep = faults.simulation.admin.sleep
    others = [each.name for each in faults.cluster.controllers if each not in (machine, leader)]
    reconnect = links.cut_for(faults, [(machine.name, name) for name in others], 12.0)
    for _ in range(40):
        known = view.newest_image(faults.cluster).broker(machine.id)
        if known is not None and known.fenced:
            break
        await sleep(0.25)
    else:
        known = None
    # Its old self is forgotten, and its leader still hears it: now is the moment.
    if known is not None and not faults.stopped and machine.running and faults.may_lose_data(machine):
        heal = links.cut_for(faults, [(machine.name, leader.name)], random.uniform(1.0, 4.0))
        machine.crash(power=True)
        faults.spoil(machine)
        faults.count("silent return")
        faults.restart_later(machine, random.uniform(0.05, 0.4))
        reconnect()
        await sleep(4.0)
        heal()
    reconnect()
    faults.leaving_in_silence = False
