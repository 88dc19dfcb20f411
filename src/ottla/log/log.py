"""One partition's log: batches in segments, appended at the end, read anywhere, cut at either end.

Synchronous, owned by one event loop, and ignorant of leadership: `broker/replica_manager` decides who may append and
how far readers may see. The hot paths are `append`, one file write and no index write, and `read` near the end, which
finds its span in memory.

Invariants. log_start ≤ high_watermark ≤ log_end, and recovery_point ≤ log_end. Segments follow each other: the base of
one is where the one before ended, unless offsets themselves have a gap. What is derived (indexes, epochs, producer
states) always agrees with the batches, in memory at once and on the disk before the recovery point passes them. After
the first disk error the log is offline for good.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NoReturn

from ottla.errors import ErrorCode, KafkaError
from ottla.log import closing, epoch_file, flush, replicated, retention, rolling, timestamps, truncation
from ottla.log.append import AppendInfo, AppendOrigin
from ottla.log.epochs import LeaderEpochCache
from ottla.log.flush import Flush
from ottla.log.graveyard import Graveyard
from ottla.log.log_config import LogConfig
from ottla.log.markers import read_marker
from ottla.log.producers import ProducerStates, VerificationGuard
from ottla.log.segment import TAIL_BATCHES, Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import SnapshotFiles
from ottla.log.timestamps import TimestampOffset
from ottla.log.txn_index import AbortedTxn
from ottla.model import TopicPartition, Uuid
from ottla.records import BatchHeader, EndTxnMarker
from ottla.runtime.seams import Disk, DiskError, FileSpan

if TYPE_CHECKING:
    from ottla.log.cleaner.swap import Swap

_ASSIGNED = struct.Struct(">qii")
"""What a leader assigns, and the length between: base offset, batch length, leader epoch."""
_OVERHEAD = 12
UNKNOWN_END = (1 << 63) - 1
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL_OR_CONTROL = 0x30
_CONTROL = 0x20


class Log:
    """Made by `LogManager`, which creates and loads logs and keeps their checkpoints."""

    __slots__ = (
        "_active",
        "_disk",
        "_entries_synced",
        "_epochs_file",
        "_flush",
        "_graveyard",
        "_identity_synced",
        "_loaded_clean",
        "_new_files",
        "_random",
        "_segments",
        "_settled_epoch",
        "_swap",
        "_unsealed_from",
        "before_truncation",
        "config",
        "cut_at_load",
        "cut_unsynced",
        "cuts",
        "directory",
        "epochs",
        "first_dirty_offset",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "missing_until",
        "offline",
        "producers",
        "recovery_point",
        "rolled",
        "snapshots",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        *,
        segments: Segments,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        high_watermark: int,
        epochs: LeaderEpochCache,
        epochs_file: bytes | None,
        producers: ProducerStates,
        snapshots: SnapshotFiles,
        random: Random,
        now_ms: int,
        unsealed_from: int,
        new: bool = False,
        recovered: bool = False,
        cut_at_load: bool = False,
        missing_until: int = 0,
        first_dirty_offset: int | None = None,
    ) -> None:
        """`unsealed_from` is the first segment whose indexes are held in memory. In the directory of a `new` log
        nothing is synced yet; in that of a `recovered` one, nobody knows what is."""
        self._disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self._segments = segments
        self._active = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        """Exclusive: the offset that the next record gets."""
        self.recovery_point = recovery_point
        """Everything before it is on the disk, with all that is derived from it but the active segment's indexes."""
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        self.cut_at_load = cut_at_load
        """Were there bytes in the files that could not be kept?"""
        self.missing_until = missing_until
        """This replica once held everything before that offset, and its disk has lost the end of it; `UNKNOWN_END` if
        nobody knows how much it held."""
        self.first_dirty_offset = first_dirty_offset
        """Compaction has been over everything before it; None if it never was here."""
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self._random = random
        self.offline = False
        self.last_flush_ms = now_ms
        self.rolled = False
        """Was a segment sealed that no flush has covered yet?"""
        self.before_truncation: Callable[[Log, bool], None] | None = None
        """Called after recovery point and high watermark were lowered and before anything is cut, to make that durable:
        the log, and whether the high watermark fell."""
        self._flush: Flush | None = None
        self._swap: Swap | None = None
        """A compacted segment that readers have already and whose files are on their way to their names."""
        self._graveyard = Graveyard(disk)
        self.cut_unsynced = recovered
        """Was anything cut off that a power loss might bring back? Then the next append waits for the disk."""
        self.cuts = 0
        """How often records were cut off its end since it was loaded: what was read before the last time may be gone,
        and others in its place."""
        self._new_files = new or recovered
        self._loaded_clean = not self._new_files
        """Was every file on the disk as it could be read when the log was loaded?"""
        self._identity_synced = self._entries_synced = not self._new_files
        self._unsealed_from = unsealed_from
        """Segments from here on hold their indexes; the last one always does."""
        latest = epochs.latest_epoch
        self._settled_epoch = -1 if latest is None or epochs.dirty else latest
        """Appends in this epoch need not look at the epochs."""
        self._epochs_file = epochs_file
        """What `leader-epoch-checkpoint` holds, or will hold after the flush under way; None if there is none."""
        rolling.set_time(self)

    @property
    def last_stable_offset(self) -> int:
        """How far a read-committed consumer sees: the high watermark, or the first undecided transaction before it."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def lacks_committed(self) -> bool:
        """Did loading find less than the high watermark that was on the disk, or was it gone, or cut where it is
        damaged, and have we not copied it again since?

        Then committed records are missing here, and what a clean shutdown claimed is not true: this replica must not
        lead, nor count as in sync, until it has caught up with one who has them (`partition/standing.py`).
        """
        return self.log_end_offset < self.missing_until

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there is none. An epoch that we began and never used is no such."""
        epoch = self.epochs.epoch_for_offset(self.log_end_offset - 1)
        return -1 if epoch is None else epoch

    @property
    def owes_flush(self) -> bool:
        """Is so much unflushed that by `flush.messages` the last of it does not count before it is on the disk?"""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def segment_base_offsets(self) -> list[int]:
        return list(self._segments.bases)

    def size_bytes(self) -> int:
        return self._segments.size_bytes

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        rolling.set_time(self)

    # Appending.

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append one validated batch as the leader of `leader_epoch`: assign its offsets, patching them in place.

        `batch` must be writable and exactly one batch, whose final header `header` is but for what is assigned here. A
        producer's retry of a batch that is in the log gets the original's place (`duplicate`). Raises `KafkaError`;
        then nothing was appended.
        """
        if self.offline:
            self._refuse_offline()
        size = header.batch_length + _OVERHEAD
        config = self.config
        if size > config.segment_bytes:
            self._refuse_too_large(size)
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        marker = None
        if header.producer_id >= 0:
            entry = self.producers.entries.get(header.producer_id)
            if (
                entry is None
                or header.base_sequence != entry.next_sequence
                or header.producer_epoch != entry.epoch
                or header.attributes & _TRANSACTIONAL_OR_CONTROL
                or entry.txn_first_offset >= 0
            ):
                if header.attributes & _CONTROL:
                    marker = read_marker(batch)
                    if marker is not None:
                        self.producers.check_marker(header, marker[0], first_offset, transaction_version)
                else:
                    duplicate = self.producers.check(header, first_offset, origin, verification_guard)
                    if duplicate is not None:
                        return AppendInfo(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True)
        try:
            if leader_epoch != self._settled_epoch:
                epoch_file.begin(self, leader_epoch, first_offset)
            max_timestamp = header.max_timestamp
            segment = self._active
            position = segment.size
            if (
                position + size > config.segment_bytes
                or max_timestamp > segment.roll_after_ms
                or last_offset > segment.max_offset
            ) and rolling.is_due(self, size, max_timestamp, last_offset, now_ms):
                segment = rolling.roll(self, first_offset, last_offset, now_ms)
                position = 0
            _ASSIGNED.pack_into(batch, 0, first_offset, header.batch_length, leader_epoch)
            segment.file.write(position, batch)
        except DiskError:
            self.offline = True
            raise
        segment.size = position + size
        self.log_end_offset = last_offset + 1
        segment.tail_last.append(last_offset)
        segment.tail_positions.append(position)
        if len(segment.tail_last) > TAIL_BATCHES:
            segment.trim_tail()
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last_offset
        if position - segment.indexed_position > config.index_interval_bytes:
            segment.index(last_offset, position, config)
        elif not position:
            segment.first_timestamp = max_timestamp
            rolling.set_time(self)
        if header.producer_id >= 0:
            if header.attributes & _CONTROL:
                if marker is not None:
                    self.complete(segment, header, marker[0], first_offset, marker[1])
            else:
                self.producers.record(header, first_offset, last_offset)
        if header.attributes & _LOG_APPEND_TIME:
            return AppendInfo(first_offset, last_offset, max_timestamp)
        return AppendInfo(first_offset, last_offset)

    def append_replicated(
        self, records: memoryview, now_ms: int = 0, *, leader_epoch: int | None = None
    ) -> AppendInfo | None:
        """Append batches that a leader has given offsets, as a follower; None if there is not one whole batch.

        All are checked before any is written: each has its CRC, and offsets rise from the log's end on (compaction
        leaves gaps). Batches of a newer epoch than `leader_epoch`, the one we follow, are left out. Raises
        `KafkaError`; then nothing was appended.
        """
        if self.offline:
            self._refuse_offline()
        try:
            return replicated.append(self, records, now_ms, leader_epoch)
        except DiskError:
            self.offline = True
            raise

    def complete(
        self, segment: Segment, header: BatchHeader, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> None:
        """A transaction's marker is in the log: note its end, and in the index of `segment` if it was aborted."""
        ended = self.producers.complete(header, marker, offset, timestamp)
        if ended is not None and ended[0].aborted:
            completed, last_stable_offset = ended
            assert segment.aborted is not None
            segment.aborted.append(
                AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
            )

    def roll(self, now_ms: int) -> None:
        """Seal the active segment, whatever its size; no effect if it is empty."""
        if self._active.size:
            try:
                rolling.roll(self, self.log_end_offset, self.log_end_offset, now_ms)
            except DiskError:
                self.offline = True
                raise

    # Epochs.

    def begin_epoch(self, leader_epoch: int) -> None:
        """We lead from now on: the epoch starts at the log's end, at once and before any append (KIP-279).

        Only in memory until a batch makes it matter: an epoch without batches decides nothing after a crash.
        """
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self._settled_epoch = -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ends (exclusive); (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # Reading.

    def read(self, offset: int, *, max_bytes: int, upper_bound: int, min_one: bool = True) -> FileSpan | None:
        """Whole batches of one segment from the one that holds `offset` on, all of them below `upper_bound`; None if
        there are none.

        At most `max_bytes`, but with `min_one` never less than one batch. Raises OFFSET_OUT_OF_RANGE outside
        [log start, log end].
        """
        if self.offline:
            self._refuse_offline()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is outside [{self.log_start_offset}, {end_offset}] of {self.topic_partition}.",
            )
        if offset >= upper_bound or offset == end_offset:
            return None
        segment = self._active
        if not 0 <= segment.tail_start <= offset:
            found = self._segments.find(
                offset,
                max_bytes=max_bytes,
                upper_bound=upper_bound,
                log_end_offset=end_offset,
                min_one=min_one,
                interval=self.config.index_interval_bytes,
            )
            return None if found is None else FileSpan(found[0].file, found[1], found[2] - found[1])
        last_offsets, positions = segment.tail_last, segment.tail_positions
        slot = bisect_left(last_offsets, offset)
        start = positions[slot]
        end = segment.size
        if upper_bound < end_offset:
            end = positions[bisect_left(last_offsets, upper_bound, slot)]
            if end == start:
                return None
        if end - start > max_bytes:
            first_end = positions[slot + 1] if slot + 1 < len(positions) else end
            if first_end - start > max_bytes:
                if not min_one:
                    return None
                end = first_end
            else:
                end = positions[bisect_right(positions, start + max_bytes, slot) - 1]
        return FileSpan(segment.file, start, end - start)

    def aborted_transactions(self, first: int, upper: int) -> list[AbortedTxn]:
        """Every aborted transaction that overlaps [first, upper), also those begun before `first`."""
        return self._segments.aborted_transactions(first, upper)

    def aborted_transactions_in(self, offset: int, span: FileSpan, upper: int) -> list[AbortedTxn]:
        """The same of what `read` gave for `offset`: everything from there to the end of `span`, and little more."""
        return self._segments.aborted_transactions(
            offset, min(upper, self._segments.end_of(offset, span, self.log_end_offset))
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record stamped `timestamp` or later; None if there is none."""
        return timestamps.first_at_or_after(self._segments, timestamp, self.log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp (KIP-734); None if no record has one."""
        return timestamps.latest(self._segments)

    # Moving the bounds.

    def update_high_watermark(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.high_watermark = offset
        if self.producers.has_unreplicated:
            self.producers.on_high_watermark(offset)

    def advance_log_start(self, offset: int) -> bool:
        """Give up everything before `offset`; files go with the next retention pass. True if that was news."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot move the log start of {self.topic_partition} to {offset}, beyond the high watermark "
                f"{self.high_watermark}.",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.producers.on_high_watermark(offset)
        self.epochs.truncate_from_start(offset)
        return True

    def truncate_to(self, offset: int) -> bool:
        """Cut everything at and after `offset`, as a follower whose leader has another history. True if records went.

        The epochs are trimmed in any case: we may have begun one as a leader and appended nothing (KIP-279). What is
        cut must be gone for good before anything takes its place: flush while `cut_unsynced`, away from the loop, or
        the next append does it on the spot.
        """
        if self.offline:
            self._refuse_offline()
        try:
            return truncation.truncate(self, offset)
        except DiskError:
            self.offline = True
            raise

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None, now_ms: int = 0) -> None:
        """Drop every record and go on at `offset`."""
        if self.offline:
            self._refuse_offline()
        try:
            truncation.start_over(self, offset, offset if log_start_offset is None else log_start_offset, now_ms)
        except DiskError:
            self.offline = True
            raise

    def settle_swap(self, now_ms: int) -> None:
        """Finish a swap that is under way, here and now. Blocks if there is one."""
        if self._swap is not None:
            swap = self._swap
            swap.settle()
            swap.finish(now_ms)

    def settle_cut(self) -> None:
        """Make the last cut durable, here and now. Blocks."""
        self._active.file.sync()
        self._disk.sync_dir(self.directory)
        self.cut_unsynced = False
        epoch_file.settle(self)

    # Retention.

    def delete_expired(self, now_ms: int) -> list[Segment]:
        """Detach the segments that the topic's retention gives up, oldest first and never at or above the high
        watermark; the log start moves with them. `delete_detached` then takes their files away.

        If all of them go, a new active segment is rolled first.
        """
        if self.offline or self._swap is not None:
            return []
        return retention.detach_expired(self, now_ms)

    def delete_detached(self, now_ms: int) -> int:
        """Mark the files of detached segments as deleted; call once the new log start is on the disk.

        They are removed `file.delete.delay.ms` later (`remove_deleted`). How many segments that were.
        """
        try:
            return self._graveyard.mark_deleted(
                self.snapshots, now_ms + self.config.file_delete_delay_ms, flushing=self._flush is not None
            )
        except DiskError:
            self.offline = True
            raise

    def begin_removal(self, now_ms: int) -> list[Callable[[], None]]:
        """What takes away the files whose delay is over. Each step blocks, and may run in a thread."""
        return [partial(self._remove, path) for path in self._graveyard.take_due(now_ms)]

    def _remove(self, path: str) -> None:
        try:
            self._disk.forget_pages(path)
            self._disk.remove(path)
        except DiskError:
            self.offline = True
            raise

    def _give_up(self, segment: Segment) -> None:
        """Of a cut: its files are named as deleted here and now, and removed with others of that kind. To remove them
        would take the system a quarter of a second a gigabyte."""
        self._retire(segment)
        self._graveyard.doom(segment.rename_deleted(), 0)

    def _retire(self, segment: Segment) -> None:
        self._segments.cache.forget(segment)
        self._graveyard.close(segment, flushing=self._flush is not None)

    # Flushing.

    def flush_due(self, now_ms: int) -> bool:
        """Does the topic's policy, or a sealed segment, ask for a flush?"""
        if self.rolled:
            return True
        is_flushed = self.log_end_offset == self.recovery_point
        return self.owes_flush or (not is_flushed and now_ms - self.last_flush_ms >= self.config.flush_ms)

    def prepare_flush(self, *, sync_parent: bool = True) -> Flush:
        """Capture what makes everything appended so far durable. One flush at a time."""
        if self.offline:
            self._refuse_offline()
        self._flush = flush.prepare(self, sync_parent=sync_parent)
        return self._flush

    def on_flushed(self, done: Flush, now_ms: int) -> None:
        """`done.run` returned: the recovery point moves to where the log ended when it was prepared."""
        assert done is self._flush
        self._flush = None
        flush.finish(self, done, now_ms)

    def on_flush_ended(self, ended: Flush) -> None:
        """`ended.run` failed, or nobody wants the log any more: nothing is known to be on the disk."""
        assert ended is self._flush
        self._flush = None
        self.offline = True
        self._close_files()

    def flush(self, now_ms: int, *, sync_parent: bool = True) -> None:
        """Prepare, run and note a flush, here and now. Blocks."""
        prepared = self.prepare_flush(sync_parent=sync_parent)
        prepared.run()
        self.on_flushed(prepared, now_ms)

    # Ending.

    def close(self, now_ms: int) -> None:
        """Write out and sync everything, so that a start after it needs no recovery. Blocks; raises `DiskError`.

        What did not change since it was loaded is not written. The directory above is left to the caller to sync, once
        for all of its logs.
        """
        if self.offline:
            self._refuse_offline()
        try:
            closing.write_out(self, now_ms)
        except DiskError:
            self.offline = True
            raise
        self.abandon()

    def abandon(self) -> None:
        """Close all files as they are: after a clean close, before a deletion, or when the disk has failed.

        While a flush is under way it needs them; then they are closed when it ends (`on_flush_ended`).
        """
        self.set_aside()
        if self._flush is None:
            self._close_files()

    def set_aside(self) -> None:
        """Another log has taken its place: nothing more is read or written here, and its files are closed only by
        `abandon`, since what was read from them before may still be on its way."""
        self.offline = True
        if self._swap is not None:
            self._swap.cancel()
            self._swap = None

    def on_moved(self, directory: str) -> None:
        """Its directory was renamed. Everything in it must have been flushed."""
        assert self._flush is None
        assert self._swap is None
        self.directory = directory
        self.snapshots.on_moved(directory)
        for segment in self._segments:
            segment.on_moved(directory)

    def _close_files(self) -> None:
        for segment in self._segments:
            self._segments.cache.forget(segment)
            segment.close()
        self._graveyard.close_all()

    # Refusing.

    def _refuse_offline(self) -> NoReturn:
        raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self.topic_partition} is offline.")

    def _refuse_too_large(self, size: int) -> NoReturn:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A batch of {size} bytes exceeds the segment size of {self.config.segment_bytes}.",
        )
