"""The raft machine of one replica of the metadata log. See the package's docstring for how it is driven."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.raft import control_records
from ottla.raft.effects import (
    AppendControlRecords,
    Effect,
    HighWatermarkAdvanced,
    LeadershipEstablished,
    PersistQuorumState,
    Resigned,
)
from ottla.raft.election import NEVER_ELECTED, ElectionState
from ottla.raft.roles import Candidate, Leader, Role, Unattached
from ottla.raft.roles import Resigned as ResignedRole
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One row of DescribeQuorum."""

    replica: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    nodes: tuple[Voter, ...]


class RaftMachine:
    def __init__(self, *, local: ReplicaKey, voters: VoterHistory, kraft_version: int) -> None:
        self.local = local
        self.voters = voters
        self.kraft_version = kraft_version
        self.role: Role = Unattached(epoch=0)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self.local.id if isinstance(self.role, Leader) else None

    @property
    def high_watermark(self) -> int | None:
        return self.role.high_watermark if isinstance(self.role, Leader) else None

    def on_start(self, *, stored: ElectionState | None, log_end_offset: int, log_end_epoch: int) -> list[Effect]:
        """The disk held `stored` and a log that ends before `log_end_offset` with a batch of `log_end_epoch`."""
        stored = stored or NEVER_ELECTED
        if log_end_epoch > stored.epoch:
            # The quorum-state was lost, the log was not: its epochs were led by somebody.
            stored = ElectionState(epoch=log_end_epoch)
        if stored.leader_id == self.local.id:
            self.role = ResignedRole(epoch=stored.epoch, local_id=self.local.id)
        else:
            self.role = Unattached(epoch=stored.epoch, voted=stored.voted)
        if self.voters.latest.is_only_voter(self.local):
            # Nobody else could lead, so there is nothing to wait for.
            return self._run_for_election(log_end_offset)
        return []

    def _run_for_election(self, log_end_offset: int) -> list[Effect]:
        candidate = Candidate(epoch=self.role.epoch + 1, local=self.local, voters=self.voters.latest)
        candidate.granted.add(self.local.id)
        self.role = candidate
        if not candidate.won:
            return [PersistQuorumState(election=candidate.election)]
        # Our own vote decides. To vote and to win is then one promise, and is made durable as one.
        leader = Leader(
            epoch=candidate.epoch,
            local_id=self.local.id,
            voters=candidate.voters,
            granted=tuple(sorted(candidate.granted)),
            epoch_start_offset=log_end_offset,
            log_end_offset=log_end_offset,
        )
        self.role = leader
        return [PersistQuorumState(election=leader.election)]

    def on_quorum_state_persisted(self, election: ElectionState) -> list[Effect]:
        role = self.role
        if not isinstance(role, Leader) or role.election != election or role.started:
            return []
        role.started = True
        records = [control_records.leader_change(self.local.id, role.voters.ids, role.granted)]
        if self.kraft_version > 0 and not self.voters.in_log:
            # The set that `format` wrote enters the log with the first leader, so that others learn of it.
            records.append(control_records.kraft_version(self.kraft_version))
            records.append(control_records.kraft_voters(role.voters))
        return [AppendControlRecords(epoch=role.epoch, records=tuple(records))]

    def on_appended(self, *, epoch: int, base_offset: int, end_offset: int) -> list[Effect]:
        """A batch of `epoch` was written at the end of the local log; it is not yet durable."""
        role = self.role
        assert isinstance(role, Leader), "only a leader appends"
        assert role.started, "only a durable leadership appends"
        assert role.epoch == epoch, "a leader appends in its own epoch"
        assert role.log_end_offset == base_offset < end_offset, "a log has no holes"
        role.log_end_offset = end_offset
        return []

    def on_flushed(self, end_offset: int) -> list[Effect]:
        """Everything before `end_offset` of the local log is durable."""
        role = self.role
        if not isinstance(role, Leader):
            return []
        assert end_offset <= role.log_end_offset, "only what was appended can be flushed"
        if end_offset <= role.end_offsets.get(self.local.id, -1):
            return []
        role.end_offsets[self.local.id] = end_offset
        first = role.high_watermark is None
        advanced = role.advance()
        if advanced is None:
            return []
        effects: list[Effect] = [HighWatermarkAdvanced(offset=advanced)]
        if first:
            effects.append(LeadershipEstablished(epoch=role.epoch))
        return effects

    def on_voters(self, offset: int, voters: VoterSet) -> None:
        """The log has a voter set at `offset`; it is in force from now on, committed or not."""
        self.voters.add(offset, voters)
        if isinstance(self.role, Leader):
            self.role.voters = voters

    def on_endpoints(self, endpoints: tuple[VoterEndpoint, ...]) -> list[Effect]:
        """This replica is to be found at `endpoints`; the voters are told if they know it elsewhere (KIP-853)."""
        role = self.role
        if not isinstance(role, Leader) or role.high_watermark is None or self.kraft_version == 0:
            return []
        voters = role.voters.with_endpoints(self.local, endpoints)
        # One change at a time, and none before this epoch has committed something.
        if voters == role.voters or self.voters.latest_offset >= role.high_watermark:
            return []
        return [AppendControlRecords(epoch=role.epoch, records=(control_records.kraft_voters(voters),))]

    def on_kraft_version(self, level: int) -> None:
        self.kraft_version = level

    def on_disk_failed(self) -> list[Effect]:
        """An append or a flush failed. What is in the log is unknown, so this replica leads no further."""
        return self._resign()

    def on_stop(self) -> list[Effect]:
        return self._resign()

    def _resign(self) -> list[Effect]:
        role = self.role
        if not isinstance(role, Leader):
            return []
        self.role = ResignedRole(epoch=role.epoch, local_id=self.local.id)
        return [Resigned(epoch=role.epoch)]

    def describe(self, now_ms: int) -> QuorumStatus | None:
        """What DescribeQuorum tells; only a leader can."""
        role = self.role
        if not isinstance(role, Leader):
            return None
        return QuorumStatus(
            leader_id=role.local_id,
            leader_epoch=role.epoch,
            high_watermark=-1 if role.high_watermark is None else role.high_watermark,
            voters=tuple(self._status(voter.key, role, now_ms) for voter in role.voters.voters),
            observers=(),
            nodes=role.voters.voters,
        )

    def _status(self, key: ReplicaKey, role: Leader, now_ms: int) -> ReplicaStatus:
        local = key.id == self.local.id
        return ReplicaStatus(
            replica=key,
            log_end_offset=role.log_end_offset if local else role.end_offsets.get(key.id, -1),
            last_fetch_ms=now_ms if local else -1,
            last_caught_up_ms=now_ms if local else -1,
        )
