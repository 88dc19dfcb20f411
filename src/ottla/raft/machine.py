"""The raft machine of one replica of the metadata log. See the package's docstring for how it is driven."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.raft import voter_changes
from ottla.raft.answering import Answers
from ottla.raft.checkpoint import SnapshotId
from ottla.raft.config import RaftConfig
from ottla.raft.effects import Effect, Token
from ottla.raft.election import ElectionState
from ottla.raft.hearing import Hearing
from ottla.raft.leader import Leader, ReplicaState
from ottla.raft.log_view import RaftLog
from ottla.raft.polling import Polling
from ottla.raft.quorum import Quorum
from ottla.raft.roles import Follower, Role
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet

if TYPE_CHECKING:
    from ottla.wire.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One row of DescribeQuorum. Times are on the machine's clock; -1 where there was no fetch."""

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
    def __init__(
        self,
        *,
        local: ReplicaKey,
        cluster_id: str,
        voters: VoterHistory,
        kraft_version: int,
        log: RaftLog,
        random: Random,
        config: RaftConfig | None = None,
        listener: str = "CONTROLLER",
        endpoints: tuple[VoterEndpoint, ...] = (),
        bootstrap: tuple[tuple[str, int], ...] = (),
        can_become_voter: bool = True,
    ) -> None:
        self._quorum = Quorum(
            local=local,
            cluster_id=cluster_id,
            voters=voters,
            kraft_version=kraft_version,
            log=log,
            random=random,
            config=config or RaftConfig(),
            listener=listener,
            endpoints=endpoints,
            can_become_voter=can_become_voter,
        )
        self._answers = Answers(self._quorum)
        self._hearing = Hearing(self._quorum)
        self._polling = Polling(self._quorum, self._answers, bootstrap)

    # What holds now.

    @property
    def local(self) -> ReplicaKey:
        return self._quorum.local

    @property
    def role(self) -> Role:
        return self._quorum.role

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leader_id(self) -> int | None:
        """As the quorum's answers name it: its own id also while it leads no more and nobody else does yet."""
        return self._quorum.leader_id

    @property
    def leader_endpoint(self) -> VoterEndpoint | None:
        return self._quorum.leader_endpoint

    @property
    def high_watermark(self) -> int | None:
        """Everything before is known here to be committed."""
        return self._quorum.high_watermark

    @property
    def voters(self) -> VoterHistory:
        return self._quorum.voters

    @property
    def kraft_version(self) -> int:
        return self._quorum.kraft_version

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def may_run(self) -> bool:
        """Is it a voter, or was it one until a removal that is not known to be committed?"""
        return self._quorum.may_run

    @property
    def must_flush(self) -> bool:
        """Does the leader rely on what this replica says it has? Of an observer too, if it may be made a voter."""
        return self._quorum.must_flush

    @property
    def may_stop(self) -> bool:
        """After `on_stop`: nobody needs this replica any more to find a new leader."""
        quorum = self._quorum
        return not quorum.may_run or quorum.voters.latest.is_only_voter(quorum.local) or quorum.has_remote_leader

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due. Every fact may move it."""
        return self._polling.deadline_ms

    def leads(self, epoch: int) -> bool:
        """May records be appended in `epoch`?"""
        return isinstance(self.role, Leader) and self.role.epoch == epoch

    # Facts of the driver.

    def on_start(self, *, stored: ElectionState | None, now_ms: int) -> list[Effect]:
        """The disk held `stored`; log, voter sets and versions are as they were found there."""
        self._quorum.start(stored, now_ms)
        return self._done(now_ms)

    def on_timer(self, now_ms: int) -> list[Effect]:
        return self._done(now_ms)

    def on_request(self, token: Token, request: Message, now_ms: int, *, version: int) -> list[Effect]:
        """The answer is an effect with `token`, now or later."""
        self._answers.on_request(token, request, version, now_ms)
        return self._done(now_ms)

    def on_cancelled(self, token: Token) -> None:
        """Whoever sent the request is gone."""
        self._quorum.parked.cancel(token)
        if isinstance(self.role, Leader):
            voter_changes.cancel(self.role, token)

    def on_response(self, correlation_id: int, response: Message, now_ms: int) -> list[Effect]:
        self._hearing.on_response(correlation_id, response, now_ms)
        return self._done(now_ms)

    def on_send_failed(self, correlation_id: int, now_ms: int, error: ErrorCode | None = None) -> list[Effect]:
        """No answer will come; `error` is why, if it is known."""
        self._hearing.on_failed(correlation_id, error, now_ms)
        return self._done(now_ms)

    def on_endpoints(self, endpoints: tuple[VoterEndpoint, ...], now_ms: int) -> list[Effect]:
        """This replica is to be found at `endpoints`; the voters are told if they know it elsewhere (KIP-853)."""
        self._quorum.endpoints = endpoints
        return self._done(now_ms)

    def on_resign(self, epoch: int, now_ms: int) -> list[Effect]:
        """The state machine cannot go on as the leader of `epoch`."""
        if isinstance(self.role, Leader) and self.role.epoch == epoch:
            self.role.resign_requested = True
        return self._done(now_ms)

    def on_disk_failed(self, now_ms: int) -> list[Effect]:
        """What is on the disk is unknown, so this replica leads no further, and promises nothing more."""
        self._quorum.failed = True
        return self._done(now_ms)

    def on_stop(self, now_ms: int) -> list[Effect]:
        """The replica is to go. As a leader it tells the others who of them should follow it; see `may_stop`."""
        self._quorum.stopping = True
        return self._done(now_ms)

    # Facts of the log.

    def on_appended(
        self, *, epoch: int, base_offset: int, end_offset: int, now_ms: int, idle: bool = False
    ) -> list[Effect]:
        """A batch of `epoch` was written at the end of the local log; it is not yet durable. If it is `idle`, nobody
        waits to hear that it is committed."""
        role = self.role
        assert isinstance(role, Leader), "only a leader appends"
        assert role.epoch == epoch, "a leader appends in its own epoch"
        assert role.log_end_offset == base_offset < end_offset, "a log has no holes"
        role.log_end_offset = end_offset
        if not idle:
            role.news_end = end_offset
        voters = self._quorum.voters
        if voters.latest is not role.voters:
            role.on_voters(voters.latest, now_ms)
            voter_changes.on_voters_appended(self._quorum, role, voters.latest_offset)
            self._answers.on_progress(now_ms)
        self._answers.answer_parked(now_ms)
        return self._done(now_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """Everything before `end_offset` of the local log is durable."""
        role = self.role
        if isinstance(role, Leader):
            assert end_offset <= role.log_end_offset, "only what was appended can be flushed"
            if role.on_flushed(end_offset):
                self._answers.on_progress(now_ms)
        return self._done(now_ms)

    def on_fetched_appended(self, end_offset: int, now_ms: int) -> list[Effect]:
        """What was fetched is in the log, which ends at `end_offset`, and durable if it must be."""
        assert self._quorum.log_busy, "nothing was to be appended"
        role = self.role
        if isinstance(role, Follower) and end_offset == role.fetched_from:
            # Nothing of it could be used.
            self._quorum.connections.back_off(role.leader_id, now_ms)
        if isinstance(role, Follower):
            self._hearing.advance_follower(role)
        return self._on_log_ready(now_ms)

    def on_truncated(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log ends at `end_offset`, and no longer holds the voter sets after it."""
        assert self._quorum.log_busy, "nothing was to be truncated"
        self._quorum.on_log_truncated(end_offset)
        return self._on_log_ready(now_ms)

    def on_snapshot_installed(
        self, snapshot_id: SnapshotId, *, voters: VoterSet | None, kraft_version: int, now_ms: int
    ) -> list[Effect]:
        """The log begins and ends with the snapshot, which holds `voters`."""
        assert self._quorum.log_busy, "no snapshot was to be installed"
        self._quorum.on_log_restarted(snapshot_id.end_offset, voters, kraft_version)
        self._quorum.advance_high_watermark(snapshot_id.end_offset)
        return self._on_log_ready(now_ms)

    def on_snapshot_rejected(self, snapshot_id: SnapshotId, now_ms: int) -> list[Effect]:
        """What was fetched is no snapshot; it is fetched again."""
        assert self._quorum.log_busy, "no snapshot was to be installed"
        if isinstance(self.role, Follower):
            self._quorum.connections.back_off(self.role.leader_id, now_ms)
        return self._on_log_ready(now_ms)

    def _on_log_ready(self, now_ms: int) -> list[Effect]:
        self._quorum.log_busy = False
        role = self.role
        if isinstance(role, Follower):
            # The fetch that brought the work is over only now.
            role.fetch_deadline_ms = max(role.fetch_deadline_ms, self._quorum.fetch_deadline_from(now_ms))
        return self._done(now_ms)

    def on_voters(self, offset: int, voters: VoterSet) -> None:
        """The log has a voter set at `offset`; it is in force from now on, committed or not (B14)."""
        self._quorum.on_voters(offset, voters)

    def on_kraft_version(self, offset: int, level: int) -> None:
        self._quorum.on_kraft_version(offset, level)

    def on_snapshot_taken(self, snapshot_id: SnapshotId) -> None:
        """This node has written a snapshot; what was in force before its end is not asked for again."""
        self._quorum.voters.forget_before(snapshot_id.end_offset)

    def _done(self, now_ms: int) -> list[Effect]:
        if self._quorum.started:
            self._polling.poll(now_ms)
        return self._quorum.take_effects()

    # What is asked of the leader here, and not over the wire.

    def upgrade_kraft_version(self, level: int, *, epoch: int, validate_only: bool, now_ms: int) -> list[Effect]:
        """Raise kraft.version from 0, by which voters get their directories and can be changed. Raises `KafkaError`."""
        if not self.leads(epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"this node does not lead epoch {epoch}")
        assert isinstance(self.role, Leader)
        voter_changes.upgrade(self._quorum, self.role, level, validate_only=validate_only)
        return self._done(now_ms)

    # What DescribeQuorum tells.

    def describe(self, now_ms: int) -> QuorumStatus | None:
        """Only a leader can."""
        role = self.role
        if not isinstance(role, Leader):
            return None
        role.forget_idle_observers(now_ms)
        return QuorumStatus(
            leader_id=role.local_id,
            leader_epoch=role.epoch,
            high_watermark=-1 if role.high_watermark is None else role.high_watermark,
            voters=tuple(self._status(state, role, now_ms) for state in role.replicas.values()),
            observers=tuple(self._status(state, role, now_ms) for state in role.observers.values()),
            nodes=role.voters.voters,
        )

    def _status(self, state: ReplicaState, role: Leader, now_ms: int) -> ReplicaStatus:
        if state.key.id == self.local.id:
            return ReplicaStatus(
                replica=state.key,
                log_end_offset=role.log_end_offset,
                last_fetch_ms=now_ms,
                last_caught_up_ms=now_ms,
            )
        return ReplicaStatus(
            replica=state.key,
            log_end_offset=-1 if state.end_offset is None else state.end_offset,
            last_fetch_ms=-1 if state.last_fetch_ms is None else state.last_fetch_ms,
            last_caught_up_ms=-1 if state.last_caught_up_ms is None else state.last_caught_up_ms,
        )
