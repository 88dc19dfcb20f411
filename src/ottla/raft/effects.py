"""What the raft machine asks of its driver, or tells the world. The package's docstring says in which order."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.raft.checkpoint import SnapshotId
from ottla.raft.control_records import ControlRecord
from ottla.raft.election import ElectionState
from ottla.raft.voters import VoterEndpoint

if TYPE_CHECKING:
    from ottla.wire.message import Message
    from ottla.wire.messages.fetch_response import FetchResponse
    from ottla.wire.messages.fetch_snapshot_response import FetchSnapshotResponse

Token = Hashable
"""What the driver knows a request by that waits for its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistQuorumState:
    """Make `election` durable. Nothing that comes after may happen before."""

    election: ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """Owed: `on_response` or `on_send_failed` with this `correlation_id`."""

    correlation_id: int
    node_id: int
    """Below -1 for a bootstrap server, whose id is not known."""

    host: str
    port: int
    request: Message
    response: type[Message]
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond:
    token: Token
    response: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondWithRecords:
    """As `Respond`, with the batches of the local log from `offset` on, committed or not, about `max_bytes` of them."""

    token: Token
    response: FetchResponse
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RespondWithSnapshot:
    """As `Respond`, with at most `max_bytes` of the snapshot's file, from `position` on."""

    token: Token
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendControlRecords:
    """Append one control batch in `epoch`; not if this replica leads that epoch no more. Owed: `on_appended`."""

    epoch: int
    records: tuple[ControlRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFetched:
    """Append what the leader of `leader_epoch` sent. Owed: `on_fetched_appended`."""

    records: bytes | memoryview
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """The log shall end at `offset`. Owed: `on_truncated`."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSnapshotChunk:
    """The part of a snapshot that begins at `position` of its file; at 0 the file is begun anew."""

    snapshot_id: SnapshotId
    position: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """The snapshot is there whole: check it, and let the log begin and end with it. Owed: `on_snapshot_installed`, or
    `on_snapshot_rejected` if it is damaged."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkAdvanced:
    """Everything before `offset` is committed."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """`leader_id` leads `epoch` and is to be found at `endpoint`, as far as this replica knows."""

    leader_id: int | None
    epoch: int
    endpoint: VoterEndpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipEstablished:
    """This node leads `epoch`, and all that was in its log before is committed: the state machine may act."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """This node leads no more; what it appended in `epoch` beyond the high watermark may or may not survive."""

    epoch: int


Effect = (
    PersistQuorumState
    | SendRequest
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | AppendControlRecords
    | AppendFetched
    | TruncateTo
    | WriteSnapshotChunk
    | InstallSnapshot
    | HighWatermarkAdvanced
    | LeaderChanged
    | LeadershipEstablished
    | Resigned
)
