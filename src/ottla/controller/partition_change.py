"""One partition's next state: who leads it, and who is in its ISR.

A function of the partition, the ISR that is wanted, and who may lead. Every leader change begins a new leader epoch,
and every change a new partition epoch; both follow from the record that is made here (`merge_partition_change`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ottla.metadata.delta import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE
from ottla.metadata.features import partition_record_version
from ottla.metadata.images import LEADER_RECOVERING, NO_LEADER, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid


class Election(Enum):
    """Which replicas may be elected when the leader must change."""

    ONLINE = "any of the ISR, the present leader if it can stay"
    PREFERRED = "the first replica, if it is in the ISR"
    UNCLEAN = "as ONLINE; failing that any replica, whatever it has lost"


def _elect(
    partition: PartitionImage, isr: tuple[int, ...], may_lead: Callable[[int], bool], election: Election
) -> tuple[int, bool]:
    """The leader, and whether it was chosen uncleanly."""

    def eligible(replica: int) -> bool:
        return replica in isr and may_lead(replica)

    if election is Election.PREFERRED and eligible(partition.preferred_leader):
        return partition.preferred_leader, False
    if eligible(partition.leader):
        return partition.leader, False
    for replica in partition.replicas:
        if eligible(replica):
            return replica, False
    if election is Election.UNCLEAN:
        for replica in partition.replicas:
            if may_lead(replica):
                return replica, True
    return NO_LEADER, False


def change_partition(
    topic_id: Uuid,
    partition_id: int,
    partition: PartitionImage,
    *,
    isr: tuple[int, ...],
    may_lead: Callable[[int], bool],
    election: Election,
    metadata_version: int,
) -> MetadataRecord | None:
    """The record that gives the partition the ISR `isr` and a leader, or None if nothing changes.

    The last member of an ISR stays in it: it is the one replica known to have every committed record.
    """
    from ottla.wire.messages.partition_change_record import PartitionChangeRecord

    leader, unclean = _elect(partition, isr, may_lead, election)
    new_isr: list[int] | None = None
    if unclean:
        new_isr = [leader]
    elif isr and isr != partition.isr:
        new_isr = list(isr)
    new_leader = NO_LEADER_CHANGE if leader == partition.leader else leader
    recovery = NO_RECOVERY_STATE_CHANGE
    if unclean and partition.leader_recovery_state != LEADER_RECOVERING:
        recovery = LEADER_RECOVERING
    if new_isr is None and new_leader == NO_LEADER_CHANGE and recovery == NO_RECOVERY_STATE_CHANGE:
        return None
    return MetadataRecord(
        PartitionChangeRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            isr=new_isr,
            leader=new_leader,
            leader_recovery_state=recovery,
        ),
        partition_record_version(metadata_version),
    )
