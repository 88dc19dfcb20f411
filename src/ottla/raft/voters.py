"""Who votes (KIP-853): replicas are known by id and by the directory that their log lies in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.model import ZERO_UUID, Uuid, uuid_to_text

if TYPE_CHECKING:
    from ottla.wire.messages.voters_record import VotersRecord


class ReplicaKey(NamedTuple):
    """A disk that was lost comes back with another directory id, and so as another replica."""

    id: int
    directory_id: Uuid = ZERO_UUID
    """All zero where the quorum is older than directory ids (kraft.version 0)."""

    @property
    def has_no_directory(self) -> bool:
        return self.directory_id == ZERO_UUID

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == ZERO_UUID else f"{self.id}:{uuid_to_text(self.directory_id)}"


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    kraft_version_min: int = 0
    kraft_version_max: int = 1


class VoterSet:
    """An immutable set of voters, in the order of their ids."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}

    @property
    def voters(self) -> tuple[Voter, ...]:
        return tuple(self._voters.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._voters)

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(voter.key) for voter in self.voters)})"

    def is_voter(self, key: ReplicaKey) -> bool:
        """The directory counts only where the set knows it: a quorum by configuration does not."""
        voter = self._voters.get(key.id)
        return voter is not None and voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and self.is_voter(key)

    def get(self, voter_id: int) -> Voter | None:
        return self._voters.get(voter_id)

    def endpoints(self, voter_id: int) -> tuple[VoterEndpoint, ...]:
        voter = self._voters.get(voter_id)
        return () if voter is None else voter.endpoints

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    def committed(self, end_offsets: dict[int, int]) -> int:
        """The offset that a majority of the voters has reached, given each one's end; unheard ones are at -1."""
        ends = sorted((end_offsets.get(voter, -1) for voter in self._voters), reverse=True)
        return ends[self.majority - 1]

    def with_voter(self, voter: Voter) -> VoterSet | None:
        """The set and `voter`; None if its id is taken."""
        return None if voter.key.id in self._voters else VoterSet((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet | None:
        """The others; None if `key` is not in the set, or nobody would be left."""
        if len(self._voters) <= 1 or not self.is_voter(key):
            return None
        return VoterSet(voter for voter in self.voters if voter.key.id != key.id)

    def with_updated(self, voter: Voter) -> VoterSet | None:
        """The same voters, with what `voter` says of itself; None if it is not in the set."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet(voter if v.key.id == voter.key.id else v for v in self.voters)

    def to_record(self) -> VotersRecord:
        from ottla.wire.messages.voters_record import Endpoint, KRaftVersionFeature, VotersRecord
        from ottla.wire.messages.voters_record import Voter as VoterData

        return VotersRecord(
            version=0,
            voters=[
                VoterData(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
                    ),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(VoterEndpoint(e.name, e.host, e.port) for e in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )


class VoterHistory:
    """Every voter set in the log with its offset. The latest is in force, committed or not."""

    __slots__ = ("_entries", "_start")

    def __init__(self, start: VoterSet) -> None:
        """`start` is from the configuration, or from the snapshot that `format` wrote."""
        self._start = start
        self._entries: list[tuple[int, VoterSet]] = []

    @property
    def latest(self) -> VoterSet:
        return self._entries[-1][1] if self._entries else self._start

    @property
    def previous(self) -> VoterSet:
        """The set that the latest replaced; it comes back if that is truncated."""
        return self._entries[-2][1] if len(self._entries) > 1 else self._start

    @property
    def in_log(self) -> bool:
        """Does the log, or a snapshot of it, hold the set in force?"""
        return bool(self._entries)

    @property
    def latest_offset(self) -> int:
        """Where in the log the set in force is; -1 if it is not there."""
        return self._entries[-1][0] if self._entries else -1

    def add(self, offset: int, voters: VoterSet) -> None:
        assert not self._entries or self._entries[-1][0] < offset, "voter sets come in the order of the log"
        self._entries.append((offset, voters))

    def truncate_to(self, end_offset: int) -> None:
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def restart(self, end_offset: int, voters: VoterSet | None) -> None:
        """The log begins at `end_offset`, with a snapshot that holds `voters`."""
        self._entries = [] if voters is None else [(end_offset - 1, voters)]

    def forget_before(self, offset: int) -> None:
        """Nobody will ask for a set that was in force before `offset`."""
        while len(self._entries) > 1 and self._entries[1][0] < offset:
            self._entries.pop(0)

    def at(self, offset: int) -> VoterSet:
        """The set in force for a log that ends before `offset`."""
        found = self._start
        for at, voters in self._entries:
            if at >= offset:
                break
            found = voters
        return found
