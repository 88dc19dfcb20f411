"""The roles of a replica of the metadata log, one class each. Only `quorum.py` moves from one to another.

    Unattached   knows an epoch and perhaps   -> Prospective, when its election timeout ends
                 its vote in it, and fetches  -> Follower, when it hears of the epoch's leader
                 from anybody to find a leader
    Prospective  asks who would vote for it   -> Candidate, when a majority would
                 (KIP-996)                    -> Follower or Unattached, when too few would or nobody answers
    Candidate    has voted for itself in a    -> Leader, when a majority has
                 new epoch and asks for votes -> Prospective, when its election timeout ends
    Leader       appends and commits          -> Resigned, when a majority does not fetch, when it is voted out of the
                                                 quorum, told to stop, or its disk fails
    Follower     fetches from a leader        -> Prospective, when its fetches fail for the fetch timeout; if it is
                                                 no voter, Unattached
    Resigned     led this epoch, and will     -> Unattached in the next epoch, when its election timeout ends
                 not lead it again

From any role a higher epoch leads to Unattached, or to Follower if its leader is known. A replica that was a leader
when it stopped starts as Resigned, so that no epoch is ever led twice. An observer, which is no voter, is Unattached or
Follower; so is a voter that does not know yet that it is one, and therefore observers answer vote requests. A voter
whose removal is not committed yet is no observer: see `Quorum.may_run`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.raft.checkpoint import SnapshotId
from ottla.raft.election import ElectionState
from ottla.raft.leader import Leader
from ottla.raft.voters import ReplicaKey, VoterEndpoint, VoterSet

__all__ = ["Candidate", "Follower", "Leader", "Prospective", "Resigned", "Role", "SnapshotFetch", "Unattached", "Votes"]


class Votes:
    """Who of the voters has granted and who has refused. They are those of the moment the voting began."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: VoterSet, local: ReplicaKey) -> None:
        self._voters = voters
        self._answers: dict[int, bool] = {local.id: True}

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id in self._voters.ids:
            self._answers[voter_id] = granted

    def forget_refusal(self, voter_id: int) -> None:
        """The voter may be asked again."""
        if self._answers.get(voter_id) is False:
            del self._answers[voter_id]

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(voter for voter in self._voters.ids if self._answers.get(voter))

    @property
    def unrecorded(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self._voters.voters if voter.key.id not in self._answers)

    @property
    def won(self) -> bool:
        return len(self.granting) >= self._voters.majority

    @property
    def lost(self) -> bool:
        """Too few are left, even if all of them granted."""
        return len(self.granting) + len(self.unrecorded) < self._voters.majority


def _same_vote(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """A vote that was given to an id alone holds for that id in any directory."""
    return voted.id == candidate.id and (voted.has_no_directory or voted.directory_id == candidate.directory_id)


def _uncommitted_may_grant(
    leader_id: int | None, voted: ReplicaKey | None, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool
) -> bool:
    if pre_vote:
        return up_to_date
    if voted is not None:
        return _same_vote(voted, candidate)
    return leader_id is None and up_to_date


@dataclass(slots=True, kw_only=True)
class Unattached:
    epoch: int
    voted: ReplicaKey | None = None
    leader_id: int | None = None
    """Known where its endpoints are not."""

    election_deadline_ms: int | None = None
    """None for an observer, which never runs."""

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _uncommitted_may_grant(self.leader_id, self.voted, candidate, up_to_date, pre_vote)


@dataclass(slots=True, kw_only=True)
class Prospective:
    """Asks without a promise: its epoch does not rise before a majority would vote for it (B16)."""

    epoch: int
    votes: Votes
    voted: ReplicaKey | None
    leader_id: int | None
    leader_endpoints: tuple[VoterEndpoint, ...]
    election_deadline_ms: int

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _uncommitted_may_grant(self.leader_id, self.voted, candidate, up_to_date, pre_vote)


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Has voted for itself, and that is durable before anybody is asked."""

    epoch: int
    local: ReplicaKey
    votes: Votes
    election_deadline_ms: int

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, voted=self.local)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


@dataclass(slots=True, kw_only=True)
class SnapshotFetch:
    """How much of a snapshot is here."""

    snapshot_id: SnapshotId
    position: int = 0


@dataclass(slots=True, kw_only=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: tuple[VoterEndpoint, ...]
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    update_voter_ms: int
    """When to look next whether the leader should be told of us (KIP-853)."""

    has_fetched: bool = False
    """Has this leader answered a fetch, and is there since? Then it lives, and nobody needs to run against it."""

    unanswered: int = 0
    """Fetches in a row to which no answer came from it."""

    from_disk: bool = False
    """Is the leader one that was known before the start, and not heard of since?"""

    has_updated_leader: bool = False
    fetched_from: int = -1
    """Where the log ended when the last records came."""

    snapshot: SnapshotFetch | None = None
    leader_high_watermark: int = -1

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.leader_id, voted=self.voted)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date and not self.has_fetched


@dataclass(slots=True, kw_only=True)
class Resigned:
    epoch: int
    local_id: int
    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...] = ()
    """The other voters, the furthest first."""

    unacknowledged: dict[int, None] = field(default_factory=dict)
    """The voters that have not heard yet that the epoch is over."""

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.local_id)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned
