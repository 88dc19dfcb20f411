"""What the machine sees of its log: offsets, epochs and snapshots, and never a record.

The two comparisons of logs are here: the leader's of a fetch with its own log, and the follower's of its log with what
the leader told it (KIP-595).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, SnapshotId


class RaftLog(Protocol):
    """The local log as it is now. The driver's; reading it blocks nothing."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last batch; if there is none, of the snapshot that the log starts with, or 0."""
        ...

    @property
    def earliest_snapshot(self) -> SnapshotId | None: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and where it ends."""
        ...

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """In bytes; None if there is no such snapshot."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The fetcher's log has what ours has not; they agree at most up to `end_offset`, the end of our `epoch`."""

    epoch: int
    end_offset: int


def compare(log: RaftLog, offset: int, last_epoch: int) -> Diverging | SnapshotId | None:
    """What keeps a log that ends at `offset` with `last_epoch` from being a prefix of ours: it diverges, or needs a
    snapshot. None if nothing does."""
    latest = log.latest_snapshot
    if latest == BOOTSTRAP_SNAPSHOT:
        latest = None
    if offset == 0 and latest is not None:
        # An empty log is filled quicker by a snapshot than record by record.
        return latest
    if offset == 0 and log.log_start_offset == 0:
        return None
    earliest = log.earliest_snapshot
    if latest is not None and earliest is not None:
        at_start = offset == log.log_start_offset and earliest.end_offset == offset
        if offset < log.log_start_offset or (at_start and last_epoch != earliest.epoch) or last_epoch < earliest.epoch:
            return latest
    epoch, end_offset = log.end_offset_for_epoch(last_epoch)
    if epoch != last_epoch or end_offset < offset:
        return Diverging(epoch=epoch, end_offset=end_offset)
    return None


def truncation_offset(log: RaftLog, diverging: Diverging) -> int:
    """Up to where a follower may keep its log, given what its leader said."""
    if diverging.epoch == 0:
        return min(diverging.end_offset, log.log_end_offset)
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    return min(end_offset, diverging.end_offset) if epoch == diverging.epoch else end_offset
