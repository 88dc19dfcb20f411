"""Section A of the metadata: epochs rise, fenced brokers are out, and the sets of a partition fit together.

Looked at whenever a node has taken in newer metadata than anybody before: what is committed is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.model import TopicPartition, Uuid
from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster, Machine


class MetadataChecker:
    def __init__(self, cluster: Cluster, committed: Callable[[], int]) -> None:
        """`committed` says how far the metadata log is committed, by whomever."""
        self._cluster = cluster
        self._committed = committed
        self.newest: MetadataImage | None = None
        self._partitions: dict[tuple[bytes, int], PartitionImage] = {}
        self._broker_epochs: dict[int, int] = {}
        self.elections = 0
        self.shrinks = 0
        self.growths = 0
        self.moved: list[tuple[TopicPartition, Uuid, PartitionImage | None, PartitionImage]] = []
        """Partitions that may have changed in the last look: what they were and what they are."""

    def after_step(self, machine: Machine) -> bool:
        """True if there is newer metadata than before."""
        image = view.image(machine)
        newest = self.newest
        if image is newest or (newest is not None and image.last_offset <= newest.last_offset):
            return False
        if image.last_offset >= self._committed():
            raise Violation(
                "A25", f"{machine.name} acts on metadata up to {image.last_offset}; {self._committed()} is committed"
            )
        self.newest = image
        self._look(image, newest)
        return True

    def _look(self, image: MetadataImage, before: MetadataImage | None) -> None:
        self.moved = []
        brokers_moved = before is None or image.cluster is not before.cluster
        if brokers_moved:
            for broker in image.cluster.brokers.values():
                known = self._broker_epochs.get(broker.broker_id, -1)
                if broker.epoch < known:
                    raise Violation("A26", f"broker {broker.broker_id} had epoch {known}, and now {broker.epoch}")
                self._broker_epochs[broker.broker_id] = broker.epoch
        if not brokers_moved and before is not None and image.topics is before.topics:
            return
        for topic in image.topics.by_name.values():
            for index, partition in topic.partitions.items():
                known_partition = self._partitions.get((bytes(topic.topic_id), index))
                if known_partition is not partition or brokers_moved:
                    place = TopicPartition(topic.name, index)
                    self._check(place, partition, known_partition, image)
                    self._partitions[bytes(topic.topic_id), index] = partition
                    self.moved.append((place, topic.topic_id, known_partition, partition))

    def _check(
        self, place: TopicPartition, partition: PartitionImage, before: PartitionImage | None, image: MetadataImage
    ) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        if not isr <= replicas or not elr <= replicas or isr & elr:
            raise Violation("A15", f"{place}: replicas {partition.replicas}, isr {partition.isr}, elr {partition.elr}")
        for broker_id in (*partition.isr, *([partition.leader] if partition.leader >= 0 else [])):
            broker = image.broker(broker_id)
            if broker is None or broker.fenced:
                # The last member of an ISR stays in it when it is fenced: nobody else may be elected cleanly.
                if partition.leader < 0 and isr == {broker_id}:
                    continue
                raise Violation("A14", f"{place}: broker {broker_id} is fenced, and in the isr {partition.isr}")
        if partition.leader >= 0 and partition.leader not in isr:
            raise Violation("A14", f"{place}: leader {partition.leader} is not in the isr {partition.isr}")
        if before is None or before is partition:
            return
        if partition.leader_epoch < before.leader_epoch:
            raise Violation("A13", f"{place}: leader epoch {partition.leader_epoch} after {before.leader_epoch}")
        if partition.partition_epoch <= before.partition_epoch and partition != before:
            raise Violation("A13", f"{place}: {partition} follows {before} without a new partition epoch")
        if partition.leader != before.leader:
            if partition.leader_epoch == before.leader_epoch:
                raise Violation(
                    "A13", f"{place}: the leader changed from {before.leader} to {partition.leader} within an epoch"
                )
            self.elections += 1
            self._cluster.trace.note(
                "controller",
                f"{place}: leader {before.leader} → {partition.leader}, epoch {partition.leader_epoch}, "
                f"isr {list(partition.isr)}",
            )
        if len(isr - set(before.isr)):
            self.growths += 1
            self._cluster.trace.note("controller", f"{place}: isr grows {list(before.isr)} → {list(partition.isr)}")
        if len(set(before.isr) - isr):
            self.shrinks += 1
            self._cluster.trace.note("controller", f"{place}: isr shrinks {list(before.isr)} → {list(partition.isr)}")
