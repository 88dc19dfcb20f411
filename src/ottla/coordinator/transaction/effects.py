"""What the transaction coordinator asks of its driver."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.outcome import Effect
from ottla.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers(Effect):
    """Write the end of a transaction to each of `partitions`, until each has it.

    Owed, for every partition: `on_markers_written`. Carried out when the decision is committed, never before.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int
