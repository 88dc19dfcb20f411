"""What clients asked and what they were told, with times: the raw material of the checks at the end.

Every value that is written is unique. An operation that was not answered, or whose answer leaves it open, may have
happened (`INFO`); only a refusal before anything was appended is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.model import TopicPartition


class Outcome(Enum):
    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    """Certainly not appended, by any of its attempts."""
    INFO = "unknown"


@dataclass(slots=True, kw_only=True)
class Send:
    """One batch, from the first attempt to the last answer."""

    client: str
    place: TopicPartition
    values: tuple[bytes, ...]
    acks: int
    idempotent: bool
    invoked: float
    completed: float = -1.0
    outcome: Outcome = Outcome.PENDING
    offset: int = -1
    """Of the first value."""
    uncertain_attempts: int = 0
    """Attempts, before the one that was answered, that may have been appended as well."""
    error: int = 0
    error_text: str = ""
    transaction: Txn | None = None
    """Of which it is a part, if it is."""


@dataclass(slots=True, kw_only=True)
class Txn:
    """One transaction, from its first batch to what its producer was told of its end.

    `OK` is committed, `FAILED` is aborted for certain: nobody asked for a commit, or the abort was acknowledged.
    """

    client: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    began: float
    ended: float = -1.0
    outcome: Outcome = Outcome.PENDING
    sends: list[Send] = field(default_factory=list)
    sources: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Where the records lie of which it made others, in the order of those; a value may be there twice."""
    polls: list[Poll] = field(default_factory=list)
    """What it read while it was open."""


class Read(NamedTuple):
    """One record that a consumer was given."""

    offset: int
    value: bytes
    """Empty for a tombstone."""
    leader_epoch: int
    key: bytes | None = None


@dataclass(slots=True, kw_only=True)
class Poll:
    """One answer to a consumer for one partition."""

    client: str
    place: TopicPartition
    position: int
    invoked: float
    completed: float
    node: int
    high_watermark: int
    reads: list[Read]
    log_start: int
    read_committed: bool = False
    next: int = -1
    """Where its reader goes on."""
    aborted: tuple[tuple[int, int], ...] = ()
    """The transactions that it was told to pass over: producer id and first offset."""


@dataclass(slots=True, kw_only=True)
class OutOfRange:
    """A consumer was told that there is nothing where it had got to."""

    client: str
    place: TopicPartition
    position: int
    at: float
    node: int


@dataclass(slots=True, kw_only=True)
class EndOffset:
    """An answer to ListOffsets for the latest offset."""

    client: str
    place: TopicPartition
    invoked: float
    completed: float
    offset: int
    leader_epoch: int
    node: int


class Identity(NamedTuple):
    """A producer id and epoch that the coordinator of a transactional id has handed out."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    invoked: float
    completed: float


@dataclass(slots=True, kw_only=True)
class Commit:
    """Offsets that a group committed, or tried to."""

    group_id: str
    name: str
    """Of this commit alone; in its metadata."""
    offsets: dict[TopicPartition, int]
    invoked: float
    completed: float = -1.0
    outcome: Outcome = Outcome.PENDING
    transaction: Txn | None = None
    """Of which it is a part, if it is."""


@dataclass(slots=True, kw_only=True)
class Look:
    """A question for the offsets of a group."""

    group_id: str
    topic: str
    stable: bool
    """Were only those asked for that no open transaction may change?"""
    node: str
    invoked: float
    completed: float = -1.0
    found: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Of each partition that was answered: the offset, and the name of the commit."""


class Owned(NamedTuple):
    """What a member of a group was told to have."""

    group_id: str
    member_id: str
    epoch: int
    partitions: frozenset[int]


class Belief(NamedTuple):
    """What a member takes for its own, until it says or hears otherwise."""

    member_id: str
    epoch: int
    """Or the generation in which it was told."""
    partitions: frozenset[int]
    is_static: bool


class Plan(NamedTuple):
    """What the leader of a generation of a classic group sends for each member."""

    group_id: str
    generation: int
    leader: str
    partitions: dict[str, frozenset[int]]


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    inner: list[Poll] = field(default_factory=list)
    """Those of transactions, while they were open."""
    out_of_range: list[OutOfRange] = field(default_factory=list)
    end_offsets: list[EndOffset] = field(default_factory=list)
    final: dict[TopicPartition, list[Read]] = field(default_factory=dict)
    """What fresh consumers read, from the beginning, when everything was healed."""
    final_start: dict[TopicPartition, int] = field(default_factory=dict)
    final_committed: dict[TopicPartition, list[Read]] = field(default_factory=dict)
    """The same, of those who read only what is committed."""
    transactions: list[Txn] = field(default_factory=list)
    identities: list[Identity] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    beliefs: dict[tuple[str, str], Belief] = field(default_factory=dict)
    """Of each group and client, as long as it takes anything for its own."""
    belief_changes: int = 0
    plans: list[Plan] = field(default_factory=list)
    final_offsets: dict[str, dict[int, tuple[int, str]]] = field(default_factory=dict)
    """What each group has committed in the end: partition → offset and name of the commit."""
    follower_polls: int = 0
    """Answers by replicas that a leader had pointed a consumer to (KIP-392)."""
    aborts: set[tuple[int, int]] = field(default_factory=set)
    """Producer ids and epochs for which somebody asked for an abort."""
    by_version_1: int = 0
    """Transactions that were begun by the rules of version 1."""
    resent: int = 0
    """Batches that were sent again after their successors."""
    corrupt: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Batches that came with a checksum that is not theirs, each with the node that sent it, until a checker looks."""
    unexpected: list[str] = field(default_factory=list)
    """Answers that no client should ever get."""

    @property
    def operations(self) -> int:
        return len(self.sends) + len(self.polls) + len(self.end_offsets) + len(self.transactions) + len(self.commits)
