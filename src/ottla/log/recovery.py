"""Bringing a log back from its directory: after a clean close by trusting it, otherwise by reading it.

After a crash every batch from the recovery point's segment on is read and its CRC checked. The first that is not whole
ends the log; so does a segment that does not begin where the one before ended. Indexes, epochs and producer states of
that range are built anew from the batches, snapshots included, so that derived state never survives what it was derived
from. What recovery kept is flushed before anyone reads it, or a second crash could take back what a consumer has seen;
only that flush moves the recovery point.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from random import Random

from ottla.log import files, losses, offset_index, scan, time_index, txn_index
from ottla.log.checkpoints import decode_epochs, decode_partition_metadata
from ottla.log.epochs import LeaderEpochCache
from ottla.log.index_cache import IndexCache
from ottla.log.log import Log
from ottla.log.log_config import LogConfig
from ottla.log.producer_replay import apply_to_producers, replay_producers, replay_unreplicated
from ottla.log.producers import ProducerStates
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import SnapshotFiles
from ottla.log.txn_index import AbortedTxn
from ottla.model import ZERO_UUID, TopicPartition
from ottla.runtime.seams import Disk

_log = logging.getLogger(__name__)

_REWRITE_BYTES = 1 << 20


def load_log(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 0,
    first_dirty_offset: int | None = None,
    producers: ProducerStates,
    cache: IndexCache,
    random: Random,
    now_ms: int,
    has_copies: bool = False,
    must_be_whole: bool = False,
) -> Log:
    """The log in `directory`, ready to serve once the caller has synced the directory above. The offsets are those of
    the checkpoints. Blocks.

    With `has_copies` there are other replicas: a log with a hole in it is then cut there, and what follows is copied
    from them again. A log without copies keeps what can still be read, but for what follows a gap after a crash. With
    `must_be_whole` one that was closed cleanly and has lost something since is left as it is, and refused:
    `StartupError`.
    """
    loader = _Loader(disk, directory, topic_partition, config, producers, cache, random, now_ms)
    return loader.load(
        clean, log_start_offset, recovery_point, high_watermark, first_dirty_offset, has_copies, must_be_whole
    )


class _Loader:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        producers: ProducerStates,
        cache: IndexCache,
        random: Random,
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.producers = producers
        self.cache = cache
        self.random = random
        self.now_ms = now_ms
        self.segments: list[Segment] = []
        self.changed = False
        """Was anything cut off the batches?"""
        self.recovery_point = 0
        self.gaps_until = 0
        """Below it a segment may end before the next begins, for compaction leaves gaps. Beyond it, one tells that a
        segment is lost."""
        self.cut_bytes = 0
        """How much was cut off, but for what was preallocated and never written."""

    def load(
        self,
        clean: bool,
        log_start: int,
        recovery_point: int,
        high_watermark: int,
        first_dirty: int | None,
        has_copies: bool,
        must_be_whole: bool,
    ) -> Log:
        self.gaps_until = max(first_dirty or 0, recovery_point if self.config.compact else 0)
        names = settle_leftovers(self.disk, self.directory)
        bases = [offset for name in names if name.endswith(files.LOG) and (offset := files.offset_of(name)) is not None]
        self._remove_orphans(names, bases)
        self.snapshots = SnapshotFiles(self.disk, self.directory, _snapshot_offsets(names))
        self.segments = self._find_segments(bases)
        closed_at = self.snapshots.offsets[-1] if clean and self.snapshots.offsets else 0
        if must_be_whole and clean:
            losses.refuse_losses(self.disk, self.directory, self.segments, closed_at)
        epochs_file = self._read(files.LEADER_EPOCH_CHECKPOINT) if files.LEADER_EPOCH_CHECKPOINT in names else None
        entries = decode_epochs(epochs_file) if epochs_file is not None else None
        self.epochs = LeaderEpochCache(entries or ())

        hole = None
        if has_copies:
            hole = losses.find_hole(
                self.disk, self.segments, gaps_until=self.gaps_until, preallocate=self.config.preallocate
            )
        if hole is not None:
            _log.error(
                "%s: the file of offset %d lost its end, so what follows is copied from another replica",
                self.topic_partition,
                self.segments[hole].base_offset,
            )
            clean = False
            recovery_point = min(recovery_point, self.segments[hole].base_offset)
            self.gaps_until = min(self.gaps_until, self.segments[hole].base_offset)
        unsealed_from = len(self.segments) - 1
        if not clean:
            # The segment that holds the last flushed record: it was active in that flush, so its indexes were not
            # written, and it may have been sealed right after.
            unsealed_from = max(0, bisect_left([s.base_offset for s in self.segments], recovery_point) - 1)
        self._mend_indexes(names, unsealed_from)
        replayed_from = log_start
        if not self.segments:
            end = log_start
        elif clean:
            end = self._trust()
            if end < closed_at:
                # A clean close takes one at the log's end, and a cut leaves none behind it: batches are gone. Whether
                # they were committed nobody here can know, but what the marker says is not true any more.
                _log.error("%s lost what was behind offset %d since it was closed", self.topic_partition, end)
                self.changed = True
        else:
            self.recovery_point = recovery_point
            end, replayed_from = self._recover(unsealed_from, log_start)
        if self.cut_bytes:
            _log.warning(
                "%s was cut at offset %d, the first that is lost: the log is broken there, and %d bytes went.",
                self.topic_partition,
                end,
                self.cut_bytes,
            )
        if not self.segments or end < log_start:
            end = self._start_empty(log_start)
            unsealed_from = 0

        first_base = self.segments[0].base_offset
        log_start = max(log_start, first_base)
        self.epochs.truncate_from_end(end)
        self._complete_epochs(log_start, end)
        self.epochs.truncate_from_start(log_start)
        segments = Segments(self.segments, self.cache)
        if clean:
            replayed_from = replay_producers(segments, self.producers, self.snapshots, end, self.now_ms)
        replay_unreplicated(
            segments, self.producers, self.snapshots, high_watermark, min(replayed_from, end), self.now_ms
        )
        self.snapshots.retain([segment.base_offset for segment in self.segments] + [end])
        self.epochs.dirty = self.epochs.encode(end) != epochs_file

        topic_id = ZERO_UUID
        if files.PARTITION_METADATA in names:
            topic_id = decode_partition_metadata(self._read(files.PARTITION_METADATA)) or ZERO_UUID
        self.segments[-1].tail_start = end
        log = Log(
            self.disk,
            self.directory,
            self.topic_partition,
            topic_id,
            self.config,
            segments=segments,
            log_start_offset=log_start,
            log_end_offset=end,
            recovery_point=end if clean and not self.changed else min(recovery_point, end),
            high_watermark=high_watermark,
            epochs=self.epochs,
            epochs_file=epochs_file,
            producers=self.producers,
            snapshots=self.snapshots,
            random=self.random,
            now_ms=self.now_ms,
            unsealed_from=unsealed_from,
            recovered=not clean or self.changed,
            cut_at_load=self.changed,
            missing_until=high_watermark if end < high_watermark else 0,
            first_dirty_offset=first_dirty,
        )
        if log.missing_until:
            _log.log(
                logging.ERROR if clean else logging.WARNING,
                "%s: committed records from offset %d to %d are missing; %s",
                self.topic_partition,
                end,
                high_watermark,
                "they are to be copied from another replica" if has_copies else "there is no other replica of it",
            )
        self.producers.on_high_watermark(log.high_watermark)
        if not clean or self.changed:
            # Even if nothing lies beyond the recovery point: a file may be shorter in the page cache than on the disk.
            log.flush(self.now_ms, sync_parent=False)
        return log

    def _find_segments(self, bases: list[int]) -> list[Segment]:
        return [
            Segment(
                self.disk,
                self.directory,
                base,
                size=self._size_of(base),
                created_ms=self.now_ms,
                index_interval=self.config.index_interval_bytes,
            )
            for base in sorted(bases)
        ]

    # After a clean close.

    def _trust(self) -> int:
        """Look only at what is missing or cannot be right; returns the log's end."""
        active = self.segments[-1]
        aborted = active.load_aborted()
        active.aborted = self._rebuild_txn_index(active) if aborted is None else aborted
        active.offsets = active.load_offset_index()
        active.times = active.load_time_index()
        end = self._find_end(active)
        if end is None:
            # The index points into the middle of a batch.
            active.offsets, active.times = active.build_indexes()
            end = self._find_end(active)
            assert end is not None
        return end

    def _mend_indexes(self, names: list[str], unsealed_from: int) -> None:
        """Build anew what is missing, or cannot be right, of the sealed segments that are not read anyway."""
        present = set(names)
        for segment in self.segments[:unsealed_from]:
            if not self._has_sound_indexes(segment, present):
                self._rebuild_index_files(segment)
            if files.file_name(segment.base_offset, files.TXN_INDEX) in present and segment.load_aborted() is None:
                self._rebuild_txn_index(segment)

    def _has_sound_indexes(self, segment: Segment, present: set[str]) -> bool:
        base = segment.base_offset
        for suffix, entry_size in (
            (files.OFFSET_INDEX, offset_index.ENTRY_SIZE),
            (files.TIME_INDEX, time_index.ENTRY_SIZE),
        ):
            if files.file_name(base, suffix) not in present:
                return False
            # One that was preallocated and never trimmed is larger than an entry an interval can make it.
            size = self.disk.file_size(segment.path(suffix))
            entries_max = segment.size // (self.config.index_interval_bytes + 1) + 1
            if size % entry_size or size // entry_size > entries_max:
                return False
        return True

    def _rebuild_index_files(self, segment: Segment) -> None:
        _log.warning("%s: built the indexes of %s anew", self.topic_partition, segment.path(files.LOG))
        offsets, times = segment.build_indexes(note_end=self.config.compact)
        # Atomically: no recovery reads this segment again, so that half an index would stay one.
        self.disk.write_atomically(segment.path(files.OFFSET_INDEX), offsets.encode())
        self.disk.write_atomically(segment.path(files.TIME_INDEX), times.encode())

    def _rebuild_txn_index(self, segment: Segment) -> list[AbortedTxn]:
        """A reader of committed records who is not told what was aborted takes it for good."""
        _log.warning("%s: built the transaction index of %s anew", self.topic_partition, segment.path(files.LOG))
        segments, producers = Segments(self.segments, self.cache), ProducerStates()
        replay_producers(segments, producers, self.snapshots, segment.base_offset, 0)
        aborted: list[AbortedTxn] = []
        for position, header in scan.headers(segment.file, 0, segment.size, 1 << 20):
            batch = segment.file.read(position, header.size) if header.is_control else b""
            entry = apply_to_producers(producers, header, memoryview(batch))
            if entry is not None:
                aborted.append(entry)
        self.disk.write_atomically(segment.path(files.TXN_INDEX), txn_index.encode(aborted))
        return aborted

    def _find_end(self, active: Segment) -> int | None:
        """Where the last batch ends, and what the index leaves out; None if the index is wrong."""
        assert active.offsets is not None
        assert active.times is not None
        base = active.base_offset
        active.indexed_position = position = active.offsets.last_position
        timestamp, relative = active.times.last
        active.max_timestamp, active.max_timestamp_offset = timestamp, base + relative
        end, valid = base, 0
        for at, header in scan.headers(active.file, position, active.size):
            if at == position and position and header.last_offset - base != active.offsets.relative_offsets[-1]:
                return None
            if header.record_count and header.max_timestamp > active.max_timestamp:
                active.max_timestamp, active.max_timestamp_offset = header.max_timestamp, header.last_offset
            end, valid = header.next_offset, at + header.size
        if not valid and position:
            return None
        if valid != active.size:
            self._cut_file(active, valid)
        return end

    # After a crash.

    def _recover(self, floor: int, log_start: int) -> tuple[int, int]:
        """Read everything from segment `floor` on. Returns the log's end, and from where on producers' batches were
        looked at: what is before that is known from a snapshot."""
        segments = self.segments
        base = segments[floor].base_offset
        # Compaction leaves not every epoch's first batch, to tell where it began; what is flushed can be trusted.
        self.epochs.truncate_from_end(max(base, self.recovery_point) if self.config.compact else base)
        # A snapshot from here on may tell of a history that was cut off: they are taken anew.
        self.snapshots.retain([offset for offset in self.snapshots.offsets if offset <= base])
        replayed_from = replay_producers(
            Segments(segments, self.cache), self.producers, self.snapshots, base, self.now_ms
        )
        end = base
        for slot in range(floor, len(segments)):
            segment = segments[slot]
            if segment.base_offset != end:
                if not end < segment.base_offset <= self.gaps_until:
                    self._drop(slot)
                    break
                end = segment.base_offset
            if segment.base_offset > log_start:
                self.snapshots.take(self.producers, segment.base_offset)
            lost_bytes = self.cut_bytes
            end = self._read_segment(segment)
            if self.cut_bytes > lost_bytes:
                self.gaps_until = 0  # What is missing here was lost, and not compacted away.
            if slot + 1 < len(segments):
                segment.note_largest_timestamp()
        if self.config.compact:
            for segment in segments[floor:-1]:
                segment.note_last_batch()
        return end, replayed_from

    def _read_segment(self, segment: Segment) -> int:
        """Check every batch and build what is derived from it; cut the file after the last that is whole."""
        segment.hold_empty_indexes()
        assert segment.offsets is not None
        assert segment.times is not None
        base, interval = segment.base_offset, self.config.index_interval_bytes
        valid, end = 0, base
        unsynced = -1
        for position, header, batch in scan.intact_batches(segment.file, segment.size, base):
            last = header.last_offset
            if unsynced < 0 and last >= self.recovery_point:
                unsynced = position
            if last - base > MAX_RELATIVE_OFFSET:
                break
            if not position:
                segment.first_timestamp = header.max_timestamp
            if header.record_count and header.max_timestamp > segment.max_timestamp:
                segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, last
            if position - segment.indexed_position > interval:
                segment.offsets.append(last - base, position)
                segment.times.append(segment.max_timestamp, segment.max_timestamp_offset - base)
                segment.indexed_position = position
            latest = self.epochs.latest_epoch
            if header.leader_epoch >= 0 and (latest is None or header.leader_epoch > latest):
                self.epochs.assign(header.leader_epoch, header.base_offset)
            aborted = apply_to_producers(self.producers, header, batch)
            if aborted is not None:
                assert segment.aborted is not None
                segment.aborted.append(aborted)
            valid, end = position + header.size, header.next_offset
        if valid != segment.size:
            self._cut_file(segment, valid)
        if unsynced >= 0:
            self._write_again(segment, unsynced, valid)
        return end

    def _write_again(self, segment: Segment, position: int, end: int) -> None:
        """Have the flush that follows really write what we keep.

        After a sync that failed the kernel holds the pages for clean: they are read back as if nothing had happened,
        the next sync succeeds, and a power loss takes them (KAFKA-10101's review; PostgreSQL met it in 2018).
        """
        while position < end:
            data = segment.file.read(position, min(_REWRITE_BYTES, end - position))
            segment.file.write(position, data)
            position += len(data)

    def _cut_file(self, segment: Segment, size: int) -> None:
        if losses.is_rest(segment, size, preallocate=self.config.preallocate):
            self.cut_bytes += segment.size - size
        segment.file.truncate(size)
        segment.size = size
        self.changed = True

    def _drop(self, slot: int) -> None:
        for segment in reversed(self.segments[slot:]):
            self.cut_bytes += segment.size
            segment.close()
            segment.remove_files()
        del self.segments[slot:]
        self.changed = True

    # Both.

    def _start_empty(self, offset: int) -> int:
        """No segment, or the log start is beyond everything: begin there."""
        self._drop(0)
        self.snapshots.retain(())
        self.producers.clear()
        self.epochs.clear()
        self.segments.append(Segment.create(self.disk, self.directory, offset, self.config, self.random, self.now_ms))
        return offset

    def _complete_epochs(self, log_start: int, end: int) -> None:
        """Read from the batches which epochs the log begins with, where the checkpoint does not say.

        It is gone or broken; or it was trimmed for a log start that did not reach the disk.
        """
        known = self.epochs.entries
        first_known = known[0][1] if known else end
        if first_known <= log_start:
            return
        self.epochs.clear()
        segments = Segments(self.segments, self.cache)
        for segment in segments.between(segments.slot_of(log_start)):
            if segment.base_offset >= first_known:
                break
            for _, header in scan.headers(segment.file, 0, segment.size, 1 << 20):
                latest = self.epochs.latest_epoch
                if header.leader_epoch >= 0 and (latest is None or header.leader_epoch > latest):
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.base_offset >= first_known:
                    break
        for epoch, start in known:
            self.epochs.assign(epoch, start)

    def _remove_orphans(self, names: list[str], bases: list[int]) -> None:
        known = set(bases)
        for name in names:
            if name.endswith(files.INDEXES) and files.offset_of(name) not in known:
                self.disk.remove(f"{self.directory}/{name}")

    def _size_of(self, base: int) -> int:
        return self.disk.file_size(f"{self.directory}/{files.file_name(base, files.LOG)}")

    def _read(self, name: str) -> bytes:
        return self.disk.read_file(f"{self.directory}/{name}")


def _snapshot_offsets(names: list[str]) -> list[int]:
    return [offset for name in names if name.endswith(files.SNAPSHOT) and (offset := files.offset_of(name)) is not None]


def settle_leftovers(disk: Disk, directory: str) -> list[str]:
    """Finish or undo what was going on when the process ended; the names of the files that then make the log.

    Deleted files and half-written ones go. Compaction writes `.cleaned`, renames all of them to `.swap` once they are
    whole, and then to their place: swaps are completed and the segments whose place they take removed, unless a
    `.cleaned` file shows that the renaming itself was interrupted. Each step is durable before the next, for a power
    loss may come here too: with the log in its place its indexes are not taken for those of an old one.
    """
    names = disk.list(directory)
    cleaned = [
        offset for name in names if name.endswith(files.CLEANED) and (offset := files.offset_of(name)) is not None
    ]
    first_cleaned = min(cleaned, default=1 << 63)
    swaps: list[str] = []
    undone: list[str] = []
    stale: list[str] = []
    for name in names:
        offset = files.offset_of(name)
        if files.is_leftover(name) or name.endswith((files.CLEANED, ".tmp")):
            stale.append(name)
        elif name.endswith(files.SWAP):
            (undone if offset is None or offset >= first_cleaned else swaps).append(name)
    if undone:
        # Before the `.cleaned` files that condemn them: without those they would pass for a whole swap.
        for name in undone:
            disk.remove(f"{directory}/{name}")
        disk.sync_dir(directory)
        stale += undone
    for name in stale:
        disk.remove(f"{directory}/{name}")
    if not swaps:
        return [name for name in names if name not in stale] if stale else names
    low, high = _swapped_range(disk, directory, swaps)
    for name in names:
        offset = files.offset_of(name)
        if offset is not None and name not in swaps and name not in stale and low <= offset < high:
            disk.remove(f"{directory}/{name}")
    disk.sync_dir(directory)
    for wanted in (True, False):
        for name in swaps:
            if name.endswith(files.LOG + files.SWAP) is wanted:
                disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(files.SWAP)}")
        disk.sync_dir(directory)
    return disk.list(directory)


def _swapped_range(disk: Disk, directory: str, swaps: list[str]) -> tuple[int, int]:
    """From the first base of the swapped segments to the end of the last, which has one even if it is empty."""
    low, high = 1 << 63, -1
    for name in swaps:
        offset = files.offset_of(name)
        if offset is None or not name.endswith(files.LOG + files.SWAP):
            continue
        file = disk.open(f"{directory}/{name}")
        try:
            end = offset
            for _, header in scan.headers(file, 0, file.size(), 1 << 20):
                end = header.next_offset
        finally:
            file.close()
        low, high = min(low, offset), max(high, end, offset + 1)
    return low, high
