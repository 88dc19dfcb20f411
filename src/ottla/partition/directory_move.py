"""When a replica may move to the log directory that its copy is in: the order of KIP-858."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MoveStep(Enum):
    """What is to be done with a copy that holds all that the log does."""

    PROMISE = "tell the controller where the replica is about to be"
    WAIT = "the metadata does not say so yet"
    PREPARE = "put the copy and the checkpoints of its directory on the disk; then `on_prepared`"
    TAKE_OVER = "make the copy the log, before anything is appended"


@dataclass(slots=True, kw_only=True)
class DirectoryMove:
    """Copying → promised, when the copy has caught up for the first time → prepared, when the metadata has it → over.

    The controller comes first: were it told last, a disk that fails in between would take down the wrong partitions, or
    none. Pure; driven by `broker/upkeep/directory_moves`, which goes on copying all the while.
    """

    promised: bool = False
    prepared_start: int | None = None
    """The log start that the checkpoints of the new directory hold, once they were written."""

    def on_caught_up(self, *, assigned: bool, log_start_offset: int) -> MoveStep:
        """The copy ends where the log does. `assigned`: is the replica in the new directory, by the metadata?"""
        if not assigned:
            if self.promised:
                return MoveStep.WAIT
            self.promised = True
            return MoveStep.PROMISE
        self.promised = True
        if self.prepared_start != log_start_offset:
            return MoveStep.PREPARE
        return MoveStep.TAKE_OVER

    def on_prepared(self, log_start_offset: int) -> None:
        """The copy is on the disk, and so is its log start as it was before that began."""
        self.prepared_start = log_start_offset
