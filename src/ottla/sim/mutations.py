"""Historic bugs, put back into the real classes for the time of a run: the proof that the checkers see.

Each replaces a method or two by one with the mistake in it. Product code knows nothing of this. A mutation names the
invariants that it must break and within how many seeds that must show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ottla.sim.compaction_mutations import COMPACTION_MUTATIONS
from ottla.sim.coordinator_mutations import COORDINATOR_MUTATIONS
from ottla.sim.mutation import Mutation, Patches
from ottla.sim.storage_mutations import STORAGE_MUTATIONS


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """With the bug in the nodes, if there is to be one."""
    with ExitStack() as stack:
        if name is not None:
            MUTATIONS[name].apply(Patches(stack))
        yield


# Replication.


def _truncate_to_high_watermark(patches: Patches) -> None:
    """KIP-101: a follower that has a new leader cuts its log to its own high watermark first."""
    from ottla.broker.replication.fetchers import ReplicaFetchers

    before = ReplicaFetchers.__dict__["follow"]

    def follow(self: Any, partition: Any, leader_id: int, leader_epoch: int) -> None:
        if not partition.log.offline:
            partition.log.truncate_to(partition.log.high_watermark)
        before(self, partition, leader_id, leader_epoch)

    patches.replace(ReplicaFetchers, "follow", follow)


def _leader_trusts_its_high_watermark(patches: Patches) -> None:
    """A follower's high watermark lags: records above it may be committed."""
    from ottla.broker.replica_manager import ReplicaManager

    before = ReplicaManager.__dict__["lead"]

    def lead(self: Any, partition: Any, image: Any) -> None:
        if not partition.log.offline and partition.leader is None:
            partition.log.truncate_to(partition.log.high_watermark)
        before(self, partition, image)

    patches.replace(ReplicaManager, "lead", lead)


def _epoch_zero_skipped(patches: Patches) -> None:
    from ottla.log.epochs import LeaderEpochCache

    before = LeaderEpochCache.__dict__["assign"]

    def assign(self: Any, epoch: int, start_offset: int) -> bool:
        return epoch != 0 and bool(before(self, epoch, start_offset))

    patches.replace(LeaderEpochCache, "assign", assign)


def _growth_without_epoch_start(patches: Patches) -> None:
    from ottla.partition.leader import PartitionLeader

    def maybe_grow(self: Any, replica: int, follower: Any) -> tuple[Any, ...]:
        if (
            self.pending is not None
            or replica in self.isr
            or follower.log_end < self.high_watermark
            or not follower.is_eligible(self.brokers.get(replica))
        ):
            return ()
        return (self._propose(self.isr | {replica}, joining=(replica,)),)

    patches.replace(PartitionLeader, "_maybe_grow", maybe_grow)


def _growth_with_stale_broker_epoch(patches: Patches) -> None:
    from ottla.controller.alter_partition import AlterPartitionControl
    from ottla.partition.leader import PartitionLeader
    from ottla.partition.replica import FollowerProgress

    def eligible(self: Any, member: int, epoch: int) -> bool:
        broker = self._state.image.broker(member)
        return broker is not None and broker.active

    patches.replace(AlterPartitionControl, "_eligible", eligible)
    patches.replace(FollowerProgress, "is_eligible", lambda self, broker: broker is not None)
    check = PartitionLeader.__dict__["check_follower"]

    def check_follower(self: Any, replica: int, broker_epoch: int, *, knows_epoch: bool) -> None:
        check(self, replica, -1, knows_epoch=knows_epoch)

    patches.replace(PartitionLeader, "check_follower", check_follower)


def _high_watermark_over_committed_isr(patches: Patches) -> None:
    from ottla.partition.effects import HighWatermarkAdvanced
    from ottla.partition.leader import PartitionLeader

    def advance(self: Any, now_ms: int) -> tuple[Any, ...]:
        if not self.has_min_isr:
            return ()
        leaving = () if self.pending is None else self.pending.leaving
        members = [replica for replica in self.followers if replica in self.isr and replica not in leaving]
        offset = min([self.log_end, *(self.followers[replica].log_end for replica in members)])
        if offset <= self.high_watermark:
            return ()
        self.high_watermark = offset
        return (HighWatermarkAdvanced(offset),)

    patches.replace(PartitionLeader, "_advance", advance)


def _min_isr_ignored(patches: Patches) -> None:
    from ottla.partition.leader import PartitionLeader

    before = PartitionLeader.__dict__["_derive"]

    def derive(self: Any) -> None:
        before(self)
        self.has_min_isr = True

    patches.replace(PartitionLeader, "_derive", derive)


def _duplicate_acknowledged_early(patches: Patches) -> None:
    from ottla.broker.replica_manager import ReplicaManager
    from ottla.log import AppendInfo

    before = ReplicaManager.__dict__["produce"]

    def produce(self: Any, partition: Any, *arguments: Any, **options: Any) -> Any:
        info = before(self, partition, *arguments, **options)
        if info.duplicate:
            last = min(info.last_offset, partition.log.high_watermark - 1)
            return AppendInfo(info.first_offset, last, info.log_append_time_ms, True)
        return info

    patches.replace(ReplicaManager, "produce", produce)


def _unclean_restart_stays_a_candidate(patches: Patches) -> None:
    from ottla.controller.leadership import Leadership

    before = Leadership.__dict__["broker_restarted"]

    def broker_restarted(self: Any, broker_id: int, *, clean: bool) -> Any:
        return before(self, broker_id, clean=True)

    patches.replace(Leadership, "broker_restarted", broker_restarted)


# The quorum.


def _vote_not_durable(patches: Patches) -> None:
    from ottla.broker.control.stores import QuorumStore
    from ottla.raft.election import encode_quorum_state

    def write(self: Any, state: Any, *, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        data = encode_quorum_state(state, kraft_version=kraft_version, voter_ids=voter_ids)
        temporary = f"{self._path}.tmp"
        file = self._disk.open(temporary, create=True)
        file.truncate(0)
        file.write(0, data)
        file.close()
        self._disk.rename(temporary, self._path)

    patches.replace(QuorumStore, "write", write)


def _commit_by_counting(patches: Patches) -> None:
    from ottla.raft.leader import Leader

    def advance(self: Any) -> int | None:
        ends = {voter: state.end_offset for voter, state in self.replicas.items() if state.end_offset is not None}
        committed: int = self.voters.committed(ends)
        if committed < 0 or (self.high_watermark is not None and committed <= self.high_watermark):
            return None
        self.high_watermark = committed
        return committed

    patches.replace(Leader, "advance", advance)


def _vote_for_anybody(patches: Patches) -> None:
    from ottla.raft import roles

    for role in (roles.Unattached, roles.Prospective):
        before = role.__dict__["may_grant"]

        def may_grant(self: Any, candidate: Any, *, up_to_date: bool, pre_vote: bool, before: Any = before) -> Any:
            return before(self, candidate, up_to_date=True, pre_vote=pre_vote)

        patches.replace(role, "may_grant", may_grant)


def _two_voter_changes(patches: Patches) -> None:
    """Neither the refusal nor the assertion behind it: the checker has to see it by itself."""
    from ottla.raft import control_records, voter_changes
    from ottla.raft.effects import AppendControlRecords

    def obstacle(quorum: Any, role: Any, now_ms: int) -> None:
        voter_changes.expire(quorum, role, now_ms)
        role.change = None

    def append_voters(quorum: Any, role: Any, voters: Any) -> None:
        role.appending_voters = True
        records = (control_records.kraft_voters(voters),)
        quorum.emit(AppendControlRecords(epoch=role.epoch, records=records))

    patches.replace(voter_changes, "_obstacle", obstacle)
    patches.replace(voter_changes, "append_voters", append_voters)


_LOSS_AND_ELECTIONS = (
    "power loss",
    "torn write",
    "isolation",
    "one-way partition",
    "bridge partition",
    "packet loss",
    "pause",
    "controlled shutdown",
    "preferred election",
    "rapid elections",
)
"""Somebody comes back with less than it had, and is elected before it has caught up."""

MUTATIONS: dict[str, Mutation] = {
    mutation.name: mutation
    for mutation in (
        *STORAGE_MUTATIONS,
        Mutation(
            name="truncate-to-high-watermark",
            what="a follower cuts its log to its own high watermark before it asks its leader (before KIP-101)",
            breaks=("A2", "A1", "A4", "A5", "H2", "H3", "H4", "A6"),
            apply=_truncate_to_high_watermark,
        ),
        Mutation(
            name="leader-trusts-its-high-watermark",
            what="a follower that is elected cuts its log to the high watermark that it knows",
            breaks=("A1", "A2", "A4", "A5"),
            apply=_leader_trusts_its_high_watermark,
        ),
        Mutation(
            name="epoch-zero-skipped",
            what="the epoch cache has no entry for epoch 0 (KAFKA-10432)",
            breaks=("E7", "A4", "A5"),
            apply=_epoch_zero_skipped,
        ),
        Mutation(
            name="growth-without-epoch-start",
            what="a follower joins the ISR below the start of the leader's epoch",
            breaks=("A19", "A2", "A1", "A4", "H2", "H3"),
            apply=_growth_without_epoch_start,
            seeds=200,
        ),
        Mutation(
            name="growth-with-stale-broker-epoch",
            what="an incarnation that is gone is let into the ISR (KAFKA-14617)",
            breaks=("A18", "A2", "A1", "H2", "H3"),
            apply=_growth_with_stale_broker_epoch,
        ),
        Mutation(
            name="high-watermark-over-committed-isr",
            what="the high watermark does not wait for a replica that is about to join the ISR (before KIP-497)",
            breaks=("A9", "A2", "A1"),
            apply=_high_watermark_over_committed_isr,
            seeds=60,
        ),
        Mutation(
            name="min-isr-ignored",
            what="the high watermark moves, and acks=all succeeds, with fewer in sync than min.insync.replicas",
            breaks=("A8",),
            apply=_min_isr_ignored,
        ),
        Mutation(
            name="duplicate-acknowledged-early",
            what="a producer's retry is acknowledged though the original is not committed yet",
            breaks=("A23",),
            apply=_duplicate_acknowledged_early,
            seeds=60,
        ),
        Mutation(
            name="unclean-restart-stays-a-candidate",
            what="a broker that lost data with its power may still be elected (before KIP-966)",
            breaks=("A2", "A1", "A4"),
            apply=_unclean_restart_stays_a_candidate,
            kinds=_LOSS_AND_ELECTIONS,
        ),
        Mutation(
            name="vote-not-durable",
            what="a vote leaves before it is on the disk",
            breaks=("B2", "B1", "B3"),
            apply=_vote_not_durable,
        ),
        Mutation(
            name="commit-by-counting",
            what="records of an older epoch are committed because a majority holds them (Raft's figure 8)",
            breaks=("B8", "B7"),
            apply=_commit_by_counting,
        ),
        Mutation(
            name="vote-for-anybody",
            what="a vote does not compare the logs",
            breaks=("A4", "B4", "B5", "B7", "B9", "B6", "A5", "BUG"),
            apply=_vote_for_anybody,
            seeds=60,
        ),
        Mutation(
            name="two-voter-changes",
            what="a second change of the voters does not wait for the first",
            # A node that is about to append the second says so itself.
            breaks=("B13", "B1", "A4", "BUG"),
            apply=_two_voter_changes,
        ),
        *COORDINATOR_MUTATIONS,
        *COMPACTION_MUTATIONS,
    )
}
