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
        """Is this batch, or a later one of the same query, in the topics?"""
        return self.decided is not None and self.decided[0] == query_id and batch_id <= self.decided[1]

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
