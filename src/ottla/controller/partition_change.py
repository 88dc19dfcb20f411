"""One partition's next state: its replicas, who is in its ISR and its ELR, and who leads it.

A function of the partition, of what is wanted, and of what the cluster says (`Rules`). Every leader change begins a
new leader epoch, and every change a new partition epoch; both follow from the record that is made here
(`merge_partition_change`). All elections of the controller, asked for or not, are this one.

KIP-966: when the ISR falls below the topic's minimum, those that leave it are still known to hold every committed
record, because below the minimum nothing more is committed. They are kept as eligible leader replicas (ELR) until the
ISR is large enough again, or until they come back from a shutdown that cannot be shown to have been clean. The ISR may
then be empty; if the ELR is empty as well, the leader that went last may be elected again, as an unclean election.

Where we are stricter than Kafka: a replica whose broker says that it lacks committed records (its directory is LOST) is
not elected for having led last (E16). The partition waits for another, or for somebody who decides to lose them; unless
every replica has said so, for then nobody is left to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ottla.controller.reassignment import Reassignment
from ottla.metadata.delta import NO_LEADER_CHANGE, NO_RECOVERY_STATE_CHANGE
from ottla.metadata.features import (
    bumps_leader_epoch_on_isr_shrink,
    has_directory_assignment,
    partition_record_version,
)
from ottla.metadata.images import LEADER_RECOVERING, NO_LEADER, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.partition_change_record import PartitionChangeRecord


class Election(Enum):
    """Which replicas may be elected when the leader must change."""

    ONLINE = "any of the ISR, or of the ELR if that is empty; the present leader if it can stay"
    PREFERRED = "the first replica, if it could be elected; else as ONLINE"
    UNCLEAN = "as ONLINE; failing that any replica, whatever it has lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the cluster says about a partition's next state."""

    may_lead: Callable[[int], bool]
    """Is the replica's broker active, and its directory online?"""

    is_active: Callable[[int], bool] = lambda replica: False
    """Is its broker? Asked of those that are lost."""

    is_lost: Callable[[int], bool] = lambda replica: False
    """Has its broker said that the replica lacks committed records?"""

    min_insync_replicas: int
    """The topic's; a partition with fewer replicas asks for no more than it has."""

    elr: bool
    """Is KIP-966 on (`eligible.leader.replicas.version`)?"""

    metadata_version: int
    new_directory: Callable[[int], Uuid]
    """Where a replica that a broker is given now will be, as far as the controller can say."""

    def min_isr(self, replicas: tuple[int, ...]) -> int:
        return min(self.min_insync_replicas, len(replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to become of a partition; what is left out stays as it is."""

    election: Election = Election.ONLINE
    isr: tuple[int, ...] | None = None
    reassignment: Reassignment | None = None
    recovery_state: int | None = None
    directories: Mapping[int, Uuid] = field(default_factory=dict)
    unclean_shutdown: int | None = None
    """A broker that came back without proof that it had shut down cleanly, or says that its replica lacks records."""


NOTHING_WANTED = Wanted()


def change_partition(
    topic_id: Uuid, partition_id: int, partition: PartitionImage, rules: Rules, wanted: Wanted = NOTHING_WANTED
) -> MetadataRecord | None:
    """The record that does what is wanted and gives the partition a leader, or None if nothing changes.

    Without ELR the last member of an ISR stays in it: it is the one replica known to have every committed record.
    """
    from ottla.wire.messages.partition_change_record import PartitionChangeRecord

    isr = partition.isr if wanted.isr is None else wanted.isr
    moving = Reassignment.of(partition) if wanted.reassignment is None else wanted.reassignment
    completed = moving.completed_isr(isr, rules.min_insync_replicas)
    if completed is not None:
        isr = completed
        moving = Reassignment(moving.target, (), ())
    ends = Reassignment.of(partition).in_progress and not moving.in_progress
    elr = _next_elr(partition, moving.replicas, isr, rules, wanted.unclean_shutdown)

    record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    elected = _elect(partition, moving.replicas, isr, elr, rules, wanted.election)
    unclean = False
    if elected.leader != partition.leader:
        record.leader = elected.leader
        unclean = elected.unclean
        if unclean:
            isr, elr = (elected.leader,), ()
            if partition.leader_recovery_state != LEADER_RECOVERING:
                record.leader_recovery_state = LEADER_RECOVERING
        elif elected.leader in elr:
            isr = (elected.leader,)
            elr = _without(elr, elected.leader) if len(isr) < rules.min_isr(moving.replicas) else ()

    if record.leader == NO_LEADER_CHANGE and (ends or not set(partition.replicas) <= set(moving.replicas)):
        # A reassignment ends with a new epoch (A13): who left must not be taken for a follower should it come back.
        record.leader = partition.leader
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    if isr != partition.isr and (isr or rules.elr):
        record.isr = list(isr)
    if (
        record.leader == NO_LEADER_CHANGE
        and bumps_leader_epoch_on_isr_shrink(rules.metadata_version)
        and not set(partition.isr) <= set(isr or partition.isr)
    ):
        record.leader = partition.leader
    if rules.elr:
        _update_last_known_leader(partition, record)
    _update_replicas(partition, moving, rules, wanted, record)
    if not unclean and wanted.recovery_state is not None and wanted.recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = wanted.recovery_state
    if _says_nothing(record):
        return None
    return MetadataRecord(record, partition_record_version(rules.metadata_version))


def _without(replicas: tuple[int, ...], *gone: int) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)


@dataclass(frozen=True, slots=True)
class _Elected:
    leader: int
    unclean: bool = False


def _elect(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: Rules,
    election: Election,
) -> _Elected:
    candidates = isr or elr

    def eligible(replica: int) -> bool:
        return replica in candidates and rules.may_lead(replica)

    def may_lead_lost(replica: int) -> bool:
        return rules.is_lost(replica) and rules.is_active(replica)

    if election is Election.PREFERRED and eligible(replicas[0]):
        return _Elected(replicas[0])
    if eligible(partition.leader) or (partition.leader in candidates and may_lead_lost(partition.leader)):
        # Who leads, and is lost, was elected so, and is about to say where it is.
        return _Elected(partition.leader)
    for replica in replicas:
        if eligible(replica):
            return _Elected(replica)
    all_are_lost = all(map(rules.is_lost, replicas))
    if rules.elr and not candidates and len(partition.last_known_elr) == 1:
        last = partition.last_known_elr[0]
        if last in replicas and (rules.may_lead(last) or (all_are_lost and may_lead_lost(last))):
            return _Elected(last, unclean=True)
    if not rules.elr and all_are_lost:
        for replica in isr:
            if may_lead_lost(replica):
                return _Elected(replica, unclean=True)
    if election is Election.UNCLEAN:
        for may_lead in (rules.may_lead, may_lead_lost):
            for replica in replicas:
                if may_lead(replica):
                    return _Elected(replica, unclean=True)
    return _Elected(NO_LEADER)


def _next_elr(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    rules: Rules,
    unclean_shutdown: int | None,
) -> tuple[int, ...]:
    if not rules.elr or len(isr) >= rules.min_isr(replicas):
        return ()
    known = {*partition.elr, *partition.isr}
    return tuple(sorted(r for r in known if r in replicas and r not in isr and r != unclean_shutdown))


def _update_last_known_leader(partition: PartitionImage, record: PartitionChangeRecord) -> None:
    """Remembered, in the field for the last known ELR, from when the partition loses its leader until it has one."""
    if record.leader == NO_LEADER:
        if partition.leader != NO_LEADER and not partition.last_known_elr:
            record.last_known_elr = [partition.leader]
    elif record.leader != NO_LEADER_CHANGE and partition.last_known_elr:
        record.last_known_elr = []


def _update_replicas(
    partition: PartitionImage, moving: Reassignment, rules: Rules, wanted: Wanted, record: PartitionChangeRecord
) -> None:
    if moving.replicas != partition.replicas:
        record.replicas = list(moving.replicas)
    if moving.removing != partition.removing_replicas:
        record.removing_replicas = list(moving.removing)
    if moving.adding != partition.adding_replicas:
        record.adding_replicas = list(moving.adding)
    if has_directory_assignment(rules.metadata_version):
        known = dict(zip(partition.replicas, partition.directories, strict=True)) | dict(wanted.directories)
        directories = [known[r] if r in known else rules.new_directory(r) for r in moving.replicas]
        if directories != list(partition.directories):
            record.directories = directories


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
    )
