"""Disks that fail, fill up, dawdle, forget or lie."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.errors import Malformed
from ottla.model import METADATA_TOPIC
from ottla.records import HEADER_SIZE, read_header
from ottla.sim import view
from ottla.sim.cluster import Machine
from ottla.sim.disk import SimDisk
from ottla.sim.faults import operations
from ottla.sim.faults.schedule import Faults, downtime
from ottla.sim.view import DATA
from ottla.sim.volume import FileNode


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


def slow_sync(faults: Faults, random: Random) -> bool:
    machine = random.choice(list(faults.cluster.machines.values()))
    machine.volume.faults.slow_sync_s = random.choice((0.02, 0.2, 1.5))
    faults.cluster.trace.note(machine.name, f"syncs take up to {machine.volume.faults.slow_sync_s} s")

    def undo() -> None:
        machine.volume.faults.slow_sync_s = 0.0

    faults.lasting(random.uniform(1.0, 8.0), undo)
    return True


def bit_flip(faults: Faults, random: Random) -> bool:
    """One bit of a log turns over while the machine is off."""
    return _tamper(faults, random, "a bit of %s turns over", _flip)


def truncation_at_rest(faults: Faults, random: Random) -> bool:
    """A log's file is shorter than it was when the machine comes back."""
    return _tamper(faults, random, "the end of %s is gone", _shorten)


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


def _tamper(faults: Faults, random: Random, what: str, change: Callable[[FileNode, Random], bool]) -> bool:
    """False, too, where the power went and nothing was found that could be damaged."""
    machine = faults.any_running(random)
    # Whatever happens to this copy, every other one must be whole: no promise survives more.
    if machine is None or faults.tampered or not faults.may_lose_data(machine, even_synced=True):
        return False
    faults.spoil(machine, even_synced=True)
    machine.crash(power=True)
    logs = [
        (path, node)
        for path, node in machine.volume.files()
        if path.endswith(".log") and METADATA_TOPIC not in path and len(node.content) > 100
    ]
    path, node = random.choice(logs) if logs else ("", None)
    damaged = node is not None and change(node, random)
    faults.restart_later(machine, downtime(random))
    if not damaged:
        return False
    faults.cluster.trace.note(machine.name, what % path)
    faults.tampered[machine.id] = None
    faults.simulation.forgive(machine, damaged=True)
    # Sooner or later somebody notices, and has the replicas of this machine copied anew.
    faults.spawn(_repair(faults, machine, random.uniform(5.0, 20.0)))
    return True


def _flip(node: FileNode, random: Random) -> bool:
    """In the records of some batch: what stands in its header is believed by those who look on."""
    bodies: list[range] = []
    position = 0
    while position + HEADER_SIZE < len(node.content):
        try:
            size = read_header(node.content, position).size
        except Malformed:
            break
        bodies.append(range(position + HEADER_SIZE, min(position + size, len(node.content))))
        position += size
    if not bodies:
        return False
    at = random.choice(random.choice(bodies))
    bit = 1 << random.randrange(8)
    node.content[at] ^= bit
    if at < len(node.platter):
        node.platter[at] ^= bit
    return True


def _shorten(node: FileNode, random: Random) -> bool:
    size = random.randrange(len(node.content))
    del node.content[size:]
    del node.platter[size:]
    node.pending = []
    return True


async def _repair(faults: Faults, machine: Machine, seconds: float) -> None:
    """Throw this machine's replicas away; it copies them from the others, who must have all of them."""
    sleep = faults.simulation.admin.sleep
    await sleep(seconds)
    while not faults.may_lose_data(machine, even_synced=True):
        await sleep(0.5)
    if machine.id not in faults.tampered:
        return
    faults.spoil(machine, even_synced=True)
    machine.crash(power=True)
    disk = SimDisk(machine.volume)
    for name in disk.list(DATA):
        if disk.is_dir(f"{DATA}/{name}") and not name.startswith(METADATA_TOPIC):
            disk.remove_tree(f"{DATA}/{name}")
    machine.volume.settle()
    faults.cluster.trace.note(machine.name, "throws its damaged replicas away")
    del faults.tampered[machine.id]
    faults.simulation.forgive(machine)
    machine.start()
