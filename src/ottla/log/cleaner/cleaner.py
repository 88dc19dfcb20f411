"""Compaction of one log from beginning to end, as the loop sees it: what is asked for, what comes of it.

A pass is captured on the loop (`begin_pass`), done apart from it (`clean`), and each segment that it reports is swapped
in (`Pass.swap`). Nothing has to be stopped for safety's sake: a log that was cut, deleted or taken offline meanwhile is
not any more what the pass has seen, and then its segments are discarded. Driven by `broker/upkeep/compaction`.
"""

from __future__ import annotations

from random import Random

from ottla.log.cleaner.choosing import Cleanable
from ottla.log.cleaner.swap import Swap
from ottla.log.cleaner.task import (
    CleaningSettings,
    CleaningTask,
    LastOfProducer,
    LogCleaned,
    SegmentCleaned,
    SegmentFile,
)
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.runtime.seams import Disk

_SECRET_BYTES = 16


class Pass:
    """One log while it is compacted."""

    __slots__ = ("_cuts", "_disk", "_segments", "log", "task")

    def __init__(self, disk: Disk, log: Log, segments: list[Segment], task: CleaningTask) -> None:
        self._disk = disk
        self._segments = {segment.base_offset: segment for segment in segments}
        """Those that are not replaced yet."""
        self._cuts = log.cuts
        """A segment that was cut and filled again looks like the one that was read: only this tells them apart."""
        self.log = log
        self.task = task

    @property
    def is_wanted(self) -> bool:
        """Is there still a log to compact, and is what is left of it to be read still what it was?"""
        log = self.log
        if log.offline or log.cuts != self._cuts or not log.config.compact:
            return False
        present = set(log._segments)
        return all(segment in present for segment in self._segments.values())

    def swap(self, cleaned: SegmentCleaned) -> Swap:
        """What puts the new segment in the place of the old ones."""
        old = [self._segments[base] for base in cleaned.replaced]
        return Swap(self._disk, self.log, old, cleaned, cuts=self._cuts)

    def on_swapped(self, cleaned: SegmentCleaned) -> None:
        for base in cleaned.replaced:
            del self._segments[base]

    def finish(self, cleaned: LogCleaned) -> bool:
        """Every segment is swapped in: the log is clean that far. False if it was cut meanwhile: nobody knows."""
        if self.log.cuts != self._cuts:
            return False
        self.log.first_dirty_offset = cleaned.next_dirty_offset
        return True


def begin_pass(disk: Disk, cleanable: Cleanable, settings: CleaningSettings, random: Random, now_ms: int) -> Pass:
    """Capture what a pass over this log needs to know."""
    log, end_offset = cleanable.log, cleanable.end_offset
    segments = [segment for segment in log._segments if segment.base_offset < end_offset]
    config = log.config
    task = CleaningTask(
        directory=log.directory,
        segments=tuple(SegmentFile(segment.base_offset, segment.size) for segment in segments),
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=end_offset,
        aborted=tuple(log.aborted_transactions(log._segments.bases[0], end_offset)),
        last_of_producers={
            entry.producer_id: LastOfProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in log.producers.entries.values()
        },
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        secret=random.randbytes(_SECRET_BYTES),
        settings=settings,
    )
    return Pass(disk, log, segments, task)
