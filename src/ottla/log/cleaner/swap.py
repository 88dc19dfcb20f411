"""Putting a compacted segment in the place of the ones that it was made of, so that a crash finds the old or the new.

In memory it happens at one moment, on the loop: from then on readers get the new segment, through a file that is open
already, and those who were being sent an old one keep that open (`begin`). On the disk it takes steps, each durable
before the next (E9):

1. the new files become `.swap` instead of `.cleaned`: a load before that removes them, a load after it goes on here;
2. the old files become `.deleted`, with the producer snapshots of the segments that are merged away;
3. the new log gets its name, and then its indexes theirs.

The steps block, and run in a thread (`run`). Whoever must change the same files meanwhile, a truncation for one, has
them done on the spot first (`settle`); there is one baton, and only its holder takes a step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ottla.log import files
from ottla.log.cleaner.task import SegmentCleaned
from ottla.log.offset_index import OffsetIndex
from ottla.log.segment import Segment
from ottla.log.time_index import TimeIndex
from ottla.runtime.seams import Disk, DiskError

if TYPE_CHECKING:
    from ottla.log.log import Log


class Swap:
    """One segment for a run of others: `prepare` in a thread, `begin` on the loop, `run` in a thread, `finish`."""

    __slots__ = ("_baton", "_cleaned", "_cuts", "_disk", "_log", "_old", "_steps", "doomed", "new")

    def __init__(self, disk: Disk, log: Log, old: list[Segment], cleaned: SegmentCleaned, *, cuts: int) -> None:
        """`cuts` is how often the log had been cut when `old` was read."""
        self._disk = disk
        self._log = log
        self._old = old
        self._cleaned = cleaned
        self._cuts = cuts
        self._baton: SimpleQueue[None] = SimpleQueue()
        self._baton.put(None)
        self._steps: list[Callable[[], None]] = []
        self.new: Segment | None = None
        self.doomed: list[str] = []
        """Files that are to be removed later."""

    def prepare(self) -> None:
        """Open the new segment and read its indexes, which it holds until they have their names. Blocks."""
        cleaned, last = self._cleaned, self._old[-1]
        new = Segment(
            self._disk,
            self._log.directory,
            cleaned.base_offset,
            size=cleaned.size,
            created_ms=last.created_ms,
            index_interval=self._log.config.index_interval_bytes,
        )
        new.open_as(new.path(files.LOG) + files.CLEANED)
        offsets = OffsetIndex.decode(self._read(new, files.OFFSET_INDEX), max(1, cleaned.size))
        times = TimeIndex.decode(self._read(new, files.TIME_INDEX))
        assert offsets is not None
        assert times is not None
        new.offsets, new.times, new.aborted = offsets, times, list(cleaned.aborted)
        new.indexed_position = offsets.last_position
        new.max_timestamp, new.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
        self.new = new

    def begin(self) -> bool:
        """Put the new segment in place, in memory. False if the log is not any more what was compacted."""
        log, new, old = self._log, self.new, self._old
        assert new is not None
        slot = log._segments.slot_of(old[0].base_offset)
        if (
            log.offline
            or log.cuts != self._cuts
            or log._swap is not None
            or slot + len(old) > log._unsealed_from
            or log._segments.between(slot, slot + len(old)) != old
        ):
            return False
        for segment in old:
            log._segments.cache.forget(segment)
        log._segments.replace(slot, len(old), new)
        log._unsealed_from -= len(old) - 1
        self._steps = [
            *(partial(self._rename, new, suffix, files.CLEANED, files.SWAP) for suffix in self._suffixes()),
            self._sync,
            *(partial(self._doom, segment) for segment in old),
            self._sync,
            partial(self._rename, new, files.LOG, files.SWAP, ""),
            self._sync,
            *(partial(self._rename, new, suffix, files.SWAP, "") for suffix in self._suffixes()[1:]),
            self._sync,
        ]
        merged = [segment.base_offset for segment in old[1:]]
        self._steps[-1:-1] = [partial(self._doom_snapshot, base) for base in merged if base in log.snapshots.offsets]
        log.snapshots.forget(merged)
        log._swap = self
        return True

    def run(self) -> None:
        """Take every step that is left. Blocks. Raises `DiskError`; then the log is offline."""
        while self._step():
            pass

    settle = run

    def cancel(self) -> None:
        """Take no further step: the directory is on its way out, or cannot be written to."""
        self._baton.get()
        self._steps.clear()
        self._baton.put(None)

    def finish(self, now_ms: int) -> None:
        """All steps are done: the new segment is like any other."""
        log, new = self._log, self.new
        if log._swap is not self:
            return  # Somebody could not wait, and has done this.
        assert new is not None
        assert not self._steps
        log._swap = None
        log._segments.cache.put(new, new.offsets, new.times)
        new.offsets = new.times = new.aborted = None
        log._graveyard.doom(self.doomed, now_ms + log.config.file_delete_delay_ms)

    def discard(self) -> None:
        """The files are not wanted after all. Blocks."""
        if self.new is not None:
            self.new.close()
        discard(self._disk, self._log.directory, self._cleaned.base_offset)

    # Steps.

    def _step(self) -> bool:
        self._baton.get()
        try:
            if self._steps:
                self._steps[0]()
                del self._steps[0]
            return bool(self._steps)
        except DiskError:
            self._log.offline = True
            raise
        finally:
            self._baton.put(None)

    def _suffixes(self) -> tuple[str, ...]:
        suffixes = (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX)
        return (*suffixes, files.TXN_INDEX) if self._cleaned.aborted else suffixes

    def _rename(self, segment: Segment, suffix: str, source: str, target: str) -> None:
        path = segment.path(suffix)
        self._disk.rename(path + source, path + target)

    def _doom(self, segment: Segment) -> None:
        self.doomed += segment.rename_deleted()

    def _doom_snapshot(self, offset: int) -> None:
        path = self._log.snapshots.path(offset)
        if self._disk.exists(path):
            self._disk.rename(path, path + files.DELETED)
            self.doomed.append(path + files.DELETED)

    def _sync(self) -> None:
        self._disk.sync_dir(self._log.directory)

    def _read(self, segment: Segment, suffix: str) -> bytes:
        return self._disk.read_file(segment.path(suffix) + files.CLEANED)


def discard(disk: Disk, directory: str, base_offset: int) -> None:
    """Remove what compaction wrote for a segment that does not come into being. Blocks."""
    for suffix in (files.LOG, *files.INDEXES):
        disk.remove(f"{directory}/{files.file_name(base_offset, suffix)}{files.CLEANED}")
