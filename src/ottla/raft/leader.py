"""The leader's role: how far every replica is, what is committed, and whether a majority still listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.raft.election import ElectionState
from ottla.raft.voters import ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from ottla.raft.voter_changes import PendingChange

OBSERVER_SESSION_TIMEOUT_MS = 300_000
_CAUGHT_UP_MAX_AGE_MS = 3_600_000


@dataclass(slots=True)
class ReplicaState:
    """What the leader knows of one replica. Times are None until there was a fetch."""

    key: ReplicaKey
    end_offset: int | None = None
    """Everything before is durable there."""

    last_fetch_ms: int | None = None
    last_fetch_leader_end: int = 0
    """Our log end at its last fetch."""

    last_caught_up_ms: int | None = None

    def on_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and offset >= self.last_fetch_leader_end > 0:
            # It has all that there was when it asked the last time.
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = leader_end
        self.end_offset = offset


@dataclass(slots=True, kw_only=True)
class Leader:
    """Counts how far each voter is, and commits what a majority has, from its own epoch on.

    Invariant: `high_watermark` never falls, and is None until a record of this epoch is on a majority: an
    older record could be on a majority and still be overwritten.
    """

    epoch: int
    local: ReplicaKey
    voters: VoterSet
    granted: tuple[int, ...]
    epoch_start_offset: int
    log_end_offset: int
    """Exclusive, of what was appended; not all of it is durable."""

    check_quorum_timeout_ms: int
    check_quorum_deadline_ms: int
    begin_quorum_epoch_ms: int
    """When to look next for voters that do not fetch."""

    replicas: dict[int, ReplicaState] = field(default_factory=dict)
    """The voters, this one among them if it is one."""

    observers: dict[ReplicaKey, ReplicaState] = field(default_factory=dict)
    fetched: dict[int, None] = field(default_factory=dict)
    """The other voters that have fetched since the check of the quorum began anew."""

    high_watermark: int | None = None
    news_end: int = 0
    """Where the last batch ends of which somebody may wait to hear that it is committed."""

    established: bool = False
    resign_requested: bool = False
    change: PendingChange | None = None
    appending_voters: bool = False
    """A voter set is on its way into the log, and not there yet."""

    updated_voters: dict[int, Voter] = field(default_factory=dict)
    """By id, who told us of itself while the quorum knows no directories (kraft.version 0)."""

    @property
    def local_id(self) -> int:
        return self.local.id

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.local.id)

    def may_grant(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return False

    # Voters come and go.

    def on_voters(self, voters: VoterSet, now_ms: int) -> None:
        """`voters` is in force. Those that were heard of as observers keep what is known of them, and the reverse."""
        if voters.ids != self.voters.ids:
            # Who was alone had no quorum to check; and the new set gets the whole time.
            self._restart_check(now_ms)
        known = {state.key: state for state in (*self.replicas.values(), *self.observers.values())}
        self.voters = voters
        self.replicas = {}
        for voter in voters.voters:
            found = next(
                (state for key, state in known.items() if voters.is_voter(key) and key.id == voter.key.id), None
            )
            if found is None:
                found = ReplicaState(voter.key)
            else:
                known.pop(found.key)
            self.replicas[voter.key.id] = found
        known.pop(self.local, None)
        # A voter that was known by its id alone is heard of by its directory as well.
        self.observers = {key: state for key, state in known.items() if not key.has_no_directory}

    # The local log.

    def on_flushed(self, end_offset: int) -> bool:
        """Did the local replica get further?"""
        state = self.replicas.get(self.local.id)
        if state is None or (state.end_offset is not None and end_offset <= state.end_offset):
            return False
        state.end_offset = end_offset
        return True

    # Fetches.

    def replica(self, key: ReplicaKey) -> ReplicaState | None:
        """The voter with this key, or None."""
        state = self.replicas.get(key.id)
        return state if state is not None and self.voters.is_voter(key) else None

    def on_fetch(self, key: ReplicaKey, offset: int, now_ms: int) -> None:
        """`key` has durably all that is before `offset`, and asks for what follows."""
        state = self.replica(key)
        if state is None:
            state = self.observers.setdefault(key, ReplicaState(key))
        state.on_fetch(offset, self.log_end_offset, now_ms)
        self.on_heard(key, now_ms)

    def on_heard(self, key: ReplicaKey, now_ms: int) -> None:
        """`key` fetches, be it records or a snapshot. A majority that does keeps the leader in office."""
        if self.replica(key) is None:
            return
        self.fetched[key.id] = None
        majority = self.voters.majority - (1 if self.voters.is_voter(self.local) else 0)
        if len(self.fetched) >= majority:
            self._restart_check(now_ms)

    def _restart_check(self, now_ms: int) -> None:
        self.fetched.clear()
        self.check_quorum_deadline_ms = now_ms + self.check_quorum_timeout_ms

    def check_deadline_ms(self) -> int | None:
        """When the quorum is lost unless more is heard of it; None where there is nobody to hear of."""
        return None if self.voters.is_only_voter(self.local) else self.check_quorum_deadline_ms

    def unheard(self, interval_ms: int, now_ms: int) -> tuple[ReplicaKey, ...]:
        """The other voters that have not fetched for `interval_ms`: they may not know who leads."""
        return tuple(
            state.key
            for state in self.replicas.values()
            if state.key.id != self.local.id
            and (state.last_fetch_ms is None or state.last_fetch_ms + interval_ms <= now_ms)
        )

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the furthest first."""
        others = [state for state in self.replicas.values() if state.key.id != self.local.id]
        return tuple(
            state.key
            for state in sorted(others, key=lambda s: -1 if s.end_offset is None else s.end_offset, reverse=True)
        )

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Has the observer once had all that there was, and been heard of lately?"""
        state = self.observers.get(key)
        return (
            state is not None
            and state.last_caught_up_ms is not None
            and state.last_fetch_ms is not None
            and state.last_fetch_ms > now_ms - _CAUGHT_UP_MAX_AGE_MS
        )

    def forget_idle_observers(self, now_ms: int) -> None:
        for key, state in list(self.observers.items()):
            if state.last_fetch_ms is None or state.last_fetch_ms + OBSERVER_SESSION_TIMEOUT_MS <= now_ms:
                del self.observers[key]

    # Committing.

    def has_news_for(self, known: int) -> bool:
        """Is it worth an answer of its own to tell who knows of the high watermark `known` that it is higher?

        Not where nothing but idle records lie between: they come every half second, and the next one tells it.
        """
        return known < min(self.high_watermark or -1, self.news_end)

    def advance(self) -> int | None:
        """The high watermark, if it moved."""
        ends = {voter: state.end_offset for voter, state in self.replicas.items() if state.end_offset is not None}
        committed = self.voters.committed(ends)
        if committed <= self.epoch_start_offset or (
            self.high_watermark is not None and committed <= self.high_watermark
        ):
            return None
        self.high_watermark = committed
        return committed
