"""Disks that lie: what was written, and synced, is not what is there when the machine comes back.

A machine is struck while it is off, after a power loss or after it was switched off in order. One at a time, and only
while every other copy is whole: no promise survives more.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.errors import Malformed
from ottla.log import files
from ottla.model import METADATA_TOPIC
from ottla.raft.checkpoint import parse_file_name
from ottla.records import HEADER_SIZE, BatchHeader, read_header
from ottla.sim import view
from ottla.sim.checkers.storage import Damage
from ottla.sim.cluster import Machine
from ottla.sim.disk import SimDisk
from ottla.sim.faults import operations
from ottla.sim.faults.schedule import Faults, downtime
from ottla.sim.view import DATA, LOG_DIRS
from ottla.sim.volume import DirNode, FileNode

STOP_S = 10.0
"""How long a node may take to stop before one loses patience."""

Change = Callable[[FileNode, Random], int | None]
"""Spoils a log's file; the first offset that is not what it was, or none if nothing could be done."""


def bit_flip(faults: Faults, random: Random) -> bool | None:
    """One bit of a log turns over while the machine is off."""
    return _tamper(faults, random, "bit flip", "a bit of %s turns over", flip)


def truncation_at_rest(faults: Faults, random: Random) -> bool | None:
    """A log's file is shorter than it was when the machine comes back."""
    return _tamper(faults, random, "truncation at rest", "the end of %s is gone", _shorten)


def metadata_damage(faults: Faults, random: Random) -> bool | None:
    """One bit of the metadata log turns over while the node is off, or its end is gone. It must not start with that: it
    has told others that it keeps what is there; whoever runs the cluster gives it an empty disk, and the quorum a new
    voter."""
    machine = _machine_to_spoil(faults, random)
    if machine is None or faults.operator_busy or not view.quorum_is_whole(faults.cluster):
        return False
    faults.operator_busy = True
    faults.spawn(_spoil_metadata(faults, random, machine))
    return None


# Partitions.


def _machine_to_spoil(faults: Faults, random: Random) -> Machine | None:
    machine = faults.any_running(random)
    if machine is None or faults.tampered or not faults.may_lose_data(machine, even_synced=True):
        return None
    return machine


def _tamper(faults: Faults, random: Random, name: str, what: str, change: Change) -> bool | None:
    """False, too, where the power went and nothing was found that could be damaged."""
    machine = _machine_to_spoil(faults, random)
    if machine is None:
        return False
    if random.random() < 0.4:
        faults.spawn(_tamper_when_off(faults, random, machine, name, what, change))
        return None
    faults.spoil(machine, even_synced=True)
    machine.crash(power=True)
    faults.restart_later(machine, downtime(random))
    return _spoil(faults, random, machine, what, change)


async def _tamper_when_off(
    faults: Faults, random: Random, machine: Machine, name: str, what: str, change: Change
) -> None:
    start = faults.keep_down(machine)
    faults.lasting(STOP_S + downtime(random), start)
    if await _switch_off(faults, machine):
        faults.spoil(machine, even_synced=True)
        if _spoil(faults, random, machine, what, change):
            faults.count(name)
        await faults.simulation.admin.sleep(downtime(random))
    start()


async def _switch_off(faults: Faults, machine: Machine) -> bool:
    """Has it stopped in order, and may it lose everything still?"""
    machine.stop()
    until = faults.scheduler.now + STOP_S
    while machine.process is not None and faults.scheduler.now < until:
        await faults.simulation.admin.sleep(0.1)
    return (
        machine.process is None
        and machine.last_end_clean
        and not faults.stopped
        and not faults.tampered
        and faults.may_lose_data(machine, even_synced=True)
    )


def _spoil(faults: Faults, random: Random, machine: Machine, what: str, change: Change) -> bool:
    logs = [
        (path, node)
        for path, node in machine.volume.files()
        if path.endswith(files.LOG)
        and files.parse_directory(path.rsplit("/", 2)[1]) is not None
        and METADATA_TOPIC not in path
        and len(node.content) > 100
    ]
    path, node = random.choice(logs) if logs else ("", None)
    offset = None if node is None else change(node, random)
    if offset is None:
        return False
    faults.cluster.trace.note(machine.name, what % path)
    faults.tampered[machine.id] = None
    faults.simulation.forgive(machine, damaged=True, damage=Damage(path.rpartition("/")[0], offset))
    # Sooner or later somebody notices, and has the replicas of this machine copied anew.
    faults.spawn(_repair(faults, machine, random.uniform(5.0, 20.0)))
    return True


def _headers(node: FileNode) -> list[tuple[int, BatchHeader]]:
    """Every batch that can be told, with its position."""
    found: list[tuple[int, BatchHeader]] = []
    position = 0
    while position + HEADER_SIZE < len(node.content):
        try:
            header = read_header(node.content, position)
        except Malformed:
            break
        found.append((position, header))
        position += header.size
    return found


def flip(node: FileNode, random: Random, first_offset: int = 0) -> int | None:
    """In the records of some batch: what stands in its header is believed by those who look on."""
    headers = [(at, header) for at, header in _headers(node) if header.base_offset >= first_offset]
    if not headers:
        return None
    position, header = random.choice(headers)
    at = random.choice(range(position + HEADER_SIZE, min(position + header.size, len(node.content))))
    bit = 1 << random.randrange(8)
    node.content[at] ^= bit
    if at < len(node.platter):
        node.platter[at] ^= bit
    return header.base_offset


def _shorten(node: FileNode, random: Random, first_offset: int = 0) -> int | None:
    """Anywhere, and often just between two batches, where nothing torn is left to tell of it."""
    headers = [(at, header) for at, header in _headers(node) if header.base_offset >= first_offset]
    if not headers:
        return None
    first, _ = headers[0]
    size = random.choice((random.randrange(first, len(node.content)), random.choice([at for at, _ in headers])))
    del node.content[size:]
    del node.platter[size:]
    node.pending = []
    return next((header.base_offset for at, header in headers if at + header.size > size), None)


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
    for path in LOG_DIRS:
        for name in disk.list(path) if disk.is_dir(path) else ():
            if disk.is_dir(f"{path}/{name}") and not name.startswith(METADATA_TOPIC):
                disk.remove_tree(f"{path}/{name}")
    machine.volume.settle()
    faults.cluster.trace.note(machine.name, "throws its damaged replicas away")
    del faults.tampered[machine.id]
    faults.simulation.forgive(machine)
    machine.start()


# The metadata.


async def _spoil_metadata(faults: Faults, random: Random, machine: Machine) -> None:
    simulation, sleep = faults.simulation, faults.simulation.admin.sleep
    start = faults.keep_down(machine)
    off = await _switch_off(faults, machine)
    what = _change_metadata(machine, random) if off and _has_marker(machine) else ""
    if not what:
        faults.operator_busy = False
        start()
        return
    faults.count("metadata damage")
    faults.cluster.trace.note(machine.name, what)
    faults.tampered[machine.id] = None
    simulation.on_metadata_damaged(machine)
    start()
    await sleep(random.uniform(3.0, 10.0))
    while not faults.may_lose_data(machine, even_synced=True):
        await sleep(0.5)
    directory_id = view.metadata_directory_id(machine)
    machine.lose_disk()
    faults.spoil(machine, even_synced=True)
    del faults.tampered[machine.id]
    simulation.on_disk_lost(machine)
    machine.start()
    await operations.replace_voter(faults, machine, directory_id)


def _has_marker(machine: Machine) -> bool:
    """Does its disk say that it stopped in order? One that was full has no room for that, and the next start reads the
    metadata log as after a crash: it is cut where it is damaged, and nothing else is promised."""
    return machine.volume.find(f"{DATA}/{files.CLEAN_SHUTDOWN}") is not None


def _change_metadata(machine: Machine, random: Random) -> str:
    """In what a start reads: the log behind the newest snapshot. What was done, if anything could be."""
    path = f"{DATA}/{METADATA_TOPIC}-0"
    directory = machine.volume.find(path)
    assert isinstance(directory, DirNode)
    snapshots = [snapshot for name in directory.entries if (snapshot := parse_file_name(name)) is not None]
    first = max((snapshot.end_offset for snapshot in snapshots), default=0)
    logs = [node for name, node in sorted(directory.entries.items()) if name.endswith(files.LOG)]
    change, what = random.choice(
        ((flip, "a bit of the metadata log turns over"), (_shorten, "the end of the metadata log is gone"))
    )
    random.shuffle(logs)
    return what if any(isinstance(node, FileNode) and change(node, random, first) is not None for node in logs) else ""
