"""Segments that a log has given up, on their way out: detached, then renamed to `.deleted`, then removed.

Between the last two `file.delete.delay.ms` pass, so that responses under way can be sent. A file that a flush may be
syncing is closed only after it.
"""

from __future__ import annotations

from ottla.log.segment import Segment
from ottla.log.snapshots import SnapshotFiles
from ottla.runtime.seams import Disk


class Graveyard:
    __slots__ = ("_closing", "_detached", "_disk", "_doomed")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._detached: list[Segment] = []
        self._closing: list[Segment] = []
        self._doomed: list[tuple[int, list[str]]] = []
        """When to remove which files."""

    def detach(self, segments: list[Segment]) -> None:
        self._detached += segments

    def mark_deleted(self, snapshots: SnapshotFiles, remove_at_ms: int, *, flushing: bool) -> int:
        """Rename the files of what was detached; how many segments that were."""
        detached, self._detached = self._detached, []
        for segment in detached:
            self.close(segment, flushing=flushing)
            paths = segment.rename_deleted()
            snapshot = snapshots.rename_deleted(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
            self._doomed.append((remove_at_ms, paths))
        return len(detached)

    def doom(self, paths: list[str], remove_at_ms: int) -> None:
        """These files are marked as deleted already."""
        self._doomed.append((remove_at_ms, paths))

    def take_due(self, now_ms: int) -> list[str]:
        """The files whose delay is over; the caller removes them."""
        due: list[str] = []
        while self._doomed and self._doomed[0][0] <= now_ms:
            due += self._doomed.pop(0)[1]
        return due

    def close(self, segment: Segment, *, flushing: bool) -> None:
        if flushing:
            self._closing.append(segment)
        else:
            segment.close()

    def on_flushed(self, bases: list[int]) -> None:
        """Close what had to wait. The flush may have written indexes of a segment that was gone by then."""
        closing, self._closing = self._closing, []
        for segment in closing:
            segment.close()
            if segment.base_offset not in bases:
                segment.remove_indexes()

    def close_all(self) -> None:
        for segment in self._closing + self._detached:
            segment.close()
