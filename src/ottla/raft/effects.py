"""What the raft machine asks of its driver, or tells the world."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.raft.control_records import ControlRecord
from ottla.raft.election import ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistQuorumState:
    """Make `election` durable, then tell the machine (`on_quorum_state_persisted`)."""

    election: ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendControlRecords:
    """Append one control batch in `epoch`, before anything else of that epoch."""

    epoch: int
    records: tuple[ControlRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkAdvanced:
    """Everything before `offset` is committed."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipEstablished:
    """This node leads `epoch`, and all that was in its log before is committed: the state machine may act."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """This node leads no more; what it appended in `epoch` beyond the high watermark may or may not survive."""

    epoch: int


Effect = PersistQuorumState | AppendControlRecords | HighWatermarkAdvanced | LeadershipEstablished | Resigned
