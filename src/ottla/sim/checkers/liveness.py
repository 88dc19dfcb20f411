"""Section 4: what a healed core must come to do, though everything outside it stays broken.

A core is a majority of the voters with enough replicas of every partition to commit. `unmet` says what is missing; the
simulation asks again and again, and loses patience at some point. That every request is answered (L4) shows in the
clients.
"""

from __future__ import annotations

from random import Random

from ottla.model import TopicPartition
from ottla.sim import view
from ottla.sim.cluster import Cluster, Machine
from ottla.sim.consumers import Consumer
from ottla.sim.history import History, Outcome

LAG_MAX_S = 10.0
"""How far a consumer may trail the newest acknowledged write, where everybody can be reached: as long as an open
transaction may hold its readers back until it is aborted, and a little longer."""


def choose_core(cluster: Cluster, places: list[TopicPartition], min_isr: int, random: Random) -> list[Machine] | None:
    """Some machines that are enough; none if even all of them are not, as nobody knows of a leader to be, or of any
    partition at all: those that run have only just begun.

    Each partition needs one that may be elected, and stays so: a process that has taken the place of one that died is
    in no set any more, and one whose leader has asked to leave it out soon will be, though the metadata may not say so
    yet.
    """
    if not places:
        return None
    image = view.newest_image(cluster)
    voters = view.voters(cluster)
    machines = list(cluster.machines.values())
    random.shuffle(machines)
    core: list[Machine] = []
    for machine in machines:
        core.append(machine)
        ids = {each.id for each in core}
        if sum(intact and voter in ids for voter, intact in voters.items()) <= len(voters) // 2:
            continue
        for place in places:
            partition = image.partition(*place)
            if partition is None:
                break
            staying = {*(partition.isr or partition.elr)} - _leaving(cluster, place, partition.leader)
            candidates = [each for each in core if each.id in staying]
            if not any(map(view.is_registered, candidates)) or len(set(partition.replicas) & ids) < min(
                min_isr, len(partition.replicas)
            ):
                break
        else:
            return core
    return None


def _leaving(cluster: Cluster, place: TopicPartition, leader: int) -> set[int]:
    """Whom the leader has asked the controller to leave out of the in-sync set."""
    hosted = view.hosted(cluster.machines[leader], place) if leader in cluster.machines else None
    pending = None if hosted is None or hosted.leader is None else hosted.leader.pending
    return set() if pending is None else {*pending.leaving}


def unmet(cluster: Cluster, core: list[Machine], places: list[TopicPartition]) -> list[str]:
    """What is not as it must become, each with the name of its property."""
    missing: list[str] = []
    ids = {machine.id for machine in core}
    image = view.newest_image(cluster)
    for machine in core:
        if not machine.serving:
            missing.append(f"L1: {machine.name} does not serve")
            continue
        if machine.plan.broker and not view.is_member(machine):
            missing.append(f"L1: {machine.name} is fenced")
        behind = image.last_offset - view.image(machine).last_offset
        if behind > 10:
            missing.append(f"L3: {machine.name} is {behind} records behind in the metadata")
    leaders = [machine for machine in core if view.is_active_controller(machine)]
    if len(leaders) != 1:
        missing.append(f"L7: active controllers in the core: {[machine.name for machine in leaders]}")
    elif view.uncommitted_voters(leaders[0]):
        missing.append("L8: a change of the voters is neither committed nor gone")
    for place in places:
        partition = image.partition(*place)
        if partition is None:
            missing.append(f"L3: {place} is not known")
            continue
        if partition.leader not in ids:
            missing.append(f"L4: {place} is led by {partition.leader}")
            continue
        if set(partition.adding_replicas) and set(partition.adding_replicas) <= ids:
            missing.append(f"L6: {place} is still being moved to {partition.adding_replicas}")
        leader = view.hosted(cluster.machines[partition.leader], place)
        if leader is None or leader.leader is None:
            missing.append(f"L4: node {partition.leader} does not know that it leads {place}")
            continue
        if leader.leader.pending is not None:
            missing.append(f"L2: {place}: a change of the in-sync set is neither made nor refused")
        for replica in partition.replicas:
            if replica not in ids:
                continue
            if replica not in partition.isr:
                missing.append(f"L11: {place}: node {replica} is not in sync ({list(partition.isr)})")
            hosted = view.hosted(cluster.machines[replica], place)
            if hosted is None or hosted.log.log_end_offset < leader.log.high_watermark:
                missing.append(f"L5: {place}: node {replica} does not have all that is committed")
    return missing


def lagging(consumers: list[Consumer], history: History, now: float) -> list[str]:
    """H11: what was acknowledged some time ago has been read by every consumer of its partition."""
    acknowledged: dict[TopicPartition, int] = {}
    for send in history.sends:
        if send.outcome is Outcome.OK and send.acks == -1 and send.completed < now - LAG_MAX_S:
            end = send.offset + len(send.values)
            acknowledged[send.place] = max(acknowledged.get(send.place, 0), end)
    return [
        f"H11: {consumer.name} has read {place} up to {consumer.positions[place]}, and {end} was acknowledged "
        f"{LAG_MAX_S:.0f} s ago"
        for consumer in consumers
        for place, end in acknowledged.items()
        if consumer.positions[place] < end
    ]
