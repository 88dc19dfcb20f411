"""Making a log durable, in two halves: what is to be synced is captured on the loop, the syncs block elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log import epoch_file, files
from ottla.runtime.seams import Disk, DiskError, File

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.offset_index import OffsetIndex
    from ottla.log.segment import Segment


class Flush:
    """Everything below `end_offset`, as it was when the flush was prepared.

    `run` blocks and may run in a thread while appends go on. Only if it returns may `Log.on_flushed` be called; if it
    raises, the log is offline for good: after a failed sync nobody can say what is on the disk, so nothing is retried.

    All of it is done before the recovery point moves and lets a start trust it: the data, the indexes of segments that
    were sealed, snapshots, epochs, the partition's identity, and the directory entries of what is new. The active
    segment's indexes are left out: a start that trusts them was clean, and a clean close writes them.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_epochs",
        "_files",
        "_identity",
        "_indexes",
        "_log",
        "_new_files",
        "_snapshots",
        "_sync_parent",
        "covers_cut",
        "end_offset",
        "sealed",
    )

    def __init__(
        self,
        log: Log,
        disk: Disk,
        *,
        end_offset: int,
        data: list[File],
        sealed: list[Segment],
        epochs: bytes | None,
        identity: bool,
        sync_parent: bool,
        snapshots: list[str],
        new_files: bool,
        covers_cut: bool,
    ) -> None:
        self._log = log
        self._disk = disk
        self._directory = log.directory
        self.end_offset = end_offset
        self.sealed = [(segment, segment.offsets) for segment in sealed]
        """Segments whose indexes this flush puts on the disk."""
        self._files = data
        self._indexes = [(segment, segment.encode_indexes()) for segment in sealed]
        self._epochs = epochs
        self._identity = identity
        self._sync_parent = identity and sync_parent
        self._snapshots = snapshots
        self._new_files = new_files
        self.covers_cut = covers_cut
        """Does it make a truncation durable, and did no other come since?"""

    def run(self) -> None:
        try:
            self._run()
        except DiskError:
            self._log.offline = True
            raise

    def _run(self) -> None:
        disk, directory = self._disk, self._directory
        if self._identity:
            _sync_if_there(disk, f"{directory}/{files.PARTITION_METADATA}")
        for file in self._files:
            file.sync()
        for segment, encoded in self._indexes:
            segment.write_index_files(encoded)
        for path in self._snapshots:
            _sync_if_there(disk, path)
        if self._epochs is not None:
            disk.write_atomically(f"{directory}/{files.LEADER_EPOCH_CHECKPOINT}", self._epochs)
        elif self._new_files or self._indexes:
            disk.sync_dir(directory)
        if self._sync_parent:
            disk.sync_dir(directory.rpartition("/")[0])


def prepare(log: Log, *, sync_parent: bool) -> Flush:
    """All of `log` that is not on the disk yet."""
    assert log._flush is None, "a flush is under way"
    segments = log._segments
    first = min(segments.slot_of(log.recovery_point), log._unsealed_from)
    data: list[File] = []
    if log.log_end_offset > log.recovery_point or log.cut_unsynced:
        data = [segment.file for segment in segments.between(first) if segment.size or log.cut_unsynced]
    flush = Flush(
        log,
        log._disk,
        end_offset=log.log_end_offset,
        data=data,
        sealed=segments.between(log._unsealed_from, -1),
        epochs=epoch_file.changed(log, log.log_end_offset),
        identity=not log._identity_synced,
        sync_parent=sync_parent,
        snapshots=log.snapshots.unsynced,
        new_files=log._new_files,
        covers_cut=log.cut_unsynced,
    )
    log.snapshots.unsynced = []
    log._new_files = False
    log.rolled = False
    return flush


def finish(log: Log, flush: Flush, now_ms: int) -> None:
    """`flush` has run: what it was prepared for is on the disk."""
    log._identity_synced = log._entries_synced = True
    log.last_flush_ms = now_ms
    if flush.covers_cut and log.cut_unsynced:
        log.cut_unsynced = False
        epoch_file.settle(log)
    log.recovery_point = max(log.recovery_point, min(flush.end_offset, log.log_end_offset))
    for segment, offsets in flush.sealed:
        _release_indexes(log, segment, offsets)
    log._graveyard.on_flushed(log._segments.bases)


def _release_indexes(log: Log, segment: Segment, offsets: OffsetIndex | None) -> None:
    """`segment`'s indexes are on the disk: from now on they are read when they are wanted."""
    segments = log._segments
    at = segments.slot_of(segment.base_offset)
    if at != log._unsealed_from or segments[at] is not segment or segment.offsets is not offsets:
        return  # Cut or removed meanwhile.
    segments.cache.put(segment, segment.offsets, segment.times)
    segment.offsets = segment.times = None
    if segment.aborted:
        segment.aborted = None
    log._unsealed_from += 1


def _sync_if_there(disk: Disk, path: str) -> None:
    """Retention may have taken a snapshot away since the flush was prepared."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()
