"""The metadata log of this node with its snapshots: what the raft machine asks about, and the state machine reads.

Owned by the raft driver. Batches are decoded when they are appended, by whomever, and wait in `_uncommitted` until the
high watermark has passed them; what is truncated before that was never seen by anybody.

Invariant: the log begins at the end of the oldest snapshot, or at zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.broker.control.stores import SnapshotStore
from ottla.errors import Malformed, StartupError
from ottla.log.append import AppendOrigin
from ottla.log.log import Log
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.state import MetadataBatch
from ottla.raft.checkpoint import BOOTSTRAP_SNAPSHOT, Checkpoint, SnapshotId
from ottla.raft.control_records import ControlFact, ControlRecord, control_batch, read_control_batch
from ottla.records import BatchBuilder, BatchHeader, batches, crc_is_valid, iterate, read_header
from ottla.runtime.seams import Disk, FileSpan

_READ_BYTES = 1 << 20


class LoadedSnapshot(NamedTuple):
    snapshot: SnapshotId
    checkpoint: Checkpoint
    records: list[MetadataRecord]


class MetadataLog:
    """Also the machine's view of the log (`raft.log_view.RaftLog`)."""

    def __init__(self, disk: Disk, log: Log) -> None:
        self.log = log
        self.snapshots = SnapshotStore(disk, log.directory)
        self._uncommitted: deque[MetadataBatch] = deque()

    # What the raft machine asks.

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        latest = self.log.epochs.latest_epoch
        return self._start_epoch if latest is None else latest

    @property
    def _start_epoch(self) -> int:
        """Of what was before the log's start."""
        start = self.log.log_start_offset
        return next((snapshot.epoch for snapshot in self.snapshots.sizes if snapshot.end_offset == start), 0)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ends."""
        log = self.log
        if epoch >= self.last_epoch:
            return self.last_epoch, log.log_end_offset
        if epoch < self._first_epoch:
            return self._start_epoch, log.log_start_offset
        return log.end_offset_for_epoch(epoch)

    @property
    def _first_epoch(self) -> int:
        first = self.log.epochs.epoch_for_offset(self.log.log_start_offset)
        return self.last_epoch if first is None else first

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return next((found for found in self.snapshots.sizes if found != BOOTSTRAP_SNAPSHOT), None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return next((found for found in reversed(self.snapshots.sizes) if found != BOOTSTRAP_SNAPSHOT), None)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self.snapshots.sizes.get(snapshot)

    # Starting.

    def load_snapshot(self) -> LoadedSnapshot | None:
        """The latest snapshot, which the log follows on. Blocks; raises `StartupError`."""
        log, store = self.log, self.snapshots
        store.scan()
        found = list(store.sizes)
        latest = found[-1] if found else None
        if log.log_start_offset > 0 and (latest is None or latest.end_offset < log.log_start_offset):
            raise StartupError(
                f"the metadata log in {log.directory} begins at offset {log.log_start_offset}, but no snapshot holds "
                f"what was before"
            )
        if latest is None:
            return None
        if log.log_start_offset > 0:
            # Segments go whole, so the first may begin before the snapshot that the log is to begin with.
            oldest = next(snapshot for snapshot in found if snapshot.end_offset >= log.log_start_offset)
            log.update_high_watermark(latest.end_offset)
            log.advance_log_start(min(oldest.end_offset, log.log_end_offset))
        try:
            checkpoint = store.read(latest)
            records = [decode_record(value) for value in checkpoint.values]
        except Malformed as error:
            raise StartupError(str(error)) from error
        if not self._leads_up_to(latest):
            # It was fetched when the log was behind or had gone astray, and the crash came before the log moved up.
            log.truncate_fully_and_start_at(latest.end_offset)
        for old in store.forget_before(log.log_start_offset):
            store.remove(old)
        return LoadedSnapshot(latest, checkpoint, records)

    def _leads_up_to(self, snapshot: SnapshotId) -> bool:
        log, end = self.log, snapshot.end_offset
        if not log.log_start_offset < end <= log.log_end_offset:
            return end <= log.log_start_offset
        return log.epochs.epoch_for_offset(end - 1) == snapshot.epoch

    def load_batches(self, offset: int) -> Iterator[ControlFact]:
        """Read the log from `offset` on, to its end; what the raft layer itself wrote comes out. Blocks.

        A batch that is not what was written is no reason to cut the log, as it would be in a topic: this node has told
        others that it keeps it, and with a shorter log it would help to elect one who does not have it.
        """
        try:
            for header, batch in self._read_from(offset):
                if not crc_is_valid(batch, 0, len(batch)):
                    raise StartupError(
                        f"the metadata log in {self.log.directory} is damaged at offset {header.base_offset} (its "
                        f"checksum is wrong): put back a copy of the directory, or take this node out of the quorum, "
                        f"format it anew and let it join again"
                    )
                yield from self._decode(header, batch)
        except Malformed as error:
            raise StartupError(f"the metadata log in {self.log.directory} cannot be read: {error}") from error

    def _read_from(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        log = self.log
        while offset < log.log_end_offset:
            span = log.read(offset, max_bytes=_READ_BYTES, upper_bound=log.log_end_offset)
            if span is None:
                break
            for header, batch in batches(memoryview(span.file.read(span.position, span.size))):
                offset = header.next_offset
                yield header, batch

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[ControlFact]:
        """Keep the batch until it is committed."""
        facts: list[ControlFact] = []
        records: list[MetadataRecord] = []
        if header.is_control:
            facts = list(read_control_batch(batch))
        else:
            records = [decode_record(record.value or b"") for record in iterate(batch)]
        self._uncommitted.append(
            MetadataBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, records)
        )
        return facts

    @property
    def uncommitted(self) -> list[MetadataBatch]:
        return list(self._uncommitted)

    # Appending.

    def append(self, records: Sequence[MetadataRecord], epoch: int, now_ms: int) -> MetadataBatch:
        """As the leader of `epoch`. Raises `KafkaError`; then nothing was appended."""
        builder = BatchBuilder(base_offset=self.log.log_end_offset, leader_epoch=epoch)
        for record in records:
            builder.append(now_ms, None, encode_record(record))
        return self._append(builder.build(), records, epoch, now_ms)

    def append_control(
        self, records: Sequence[ControlRecord], epoch: int, now_ms: int
    ) -> tuple[MetadataBatch, list[ControlFact]]:
        batch = control_batch(records, base_offset=self.log.log_end_offset, epoch=epoch, now_ms=now_ms)
        return self._append(batch, (), epoch, now_ms), list(read_control_batch(batch))

    def _append(self, batch: bytearray, records: Sequence[MetadataRecord], epoch: int, now_ms: int) -> MetadataBatch:
        info = self.log.append(
            memoryview(batch), read_header(batch), leader_epoch=epoch, now_ms=now_ms, origin=AppendOrigin.RAFT
        )
        appended = MetadataBatch(info.first_offset, info.last_offset, epoch, now_ms, records)
        self._uncommitted.append(appended)
        return appended

    def append_fetched(self, data: memoryview, leader_epoch: int, now_ms: int) -> list[ControlFact]:
        """As a follower: those of the leader's batches that continue the log, up to the first that does not.

        Raises `Malformed` where a batch is whole and says what this release does not understand; `DiskError`.
        """
        start = end = 0
        expected = self.log.log_end_offset
        found: list[tuple[BatchHeader, memoryview]] = []
        for header, batch in batches(data):
            if header.base_offset < expected:
                if found:
                    break
                start = end = end + header.size
                continue
            if (
                header.base_offset > expected
                or header.magic != 2
                or header.leader_epoch > leader_epoch
                or header.last_offset_delta < 0
                or not crc_is_valid(batch, 0, len(batch))
            ):
                break
            found.append((header, batch))
            end += header.size
            expected = header.next_offset
        if not found:
            return []
        before = len(self._uncommitted)
        facts = [fact for header, batch in found for fact in self._decode(header, batch)]
        try:
            self.log.append_replicated(data[start:end], now_ms)
        except BaseException:
            while len(self._uncommitted) > before:
                self._uncommitted.pop()
            raise
        return facts

    # Moving on.

    def take_committed(self, high_watermark: int) -> list[MetadataBatch]:
        """What became committed with `high_watermark`, in order."""
        taken: list[MetadataBatch] = []
        while self._uncommitted and self._uncommitted[0].last_offset < high_watermark:
            taken.append(self._uncommitted.popleft())
        return taken

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        end = self.log.log_end_offset
        while self._uncommitted and self._uncommitted[-1].last_offset >= end:
            self._uncommitted.pop()

    def restart_after(self, snapshot: SnapshotId, now_ms: int) -> None:
        """Everything in the log is now before `snapshot`, or was never committed."""
        self._uncommitted.clear()
        self.log.truncate_fully_and_start_at(snapshot.end_offset, now_ms=now_ms)

    def read(self, offset: int, max_bytes: int) -> FileSpan | None:
        """Batches for a follower, uncommitted ones too."""
        return self.log.read(offset, max_bytes=max_bytes, upper_bound=self.log.log_end_offset)
