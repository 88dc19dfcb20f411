"""How the simulation looks into a running node: the one place that knows where its state lies.

Looks and never touches. Everything here must be cheap: checkers ask after every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.hosted import HostedPartition
from ottla.broker.services import Services
from ottla.metadata.images import EMPTY_IMAGE, MetadataImage
from ottla.model import TopicPartition

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


def others_have_everything(cluster: Cluster, machine: Machine) -> bool:
    """Is every other replica of what `machine` holds running, in sync, and whole?"""
    newest = newest_image(cluster)
    for topic in newest.topics.by_name.values():
        for partition in topic.partitions.values():
            if machine.id not in partition.replicas:
                continue
            others = [replica for replica in partition.replicas if replica != machine.id]
            if not others or any(replica not in partition.isr for replica in others):
                return False
            if any(not cluster.machines[replica].serving for replica in others):
                return False
    return True


def hosted(machine: Machine, place: TopicPartition) -> HostedPartition | None:
    found = services(machine)
    return None if found is None else found.replicas.partition(place.topic, place.partition)


def is_member(machine: Machine) -> bool:
    """Does it run, registered and unfenced, as the incarnation that the newest metadata knows?"""
    node = machine.node
    if node is None or not machine.serving:
        return False
    control = node._control
    if control is None:
        return False
    registered = newest_image(machine.cluster).broker(machine.id)
    return registered is not None and not registered.fenced and registered.epoch == control.broker_epoch
