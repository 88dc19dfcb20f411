"""What one replica is in its quorum, and every way in which that changes.

Invariants: the epoch never falls; within an epoch neither the vote nor the known leader changes once it is set; and
each change of the two is in the effects, as a promise to be made durable, before anything that follows from it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.raft import control_records
from ottla.raft.config import RaftConfig
from ottla.raft.connections import Connections, Destination
from ottla.raft.effects import (
    AppendControlRecords,
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    LeadershipEstablished,
    PersistQuorumState,
    SendRequest,
)
from ottla.raft.effects import Resigned as ResignedEffect
from ottla.raft.election import NEVER_ELECTED, ElectionState
from ottla.raft.leader import Leader, ReplicaState
from ottla.raft.log_view import RaftLog
from ottla.raft.parked import ParkedFetches
from ottla.raft.requests import response_class
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached, Votes
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet

if TYPE_CHECKING:
    from ottla.wire.message import Message


class Quorum:
    def __init__(
        self,
        *,
        local: ReplicaKey,
        cluster_id: str,
        voters: VoterHistory,
        kraft_version: int,
        log: RaftLog,
        random: Random,
        config: RaftConfig,
        listener: str,
        endpoints: tuple[VoterEndpoint, ...],
        can_become_voter: bool,
    ) -> None:
        self.local = local
        self.cluster_id = cluster_id
        self.voters = voters
        self.log = log
        self.random = random
        self.config = config
        self.listener = listener
        self.endpoints = endpoints
        self.can_become_voter = can_become_voter
        self.role: Role = Unattached(epoch=0)
        self.high_watermark: int | None = None
        """What is known to be committed. It outlives roles: a new leader does not know yet what else is."""
        self.log_busy = False
        """Is the driver changing the log on a leader's behalf? Until it is done nothing is fetched, and nobody runs."""
        self.started = False
        self.stopping = False
        self.failed = False
        self.connections = Connections(
            request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms, random=random
        )
        self.parked = ParkedFetches()
        self._kraft_versions = [(-1, kraft_version)]
        self._effects: list[Effect] = []
        self._promised: ElectionState | None = None
        self._announced = LeaderChanged(leader_id=None, epoch=0, endpoint=None)

    # Effects.

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, to: Destination, request: Message, now_ms: int) -> None:
        self.emit(
            SendRequest(
                correlation_id=self.connections.on_sent(to.node_id, request, now_ms),
                node_id=to.node_id,
                host=to.host,
                port=to.port,
                request=request,
                response=response_class(request),
                timeout_ms=self.config.request_timeout_ms,
            )
        )

    def take_effects(self) -> list[Effect]:
        resigned = isinstance(self.role, Resigned)
        leader = LeaderChanged(
            leader_id=None if resigned else self.leader_id,
            epoch=self.epoch,
            endpoint=None if resigned else self.leader_endpoint,
        )
        if leader != self._announced:
            self._announced = leader
            self.emit(leader)
        effects, self._effects = self._effects, []
        return effects

    # What holds now.

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self.role.election.leader_id

    @property
    def has_remote_leader(self) -> bool:
        return self.leader_id is not None and self.leader_id != self.local.id

    @property
    def leader_endpoints(self) -> tuple[VoterEndpoint, ...]:
        match self.role:
            case Leader() | Resigned():
                return self.endpoints or self.voters.latest.endpoints(self.local.id)
            case Follower() | Prospective():
                return self.role.leader_endpoints
            case _:
                return ()

    @property
    def leader_endpoint(self) -> VoterEndpoint | None:
        return self.endpoint_among(self.leader_endpoints)

    def endpoint_among(self, endpoints: tuple[VoterEndpoint, ...]) -> VoterEndpoint | None:
        """The one of the quorum's listener; with none of that name, the first."""
        named = (endpoint for endpoint in endpoints if self.is_own_listener(endpoint))
        return next(named, endpoints[0] if endpoints else None)

    def is_own_listener(self, endpoint: VoterEndpoint) -> bool:
        """Listeners' names are the same in any case."""
        return endpoint.name.upper() == self.listener.upper()

    @property
    def is_voter(self) -> bool:
        return self.voters.latest.is_voter(self.local)

    @property
    def may_run(self) -> bool:
        """Is this replica a voter, or one that will have been none only once its removal is committed?

        Raft's rule for changes of the voters: the removal may be in no other log, or in one that is shorter elsewhere;
        then nobody but the removed can be elected, by the others, to commit it. It leaves when that is done (B15).
        """
        if self.is_voter:
            return True
        voters, committed = self.voters, self.high_watermark or 0
        return voters.in_log and voters.latest_offset >= committed and voters.previous.is_voter(self.local)

    @property
    def local_voter(self) -> Voter:
        return Voter(self.local, self.endpoints)

    @property
    def kraft_version(self) -> int:
        return self._kraft_versions[-1][1]

    @property
    def log_end(self) -> tuple[int, int]:
        """As logs are compared: the last epoch first, then the end offset (B19)."""
        return self.log.last_epoch, self.log.log_end_offset

    @property
    def must_flush(self) -> bool:
        """Does the leader rely on what this replica says it has? Of an observer too, if it may be made a voter.

        A deposed leader may fetch while what it appended itself is not flushed yet: its fetches count towards a commit
        only when they are past a record of the new epoch, and flushing that flushes all before it.
        """
        return self.is_voter or self.can_become_voter

    # What the log holds of the quorum itself.

    def on_voters(self, offset: int, voters: VoterSet) -> None:
        self.voters.add(offset, voters)
        if isinstance(self.role, Leader):
            self.role.appending_voters = False

    def on_kraft_version(self, offset: int, level: int) -> None:
        self._kraft_versions.append((offset, level))

    def on_log_truncated(self, end_offset: int) -> None:
        self.voters.truncate_to(end_offset)
        while len(self._kraft_versions) > 1 and self._kraft_versions[-1][0] >= end_offset:
            self._kraft_versions.pop()

    def on_log_restarted(self, end_offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        self.voters.restart(end_offset, voters)
        self._kraft_versions = [(end_offset - 1, kraft_version)]

    # The high watermark.

    def advance_high_watermark(self, offset: int) -> None:
        if self.high_watermark is None or offset > self.high_watermark:
            self.high_watermark = offset
            self.emit(HighWatermarkAdvanced(offset=offset))
        role = self.role
        if isinstance(role, Leader) and role.high_watermark is not None and not role.established:
            role.established = True
            self.emit(LeadershipEstablished(epoch=role.epoch))

    # Starting.

    def start(self, stored: ElectionState | None, now_ms: int) -> None:
        """Take up the role that the promises on disk leave."""
        self.started = True
        election = stored or NEVER_ELECTED
        self._promised = stored
        log, voters = self.log, self.voters.latest
        snapshot = log.latest_snapshot
        if snapshot is not None and snapshot.end_offset > 0:
            # Only what is committed gets into a snapshot.
            self.high_watermark = snapshot.end_offset
        unattached = Unattached(
            epoch=election.epoch, voted=election.voted, election_deadline_ms=self._election_deadline(now_ms)
        )
        if stored is None and log.log_end_offset == 0 and self.may_run:
            # A new cluster: there is no leader whose life could be disturbed. Chance keeps the voters apart.
            unattached.election_deadline_ms = now_ms + self.soon_ms()
        if log.last_epoch > election.epoch:
            # The quorum-state was lost, the log was not: its epochs were led by somebody.
            self.role = Unattached(epoch=log.last_epoch, election_deadline_ms=self._election_deadline(now_ms))
        elif election.leader_id == self.local.id:
            self.role = self._resigned(election.epoch, (), now_ms)
            # The others hear at once that the epoch is over, and run first; but they may be starting too.
            self.role.election_deadline_ms = now_ms + self.config.election_timeout_ms // 5 + self.soon_ms()
        elif election.leader_id is not None:
            endpoints = voters.endpoints(election.leader_id)
            if endpoints:
                self.role = self._follower(election.epoch, election.leader_id, endpoints, election.voted, now_ms)
                self.role.from_disk = True
            else:
                unattached.leader_id = election.leader_id
                self.role = unattached
        elif election.voted == self.local and self.may_run:
            self.role = Candidate(
                epoch=election.epoch,
                local=self.local,
                votes=Votes(voters, self.local),
                election_deadline_ms=self.election_deadline_from(now_ms),
            )
        else:
            self.role = unattached
        if self.is_voter and voters.is_only_voter(self.local) and not isinstance(self.role, Candidate):
            # Nobody else could lead, so there is nothing to wait for.
            self.to_prospective(now_ms)
        self._promise()

    # Moving from role to role.

    def to_unattached(self, epoch: int, now_ms: int, leader_id: int | None = None) -> None:
        old = self.role
        assert epoch > old.epoch or (epoch == old.epoch and isinstance(old, Prospective | Follower)), (
            f"no way to Unattached({epoch}) from {old}"
        )
        match old:
            case Candidate() | Resigned():
                deadline: int | None = old.election_deadline_ms
            case Prospective() if not old.votes.lost:
                deadline = old.election_deadline_ms
            case Unattached() if old.election_deadline_ms is not None:
                deadline = old.election_deadline_ms
            case _:
                deadline = self._election_deadline(now_ms)
        voted = old.election.voted if epoch == old.epoch else None
        self._enter(
            Unattached(
                epoch=epoch,
                voted=voted,
                leader_id=leader_id,
                election_deadline_ms=deadline if self.may_run else None,
            )
        )

    def add_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for `candidate` in this epoch."""
        role = self.role
        assert isinstance(role, Unattached | Prospective), f"{role} does not vote for others"
        assert candidate.id != self.local.id, "a vote for this replica itself is given as it becomes Candidate"
        if role.voted is None:
            # Who got the vote has as good a chance as this one, and shall have the time.
            role.voted = candidate
            role.election_deadline_ms = self.election_deadline_from(now_ms)
            if isinstance(role, Prospective):
                role.votes = Votes(self.voters.latest, self.local)
                self.connections.forget_all()
            self._promise()

    def to_follower(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...], now_ms: int) -> None:
        old = self.role
        assert leader_id != self.local.id, "no replica follows itself"
        assert endpoints, "a leader that cannot be reached cannot be followed"
        assert epoch > old.epoch or (epoch == old.epoch and not isinstance(old, Leader | Resigned)), (
            f"no way to Follower({epoch}) from {old}"
        )
        if epoch == old.epoch:
            assert old.election.leader_id in (None, leader_id), "one leader an epoch (B1)"
        voted = old.election.voted if epoch == old.epoch else None
        self._enter(self._follower(epoch, leader_id, endpoints, voted, now_ms))

    def to_prospective(self, now_ms: int) -> None:
        old = self.role
        assert self.may_run, "an observer does not run (B17)"
        assert not isinstance(old, Leader | Prospective), f"no way to Prospective from {old}"
        assert not isinstance(old, Resigned) or self.voters.latest.is_only_voter(self.local), (
            "who resigned lets others run first"
        )
        election = old.election
        self._enter(
            Prospective(
                epoch=old.epoch,
                votes=Votes(self.voters.latest, self.local),
                voted=election.voted,
                leader_id=election.leader_id,
                leader_endpoints=self.leader_endpoints,
                election_deadline_ms=self.election_deadline_from(now_ms),
            )
        )

    def to_candidate(self, now_ms: int) -> None:
        old = self.role
        assert self.may_run, "an observer does not run (B17)"
        assert isinstance(old, Prospective), f"no way to Candidate from {old}"
        self._enter(
            Candidate(
                epoch=old.epoch + 1,
                local=self.local,
                votes=Votes(self.voters.latest, self.local),
                election_deadline_ms=self.election_deadline_from(now_ms),
            )
        )

    def to_leader(self, now_ms: int) -> None:
        old = self.role
        assert isinstance(old, Candidate), f"no way to Leader from {old}"
        assert old.votes.won, "a leader has the votes of a majority"
        assert not self.log_busy, "a leader's log is its own"
        end, voters = self.log.log_end_offset, self.voters.latest
        leader = Leader(
            epoch=old.epoch,
            local=self.local,
            voters=voters,
            granted=old.votes.granting,
            epoch_start_offset=end,
            log_end_offset=end,
            check_quorum_timeout_ms=self.config.check_quorum_timeout_ms,
            check_quorum_deadline_ms=now_ms + self.config.check_quorum_timeout_ms,
            begin_quorum_epoch_ms=now_ms,
            replicas={voter.key.id: ReplicaState(voter.key) for voter in voters.voters},
        )
        self._enter(leader)
        records = [control_records.leader_change(self.local.id, voters.ids, leader.granted)]
        if self.kraft_version > 0 and not self.voters.in_log:
            # The set that `format` wrote enters the log with the first leader, so that others learn of it.
            records.append(control_records.kraft_version(self.kraft_version))
            records.append(control_records.kraft_voters(voters))
            leader.appending_voters = True
        self.emit(AppendControlRecords(epoch=leader.epoch, records=tuple(records)))

    def to_resigned(self, now_ms: int) -> None:
        old = self.role
        assert isinstance(old, Leader), f"no way to Resigned from {old}"
        self._enter(self._resigned(old.epoch, old.successors(), now_ms))

    def _enter(self, role: Role) -> None:
        old, self.role = self.role, role
        self.connections.forget_all()
        self._promise()
        if isinstance(old, Leader):
            self._on_leadership_lost(old)

    def _on_leadership_lost(self, old: Leader) -> None:
        from ottla.raft.voter_changes import abandon

        abandon(self, old)
        self.parked.refuse_all(self)
        self.emit(ResignedEffect(epoch=old.epoch))

    def _promise(self) -> None:
        election = self.role.election
        if election == self._promised:
            return
        self._promised = election
        if self._effects and isinstance(self._effects[-1], PersistQuorumState):
            # Nothing came of the last promise yet: the two are made as one.
            self._effects.pop()
        self.emit(PersistQuorumState(election=election))

    # Parts of roles.

    def _follower(
        self,
        epoch: int,
        leader_id: int,
        endpoints: tuple[VoterEndpoint, ...],
        voted: ReplicaKey | None,
        now_ms: int,
    ) -> Follower:
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoints=endpoints,
            voted=voted,
            fetch_deadline_ms=self.fetch_deadline_from(now_ms),
            update_voter_ms=now_ms + self.config.fetch_timeout_ms,
        )

    def _resigned(self, epoch: int, successors: tuple[ReplicaKey, ...], now_ms: int) -> Resigned:
        others = (voter for voter in self.voters.latest.ids if voter != self.local.id)
        return Resigned(
            epoch=epoch,
            local_id=self.local.id,
            election_deadline_ms=self.election_deadline_from(now_ms),
            successors=successors,
            unacknowledged=dict.fromkeys(others),
        )

    def soon_ms(self) -> int:
        """A short while, by chance: for a start, when there is likely no leader that could be disturbed."""
        return self.random.randrange(max(1, self.config.election_timeout_ms // 5))

    def fetch_deadline_from(self, now_ms: int) -> int:
        """At the latest after the timeout. Followers hear a leader for the last time at the same moment: if all of them
        gave it up together they would all become candidates, and none would win."""
        timeout = self.config.fetch_timeout_ms
        return now_ms + timeout - self.random.randrange(max(1, timeout // 5))

    def election_deadline_from(self, now_ms: int) -> int:
        timeout = self.config.election_timeout_ms
        return now_ms + timeout + (self.random.randrange(timeout) if timeout else 0)

    def _election_deadline(self, now_ms: int) -> int | None:
        return self.election_deadline_from(now_ms) if self.may_run else None
