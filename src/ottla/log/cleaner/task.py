"""What is told to whoever compacts a log, and what is heard from them: plain values, for it may be another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.log.txn_index import AbortedTxn


class SegmentFile(NamedTuple):
    base_offset: int
    size: int


class LastOfProducer(NamedTuple):
    """The last that an active producer wrote, which must stay for its next batch to be judged by."""

    data_offset: int
    """The last offset of its last batch; -1 if a marker came after it, with a new epoch."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningSettings:
    """How compaction works, whatever the log."""

    map_bytes: int = 128 << 20
    map_load_factor: float = 0.9
    io_bytes: int = 512 << 10
    """For reading and writing together."""
    bytes_per_second: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningTask:
    """One pass over one log."""

    directory: str
    segments: tuple[SegmentFile, ...]
    """All that may be touched, oldest first."""
    first_dirty_offset: int
    end_offset: int
    """Where the last of the segments ends."""
    aborted: tuple[AbortedTxn, ...]
    """Every aborted transaction that overlaps the segments, in the order of their first offsets."""
    last_of_producers: dict[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    secret: bytes = field(repr=False)
    settings: CleaningSettings

    @property
    def new_horizon(self) -> int:
        """When tombstones and markers may go that this pass is the first to find removable (KIP-534)."""
        return self.now_ms + self.delete_retention_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCleaned:
    """A segment is whole and synced, as `.cleaned` files, and can take the place of others."""

    base_offset: int
    replaced: tuple[int, ...]
    """The base offsets of the segments whose place it takes: one run, the first its own."""
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    aborted: tuple[AbortedTxn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned:
    """The pass is over."""

    next_dirty_offset: int
    bytes_mapped: int
    """Read to learn the keys."""
    bytes_read: int
    bytes_written: int
    map_utilization: float
