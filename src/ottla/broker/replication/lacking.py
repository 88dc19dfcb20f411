"""Replicas that lack committed records, or hold damaged ones: what `partition/standing` decides is done here (E16).

`on_damage` is the one door for a disk that lied: whoever reads a batch that is not what was written comes here with it.
`ReplicaManager` asks before it leads, while it leads and when it follows, and lends what moves a replica from one role
to another. What is missing the log knows (`Log.missing_until`), and where it is damaged the partition (`damaged_at`);
nothing else is remembered here. Whoever tells the controller (`upkeep/directory_assignments`) hears by `on_lacking`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.broker.hosted import HostedPartition
from ottla.log import UNKNOWN_END
from ottla.metadata.images import NO_LEADER, PartitionImage
from ottla.partition import Standing
from ottla.runtime import DiskError

_log = logging.getLogger(__name__)


class LackingReplicas:
    """Those of one node. The operations are the replica manager's."""

    def __init__(
        self,
        node_id: int,
        *,
        resign: Callable[[HostedPartition], None],
        unfollow: Callable[[HostedPartition], None],
        wake_all: Callable[[HostedPartition], None],
        fail: Callable[[HostedPartition, BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._resign = resign
        self._unfollow = unfollow
        self._wake_all = wake_all
        self._fail = fail
        self.on_lacking: Callable[[HostedPartition], None] = lambda partition: None
        """A replica lacks committed records: the controller is to be told, if `is_to_be_told`."""
        self.can_tell_lost = False
        """Is the metadata new enough to name a replica as lost (KIP-858)?"""
        self.has_elr = False
        """Has the cluster eligible leader replicas (KIP-966)?"""

    def on_hosted(self, partition: HostedPartition) -> None:
        if partition.image.is_lost(self._node_id):
            # Said by a former self, who knew more: what it had cut off is not to be seen in the log any more.
            partition.log.missing_until = UNKNOWN_END

    def on_damage(self, partition: HostedPartition, offset: int) -> bool:
        """We lead, and the batch at `offset` is not what was written. True if another is to lead instead, and what
        follows is to be copied from it; otherwise there is nobody else who could, or the metadata is too old to say
        so."""
        assert partition.leader is not None
        known = partition.damaged_at
        partition.damaged_at = offset if known is None else min(known, offset)
        return self.gives_up(partition)

    def is_to_be_told(self, partition: HostedPartition) -> bool:
        """Is the controller to hold our replica for lost?"""
        if partition.leader is not None or not _is_unwhole(partition):
            return False
        standing = self._standing(partition.image)
        return standing.is_to_be_told if partition.damaged_at is None else standing.damage_is_to_be_told

    def gives_up(self, partition: HostedPartition) -> bool:
        """We lead; not any more, if the log is damaged and another could. That is before the controller has heard of
        it: it gives the lead to another when it has."""
        if partition.damaged_at is None or self._standing(partition.image).may_lead_damaged:
            return False
        _log.error(
            "%s is damaged at offset %d: another replica is to lead it, and what follows to be copied from that",
            partition.topic_partition,
            partition.damaged_at,
        )
        self._resign(partition)
        self.on_lacking(partition)
        return True

    def may_lead(self, partition: HostedPartition) -> bool:
        """Elected, perhaps though we know that we lack something: False if whoever did it cannot know that yet. Raises
        `DiskError`."""
        if not _is_unwhole(partition):
            return True
        standing, log = self._standing(partition.image), partition.log
        if not (standing.may_lead_lacking if log.lacks_committed else standing.may_lead_damaged):
            if partition.leader is not None:
                self._resign(partition)
            self._wake_all(partition)
            self.on_lacking(partition)
            return False
        if partition.damaged_at is not None and standing.known_to_lack:
            _cut_at_damage(partition)
        if log.lacks_committed:
            _log.error(
                "%s is led from offset %d on without committed records that were behind it: %s, so they are lost",
                partition.topic_partition,
                log.log_end_offset,
                "no other replica has them" if standing.alone else "its leader was elected uncleanly",
            )
            log.missing_until = 0
        return True

    def mend(self, partition: HostedPartition, before: PartitionImage) -> bool:
        """We follow, or nobody leads, and `before` is what the metadata said until now. If we lack something, the log
        is cut where it is damaged, or has it all again. False if there is no disk to go on with."""
        if not _is_unwhole(partition):
            return True
        image, log = partition.image, partition.log
        standing = self._standing(image)
        if partition.damaged_at is None and standing.is_in_sync_again:
            log.missing_until = 0
        elif partition.damaged_at is not None and standing.known_to_lack and standing.led_by_another:
            self._unfollow(partition)
            try:
                _cut_at_damage(partition)
            except DiskError as error:
                self._fail(partition, error)
        elif (
            standing.known_to_lack
            and image.leader == NO_LEADER
            and not (before.is_lost(self._node_id) and before.leader == NO_LEADER)
        ):
            _log.error(
                "%s has no leader, and is not led here, for committed records are missing from offset %d on: start the "
                "brokers of its other replicas; as the last resort, run `ottla cluster elect %s:%d --unclean`: what "
                "the replica lacks that is elected is then lost",
                partition.topic_partition,
                log.log_end_offset if partition.damaged_at is None else partition.damaged_at,
                partition.topic,
                partition.index,
            )
        return not partition.offline

    def _standing(self, image: PartitionImage) -> Standing:
        own = self._node_id
        return Standing(
            alone=len(image.replicas) == 1,
            led_by_another=image.leader not in (NO_LEADER, own),
            in_isr=own in image.isr,
            in_elr=own in image.elr,
            others_in_isr=any(replica != own for replica in image.isr),
            known_to_lack=image.is_lost(own),
            can_be_told=self.can_tell_lost,
            isr_may_be_empty=self.has_elr,
        )


def _is_unwhole(partition: HostedPartition) -> bool:
    return partition.log.lacks_committed or partition.damaged_at is not None


def _cut_at_damage(partition: HostedPartition) -> None:
    log, offset = partition.log, partition.damaged_at
    assert offset is not None
    had = log.log_end_offset
    log.truncate_to(offset)
    log.missing_until = max(log.missing_until, had)
    partition.damaged_at = None
