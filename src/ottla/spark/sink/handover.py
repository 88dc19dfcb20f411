"""What the driver hands to the tasks of a batch, and what they hand back: all that the sink's processes know of one
another, since Spark carries nothing else between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.spark.sink.two_phase import Claim, Staged


class SinkError(RuntimeError):
    """The batch could not be written, or not whole; the message is what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSink:
    """What a task must know to write for this sink."""

    sink: str
    claim: Claim
    forsaken: bool
    decided: tuple[str, int] | None
    """The query and the batch of the newest decision, whose transactions are all committed."""

    def has_written(self, query_id: str, batch_id: int) -> bool:
        """Is this batch in the topics? Raises `SinkError` if a later one of the same query is: a query that goes on
        repeats its last batch and no other, so nobody knows what would be left out."""
        if self.decided is None or self.decided[0] != query_id:
            return False
        if batch_id < self.decided[1]:
            raise SinkError(
                f"Batch {batch_id} comes to the sink {self.sink}, which has written batch {self.decided[1]} already: "
                f"the query goes on from a checkpoint that is not its newest, or counts anew. Bring the newest "
                f"checkpoint back, or choose another sinkId."
            )
        return batch_id == self.decided[1]

    @property
    def next_batch_id(self) -> int:
        """For writes that are not counted by anybody else."""
        return 0 if self.decided is None else self.decided[1] + 1


class TaskResult(NamedTuple):
    """What one task has done."""

    opened: OpenSink
    query_id: str
    batch_id: int
    skipped: bool
    """Was the batch decided and committed before?"""
    staged: Staged | None
    """None if there was no row."""
    repeated: bool = False
    """May there have been another attempt at the task?"""
