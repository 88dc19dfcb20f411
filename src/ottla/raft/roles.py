"""The roles of a replica of the metadata log, one class each. Only `machine.py` moves from one to another.

    Unattached  knows of no leader        -> Candidate
    Candidate   asks for votes            -> Leader, when a majority has granted them
    Leader      appends and commits       -> Resigned, when it is told to stop or its disk fails
    Resigned    led this epoch, and will  -> Candidate, in a later epoch
                not lead it again

A replica that was a leader when it stopped starts as Resigned, so that no epoch is ever led twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.raft.election import ElectionState
from ottla.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True, kw_only=True)
class Unattached:
    epoch: int
    voted: ReplicaKey | None = None

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, voted=self.voted)


@dataclass(slots=True, kw_only=True)
class Candidate:
    """Has voted for itself. The vote counts once it is durable."""

    epoch: int
    local: ReplicaKey
    voters: VoterSet
    granted: set[int] = field(default_factory=set)

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, voted=self.local)

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.voters.majority


@dataclass(slots=True, kw_only=True)
class Leader:
    """Counts how far each voter is, and commits what a majority has, from its own epoch on.

    Invariant: `high_watermark` never falls, and is None until a record of this epoch is on a majority: an
    older record could be on a majority and still be overwritten.
    """

    epoch: int
    local_id: int
    voters: VoterSet
    granted: tuple[int, ...]
    epoch_start_offset: int
    log_end_offset: int
    """Exclusive, of what was appended; not all of it is durable."""

    started: bool = False
    """Is the leadership durable, and the epoch's first batch appended?"""

    end_offsets: dict[int, int] = field(default_factory=dict)
    """By voter, what is durable there."""

    high_watermark: int | None = None

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.local_id)

    def advance(self) -> int | None:
        """The high watermark, if it moved."""
        committed = self.voters.committed(self.end_offsets)
        if committed <= self.epoch_start_offset or (
            self.high_watermark is not None and committed <= self.high_watermark
        ):
            return None
        self.high_watermark = committed
        return committed


@dataclass(slots=True, kw_only=True)
class Resigned:
    epoch: int
    local_id: int

    @property
    def election(self) -> ElectionState:
        return ElectionState(epoch=self.epoch, leader_id=self.local_id)


Role = Unattached | Candidate | Leader | Resigned
