"""Disks that fail, fill up, dawdle or are gone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.sim import view
from ottla.sim.faults import operations
from ottla.sim.faults.schedule import Faults, downtime
from ottla.sim.view import SPARE


def disk_error(operation: str) -> Callable[[Faults, Random], bool]:
    def strike(faults: Faults, random: Random) -> bool:
        machine = faults.any_running(random)
        if machine is None or not faults.may_lose_data(machine):
            return False
        chance, lasting_s = random.choice((0.05, 0.5, 1.0)), random.uniform(0.5, 4.0)
        setattr(machine.volume.faults, operation, chance)
        machine.rearm()
        faults.spoil(machine, lasting_s=lasting_s)
        faults.cluster.trace.note(machine.name, f"disk: {operation.replace('_', ' ')} ({chance:.0%})")

        def undo() -> None:
            setattr(machine.volume.faults, operation, 0.0)
            machine.rearm()
            # Whoever looks after the machine replaces the disk's cable and starts the node anew.
            machine.crash()
            machine.start()

        faults.lasting(lasting_s, undo)
        return True

    return strike


def disk_full(faults: Faults, random: Random) -> bool:
    machine = faults.any_running(random)
    if machine is None or not faults.may_lose_data(machine):
        return False
    lasting_s = random.uniform(0.5, 4.0)
    faults.spoil(machine, lasting_s=lasting_s)
    machine.volume.faults.full = True
    machine.rearm()
    faults.cluster.trace.note(machine.name, "disk is full")

    def undo() -> None:
        machine.volume.faults.full = False
        machine.rearm()
        machine.crash()
        machine.start()

    faults.lasting(lasting_s, undo)
    return True


def directory_failure(faults: Faults, random: Random) -> bool:
    """One disk of two: what is on it goes offline, and the node goes on with the other (KIP-112)."""
    machine = faults.any_running(random)
    if machine is None or not machine.plan.broker or machine.volume.find(SPARE) is None:
        return False
    if not faults.may_lose_data(machine):
        return False
    lasting_s = random.uniform(1.0, 8.0)
    faults.spoil(machine, lasting_s=lasting_s)
    machine.volume.faults.failed = SPARE
    machine.rearm()
    faults.cluster.trace.note(machine.name, f"the disk of {SPARE} fails")

    def undo() -> None:
        machine.volume.faults.failed = ""
        machine.rearm()
        machine.crash()
        machine.start()

    faults.lasting(lasting_s, undo)
    return True


def slow_sync(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    machine.volume.faults.slow_sync_s = random.choice((0.02, 0.2, 1.5))
    faults.cluster.trace.note(machine.name, f"syncs take up to {machine.volume.faults.slow_sync_s} s")

    def undo() -> None:
        machine.volume.faults.slow_sync_s = 0.0

    faults.lasting(random.uniform(1.0, 8.0), undo)
    return True


def disk_loss(faults: Faults, random: Random) -> bool:
    """All of it, at once. Whoever runs the cluster gives the machine a new disk, and the quorum a new voter."""
    machine = faults.any_running(random)
    simulation = faults.simulation
    if (
        machine is None
        or faults.operator_busy
        or not faults.may_lose_data(machine, even_synced=True)
        or not view.quorum_is_whole(faults.cluster)
    ):
        return False
    directory_id = view.metadata_directory_id(machine)
    faults.spoil(machine, even_synced=True)
    machine.lose_disk()
    simulation.on_disk_lost(machine)
    faults.operator_busy = True
    faults.restart_later(machine, downtime(random))
    faults.spawn(operations.replace_voter(faults, machine, directory_id))
    return True
