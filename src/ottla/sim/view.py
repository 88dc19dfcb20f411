"""How the simulation looks into a running node: the one place that knows where its state lies.

Looks and never touches. Everything here must be cheap: checkers ask after every step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ottla.broker.coordinators.served import ServedShard
from ottla.broker.hosted import HostedPartition
from ottla.broker.services import Services
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.log import files
from ottla.log.log import Log
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage, PartitionImage
from ottla.model import ZERO_UUID, TopicPartition, Uuid, uuid_from_text
from ottla.sim.volume import FileNode

DATA = "/data"
"""Where every machine keeps its logs."""
SPARE = "/spare"
"""A second directory for topics, where there is one."""
LOG_DIRS = (DATA, SPARE)

if TYPE_CHECKING:
    from ottla.sim.cluster import Cluster, Machine


def services(machine: Machine) -> Services | None:
    """The node's services, once it has any."""
    node = machine.node
    return node._services if node is not None else None


def image(machine: Machine) -> MetadataImage:
    """The newest committed metadata that the node has taken in."""
    node = machine.node
    control = node._control if node is not None else None
    return control.image if control is not None else EMPTY_IMAGE


def newest_image(cluster: Cluster) -> MetadataImage:
    """What has certainly been committed, as far as anybody who runs knows."""
    return max((image(machine) for machine in cluster.machines.values()), key=lambda found: found.last_offset)


def partitions(machine: Machine) -> Iterator[HostedPartition]:
    found = services(machine)
    return iter(()) if found is None else found.replicas.partitions()


def is_active_controller(machine: Machine) -> bool:
    node = machine.node
    control = node._control if node is not None else None
    return control is not None and control.is_active_controller


def leads_any(machine: Machine) -> bool:
    return any(partition.leader is not None for partition in partitions(machine))


def others_have_everything(
    cluster: Cluster, machine: Machine, newest: MetadataImage, damaged: Collection[int] = ()
) -> bool:
    """Is every other replica of what `machine` holds running, in sync, and whole? By the `newest` metadata that anybody
    ever had: those who run may all have started just now, and know of nothing that could be lost. One on a `damaged`
    machine is not whole, though it may be in sync: nobody has read it since, and nobody could copy it. One that is
    being added is none yet, and where `machine` leads and is damaged, it may have to wait until that is repaired."""
    for topic in newest.topics.by_name.values():
        for partition in topic.partitions.values():
            if machine.id not in partition.replicas:
                continue
            others = [
                replica for replica in partition.replicas if replica != machine.id and not _is_new(partition, replica)
            ]
            if not others or any(replica not in partition.isr for replica in others):
                return False
            if any(replica in damaged or not cluster.machines[replica].serving for replica in others):
                return False
    return True


def _is_new(partition: PartitionImage, replica: int) -> bool:
    """Is this replica being added, and has not caught up yet? Then nothing was ever promised of what it has."""
    return replica in partition.adding_replicas and replica not in partition.isr


def hosted(machine: Machine, place: TopicPartition) -> HostedPartition | None:
    found = services(machine)
    return None if found is None else found.replicas.partition(place.topic, place.partition)


def log(machine: Machine, place: TopicPartition) -> Log | None:
    """The log on its disk, also before the node has taken up its role in the partition."""
    found = services(machine)
    return None if found is None else found.logs.logs.get(place)


def transaction_shard(machine: Machine, partition: int) -> TransactionShard | None:
    """The coordinator's state of that partition, if this machine serves it."""
    found = services(machine)
    served = None if found is None else found.transactions._served.get(partition)
    return served.shard if served is not None and served.active else None


def group_shard(machine: Machine, partition: int) -> GroupShard | None:
    """The same, of groups."""
    found = services(machine)
    served = None if found is None else found.groups._served.get(partition)
    return served.shard if served is not None and served.active else None


def served_shards(machine: Machine) -> Iterator[ServedShard[GroupShard] | ServedShard[TransactionShard]]:
    """All of either kind for which this machine answers."""
    found = services(machine)
    if found is not None:
        for runtime in (found.groups, found.transactions):
            for served in runtime._served.values():
                if served.active:
                    yield served


def served_groups(machine: Machine) -> Iterator[ServedShard[GroupShard]]:
    """Those of groups."""
    found = services(machine)
    if found is not None:
        for served in found.groups._served.values():
            if served.active:
                yield served


def served_transactions(machine: Machine) -> Iterator[ServedShard[TransactionShard]]:
    """Those of transactional ids."""
    found = services(machine)
    if found is not None:
        for served in found.transactions._served.values():
            if served.active:
                yield served


def every_place(cluster: Cluster) -> list[TopicPartition]:
    """Every partition of every topic."""
    return [
        TopicPartition(topic.name, index)
        for topic in newest_image(cluster).topics.by_name.values()
        for index in topic.partitions
    ]


def newest_partitions(cluster: Cluster) -> list[PartitionImage]:
    """The same, as the newest metadata has them."""
    topics = newest_image(cluster).topics.by_name.values()
    return [partition for topic in topics for partition in topic.partitions.values()]


def is_registered(machine: Machine) -> bool:
    """Is its process the incarnation that the newest metadata knows, fenced or not?"""
    node = machine.node
    control = node._control if node is not None else None
    if control is None:
        return False
    registered = newest_image(machine.cluster).broker(machine.id)
    return registered is not None and registered.epoch == control.broker_epoch


def is_member(machine: Machine) -> bool:
    """Does it serve, registered and unfenced, as the incarnation that the newest metadata knows?"""
    if not machine.serving or not is_registered(machine):
        return False
    registered = newest_image(machine.cluster).broker(machine.id)
    return registered is not None and not registered.fenced


def is_in_sync(cluster: Cluster, machine: Machine) -> bool:
    """Does `machine` run, and is it in the in-sync set of every partition that it holds, and not only begins to?"""
    if not machine.plan.broker:
        return machine.serving
    if not is_member(machine):
        return False
    newest = newest_image(cluster)
    return all(
        machine.id in partition.isr or _is_new(partition, machine.id)
        for topic in newest.topics.by_name.values()
        for partition in topic.partitions.values()
        if machine.id in partition.replicas
    )


def metadata_directory_id(machine: Machine) -> Uuid | None:
    """The identity under which this machine's disk is a voter."""
    found = machine.volume.find(f"{DATA}/{files.META_PROPERTIES}")
    if not isinstance(found, FileNode):
        return None
    for line in found.content.decode().splitlines():
        name, _, value = line.partition("=")
        if name == "directory.id":
            return uuid_from_text(value)
    return None


def quorum_is_whole(cluster: Cluster) -> bool:
    """Do all controllers run, and is each of them a voter of the quorum that the leader knows?"""
    controllers = cluster.controllers
    if not all(machine.serving and not machine.paused for machine in controllers):
        return False
    for machine in controllers:
        node = machine.node
        if node is not None and node._control is not None and node._control.is_active_controller:
            voters = node._control.raft.machine.voters.latest
            return all(
                (voter := voters.get(each.id)) is not None and voter.key.directory_id == metadata_directory_id(each)
                for each in controllers
            )
    return False


def voters(cluster: Cluster) -> dict[int, bool]:
    """The voters of the quorum, as the newest of those who run know them, and whether each still has the disk that made
    it one (B12): with another disk it is somebody else until it has been added again."""
    known, newest = None, -1
    for machine in cluster.machines.values():
        node = machine.node
        if node is not None and node._control is not None:
            raft = node._control.raft
            if raft.log.log_end_offset > newest:
                known, newest = raft.machine.voters.latest, raft.log.log_end_offset
    if known is None or not len(known):
        return {machine.id: True for machine in cluster.controllers}
    return {
        voter.key.id: voter.key.directory_id in (ZERO_UUID, metadata_directory_id(cluster.machines[voter.key.id]))
        for voter in known.voters
    }


def uncommitted_voters(machine: Machine) -> bool:
    node = machine.node
    if node is None or node._control is None:
        return False
    raft = node._control.raft.machine
    return raft.high_watermark is not None and raft.voters.latest_offset >= raft.high_watermark
