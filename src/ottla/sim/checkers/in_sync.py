"""A3, A18, A19 and A24: whoever joins an in-sync set does so because its leader proposed it, and rightly.

The proposals of leaders are noted as they are made, with what each leader knew of its followers at that moment; what
the controller makes of them is held against that when it is committed.
"""

from __future__ import annotations

from ottla.metadata.images import MetadataImage, PartitionImage
from ottla.model import TopicPartition, Uuid
from ottla.partition import PartitionLeader, ProposeIsr
from ottla.sim import view
from ottla.sim.checkers.violation import Violation
from ottla.sim.cluster import Cluster


class InSyncChecker:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._proposals: dict[tuple[Uuid, int], list[ProposeIsr]] = {}
        """All that any leader of a partition ever asked for, in order."""

    # As leaders propose.

    def on_proposal(self, place: TopicPartition, topic_id: Uuid, leader: PartitionLeader, proposal: ProposeIsr) -> None:
        """A19: whoever is to join has fetched in this epoch, and has all that is committed, by this leader or before
        it."""
        proposals = self._proposals.setdefault((topic_id, place.partition), [])
        if proposals and proposals[-1] is proposal:
            return
        proposals.append(proposal)
        for replica in proposal.joining:
            follower = leader.followers.get(replica)
            if follower is None:
                continue
            if follower.broker_epoch is None:
                raise Violation(
                    "A19", f"{place}: node {replica} is to join the isr, and has fetched nothing in this epoch"
                )
            if follower.log_end < max(leader.start_offset, leader.high_watermark):
                raise Violation(
                    "A19",
                    f"{place}: node {replica} is to join the isr at {follower.log_end}, where the epoch began at "
                    f"{leader.start_offset} and {leader.high_watermark} is committed",
                )

    # As the controller decides.

    def on_changed(
        self,
        place: TopicPartition,
        topic_id: Uuid,
        before: PartitionImage,
        after: PartitionImage,
        image: MetadataImage,
    ) -> None:
        """The metadata had the partition so and has it, in the newest `image`, so."""
        self._check_counted(place, topic_id, after)
        asked = [
            proposal
            for proposal in self._proposals.get((topic_id, place.partition), ())
            if before.partition_epoch <= proposal.partition_epoch < after.partition_epoch
        ]
        for replica in after.isr:
            if replica not in before.isr:
                self._check_joined(place, replica, before, after, asked, image)
        if after.partition_epoch == before.partition_epoch + 1:
            self._check_moved(place, before, after, asked, image)

    def _check_counted(self, place: TopicPartition, topic_id: Uuid, after: PartitionImage) -> None:
        """A3, as far as the leader that the metadata names can be asked."""
        machine = self._cluster.machines.get(after.leader)
        hosted = None if machine is None else view.hosted(machine, place)
        leader = None if hosted is None or hosted.topic_id != topic_id else hosted.leader
        if leader is None or leader.leader_epoch != after.leader_epoch:
            return
        if len(leader.isr) >= leader.effective_min_isr and not {*after.isr, *after.elr} <= leader.maximal_isr:
            raise Violation(
                "A3",
                f"{place}: isr {after.isr} and elr {after.elr} may be elected, and the leader counts only "
                f"{sorted(leader.maximal_isr)}",
            )

    def _check_joined(
        self,
        place: TopicPartition,
        replica: int,
        before: PartitionImage,
        after: PartitionImage,
        asked: list[ProposeIsr],
        image: MetadataImage,
    ) -> None:
        # An election of one that was eligible makes it the first of a new set. Nothing else does without a leader.
        eligible = (*before.elr, *before.last_known_elr)
        is_election = after.leader_epoch > before.leader_epoch and (after.leader_recovery_state or replica in eligible)
        if is_election and replica == after.leader:
            return  # Whatever was asked for before, and not granted.
        epochs = [member.broker_epoch for proposal in asked for member in proposal.isr if member.replica_id == replica]
        if not epochs:
            if is_election:
                return
            raise Violation(
                "A24", f"{place}: node {replica} has joined the isr {before.isr}, and no leader has asked for it"
            )
        registered = image.broker(replica)
        if registered is None or not any(epoch in (-1, registered.epoch) for epoch in epochs):
            raise Violation(
                "A18",
                f"{place}: node {replica} has joined the isr with the epochs {sorted(set(epochs))}, and is registered "
                f"with {None if registered is None else registered.epoch}",
            )

    def _check_moved(
        self,
        place: TopicPartition,
        before: PartitionImage,
        after: PartitionImage,
        asked: list[ProposeIsr],
        image: MetadataImage,
    ) -> None:
        """A24: a replica that was in sync and is none any more, because the partition has moved, leaves enough."""
        configured = image.topic_config(place.topic).get("min.insync.replicas")
        leaving = {replica for proposal in asked for replica in proposal.leaving}
        moved = [
            replica
            for replica in before.isr
            if replica not in after.replicas and replica not in leaving and _is_well(replica, before, image)
        ]
        if moved and configured is not None and len(after.isr) < min(int(configured), len(after.replicas)):
            raise Violation(
                "A24",
                f"{place}: a move took {moved} out of the isr {before.isr}, and {after.isr} is left, where "
                f"{configured} are asked for",
            )


def _is_well(replica: int, partition: PartitionImage, image: MetadataImage) -> bool:
    """Could it have stayed in sync, for all that the metadata knows?"""
    broker = image.broker(replica)
    return broker is not None and broker.active and broker.has_online(partition.directory_of(replica))
