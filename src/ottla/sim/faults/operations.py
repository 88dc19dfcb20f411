"""What an operator does while everything fails: moves replicas, elects leaders, changes configs and voters.

Every one of these is a request that may be refused, lost or half done; none may cost anything that was promised.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TypeVar

from ottla.errors import ErrorCode, Malformed
from ottla.metadata.images import NO_LEADER, RESOURCE_TOPIC
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition, Uuid
from ottla.sim import view
from ottla.sim.client import Lost
from ottla.sim.cluster import CONTROLLER_PORT, Machine
from ottla.sim.faults.schedule import Faults
from ottla.wire.message import Message
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse

M = TypeVar("M", bound=Message)

PREFERRED = 0
UNCLEAN = 1


async def ask(faults: Faults, request: Message, response: type[M], *, tries: int = 5) -> M | None:
    """Any broker's answer, if one comes."""
    admin = faults.simulation.admin
    for _ in range(tries):
        try:
            return await admin.anywhere(request, response, timeout_s=4.0)
        except (Lost, Malformed):
            await admin.sleep(0.3)
    return None


async def ask_controllers(faults: Faults, request: Message, response: type[M]) -> M | None:
    """The answer of the one that leads, asked on the controllers' own listener."""
    admin = faults.simulation.admin
    for machine in faults.cluster.controllers:
        if view.is_active_controller(machine):
            try:
                return await admin.wire((machine.name, CONTROLLER_PORT)).call(request, response, timeout_s=4.0)
            except (Lost, Malformed):
                continue
    return None


def reassignment(faults: Faults, random: Random) -> bool:
    """Other replicas for a partition, or the same in another order; sometimes thought better of."""
    place = random.choice(faults.simulation.places)
    brokers = [machine.id for machine in faults.cluster.brokers]
    replicas = random.sample(brokers, min(len(brokers), faults.simulation.options.replication_factor))
    faults.spawn(_reassign_and_perhaps_cancel(faults, random, place, replicas))
    return True


async def _reassign_and_perhaps_cancel(
    faults: Faults, random: Random, place: TopicPartition, replicas: list[int]
) -> None:
    faults.cluster.trace.note("operator", f"moves {place} to {replicas}")
    await reassign(faults, place, replicas)
    if random.random() < 0.2:
        await faults.simulation.admin.sleep(random.uniform(0.0, 1.0))
        faults.cluster.trace.note("operator", f"thinks better of moving {place}")
        await reassign(faults, place, None)


async def reassign(faults: Faults, place: TopicPartition, replicas: list[int] | None) -> bool:
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=3000,
        topics=[
            ReassignableTopic(
                name=place.topic,
                partitions=[ReassignablePartition(partition_index=place.partition, replicas=replicas)],
            )
        ],
    )
    response = await ask(faults, request, AlterPartitionReassignmentsResponse)
    return response is not None and not response.error_code


def election(faults: Faults, random: Random) -> bool:
    """The preferred replica is to lead again."""
    place = random.choice(faults.simulation.places)
    faults.cluster.trace.note("operator", f"asks for the preferred leader of {place}")
    faults.spawn(_elect(faults, place))
    return True


async def elect_for_want_of_better(faults: Faults) -> None:
    """Of a partition that nobody may lead, the replica with the longest log, where all of them can be looked at."""
    cluster = faults.cluster
    for place in view.every_place(cluster):
        partition = view.newest_image(cluster).partition(*place)
        if partition is None or partition.leader != NO_LEADER or partition.isr or partition.elr:
            continue
        machines = [cluster.machines[replica] for replica in partition.replicas]
        logs = [view.log(machine, place) for machine in machines if view.is_member(machine)]
        ends = [(log.last_epoch, log.log_end_offset) for log in logs if log is not None]
        if len(ends) < len(machines) or not any(map(partition.is_lost, partition.replicas)):
            continue
        longest = partition.replicas[ends.index(max(ends))]
        first, *rest = sorted(partition.replicas, key=lambda replica: (replica != longest, replica))
        cluster.trace.note("operator", f"has node {first} lead {place}, for want of a better one")
        await reassign(faults, place, [first, *rest])
        await _elect(faults, place, UNCLEAN)


async def _elect(faults: Faults, place: TopicPartition, election_type: int = PREFERRED) -> None:
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[TopicPartitions(topic=place.topic, partitions=[place.partition])],
        timeout_ms=3000,
    )
    await ask(faults, request, ElectLeadersResponse)


def rapid_elections(faults: Faults, random: Random) -> bool:
    """Leader after leader within moments, by changing who is preferred (KIP-279)."""
    if faults.operator_busy:
        return False
    place = random.choice(faults.simulation.places)
    faults.spawn(_elect_many(faults, random, place))
    return True


async def _elect_many(faults: Faults, random: Random, place: TopicPartition) -> None:
    for _ in range(random.randrange(2, 5)):
        partition = view.newest_image(faults.cluster).partition(*place)
        if partition is None or faults.stopped:
            return
        replicas = list(partition.replicas)
        random.shuffle(replicas)
        faults.cluster.trace.note("operator", f"prefers {replicas[0]} for {place}")
        await reassign(faults, place, replicas)
        await _elect(faults, place)


def coordinator_move(faults: Faults, random: Random) -> bool:
    """Another leader for a partition that coordinators live on; often one that is not up to it yet."""
    places = [place for place in view.every_place(faults.cluster) if place.topic in (GROUP_TOPIC, TRANSACTION_TOPIC)]
    if not places or faults.operator_busy:
        return False
    faults.spawn(_elect_many(faults, random, random.choice(places)))
    return True


def min_isr_change(faults: Faults, random: Random) -> bool:
    """`min.insync.replicas` is raised or lowered, and later put back."""
    options = faults.simulation.options
    value = random.randrange(1, options.replication_factor + 1)
    if value < options.min_isr:
        # With a lower minimum one more loss costs what was acknowledged: then nobody may have lost anything.
        if not faults.may_lower_min_isr():
            return False
        faults.min_isr_lowered = True
    faults.spawn(_change_min_isr(faults, value, random.uniform(1.0, 10.0)))
    return True


async def _change_min_isr(faults: Faults, value: int, lasting_s: float) -> None:
    admin = faults.simulation.admin
    usual = faults.simulation.options.min_isr
    sure = await set_min_isr(faults, value)
    until = admin.now + lasting_s
    while admin.now < until and not faults.stopped:
        await admin.sleep(0.25)
    if await set_min_isr(faults, usual) and sure and value < usual:
        # Nothing that was given up can come late and lower it again.
        faults.min_isr_lowered = False


async def set_min_isr(faults: Faults, value: int) -> bool:
    """One after the other, in the order in which they were asked for. Was the first request answered?"""
    async with faults.configuring:
        topic = faults.simulation.places[0].topic
        faults.cluster.trace.note("operator", f"sets min.insync.replicas of {topic} to {value}")
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=RESOURCE_TOPIC,
                    resource_name=topic,
                    configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))],
                )
            ]
        )
        for attempt in range(20):
            response = await ask(faults, request, IncrementalAlterConfigsResponse, tries=1)
            if response is not None and not any(each.error_code for each in response.responses):
                return attempt == 0
            await faults.simulation.admin.sleep(0.3)
        return False


def remove_and_add_again(faults: Faults, random: Random) -> bool:
    """A replica is removed and added again while its broker sees nothing of it but the end (batched metadata)."""
    machine = faults.any_running(random)
    brokers = faults.cluster.brokers
    if machine is None or machine not in brokers or faults.operator_busy or view.is_active_controller(machine):
        return False
    place = random.choice(faults.simulation.places)
    partition = view.newest_image(faults.cluster).partition(*place)
    spare = [other.id for other in brokers if partition is not None and other.id not in partition.replicas]
    if partition is None or machine.id not in partition.replicas or not spare:
        return False
    faults.operator_busy = True
    machine.pause()
    faults.lasting(15.0, machine.resume)
    faults.spawn(_move_away_and_back(faults, machine, place, list(partition.replicas), random.choice(spare)))
    return True


async def _move_away_and_back(
    faults: Faults, machine: Machine, place: TopicPartition, replicas: list[int], spare: int
) -> None:
    admin = faults.simulation.admin
    try:
        others = [spare if replica == machine.id else replica for replica in replicas]
        faults.cluster.trace.note("operator", f"moves {place} to {others} and back, while {machine.name} sleeps")
        await reassign(faults, place, others)
        for _ in range(20):
            partition = view.newest_image(faults.cluster).partition(*place)
            if partition is not None and machine.id not in partition.replicas:
                break
            await admin.sleep(0.3)
        await reassign(faults, place, replicas)
    finally:
        machine.resume()
        faults.operator_busy = False


def voter_change(faults: Faults, random: Random) -> bool:
    """A controller leaves the quorum and joins it again (KIP-853); now and then a second operator, who knows nothing of
    the first, does the same with another at the same moment."""
    if faults.operator_busy or not view.quorum_is_whole(faults.cluster):
        return False
    controllers = faults.cluster.controllers
    leaving = [random.choice(controllers)]
    if len(controllers) > 3 and random.random() < 0.5:
        leaving.append(random.choice([machine for machine in controllers if machine not in leaving]))
    found = [(machine, view.metadata_directory_id(machine)) for machine in leaving if machine.serving]
    known = [(machine, directory_id) for machine, directory_id in found if directory_id is not None]
    if not known:
        return False
    faults.operator_busy = True
    faults.spawn(_leave_and_join(faults, known))
    return True


async def _leave_and_join(faults: Faults, leaving: list[tuple[Machine, Uuid]]) -> None:
    async def leave_and_join(machine: Machine, directory_id: Uuid) -> None:
        faults.cluster.trace.note("operator", f"removes {machine.name} from the quorum")
        if await _remove_voter(faults, machine, directory_id):
            await _add_voter(faults, machine)

    try:
        await asyncio.gather(*(leave_and_join(machine, directory_id) for machine, directory_id in leaving))
    finally:
        faults.operator_busy = False


async def replace_voter(faults: Faults, machine: Machine, old: Uuid | None) -> None:
    """After a disk was lost: the voter that was on it leaves, and the one on the new disk joins."""
    try:
        if machine.plan.controller and old is not None and await _remove_voter(faults, machine, old):
            await _add_voter(faults, machine)
    finally:
        faults.operator_busy = False


async def _remove_voter(faults: Faults, machine: Machine, directory_id: Uuid) -> bool:
    request = RemoveRaftVoterRequest(
        cluster_id=faults.cluster.cluster_id, voter_id=machine.id, voter_directory_id=directory_id
    )
    for _ in range(100):
        response = await ask_controllers(faults, request, RemoveRaftVoterResponse)
        if response is not None and response.error_code in (0, ErrorCode.VOTER_NOT_FOUND):
            return True
        await faults.simulation.admin.sleep(0.5)
    return False


async def _add_voter(faults: Faults, machine: Machine) -> bool:
    """Again and again until it is in: a quorum that is short of one should not stay so."""
    for _ in range(200):
        directory_id = view.metadata_directory_id(machine)
        if directory_id is not None and machine.running:
            request = AddRaftVoterRequest(
                cluster_id=faults.cluster.cluster_id,
                timeout_ms=3000,
                voter_id=machine.id,
                voter_directory_id=directory_id,
                listeners=[Listener(name="CONTROLLER", host=machine.name, port=CONTROLLER_PORT)],
            )
            response = await ask_controllers(faults, request, AddRaftVoterResponse)
            if response is not None and response.error_code in (0, ErrorCode.DUPLICATE_VOTER):
                faults.cluster.trace.note("operator", f"{machine.name} is in the quorum again")
                return True
        await faults.simulation.admin.sleep(0.5)
    return False
