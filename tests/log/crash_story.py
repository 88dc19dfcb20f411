"""A life of some partitions, told to a disk that may stop at any moment, and what must hold whenever it does.

`Chronicle` keeps what was promised: which batches were appended, how far a flush returned, what was deleted or closed.
`check_after_crash` brings a manager up on the disk that a crash left and holds it against the chronicle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ottla.errors import ErrorCode
from ottla.log import Log, LogConfig, LogManager, files
from ottla.log.append import AppendOrigin
from ottla.log.checkpoints import decode_epochs, decode_offsets
from ottla.log.epochs import LeaderEpochCache
from ottla.log.offset_index import OffsetIndex
from ottla.log.producer_replay import apply_to_producers
from ottla.log.producers import ProducerStates
from ottla.log.segment import Segment
from ottla.log.time_index import TimeIndex
from ottla.model import TopicPartition, Uuid
from ottla.records import crc_is_valid, read_header
from ottla.runtime.seams import DiskError

from .faulty_disk import FaultyDisk, Survival
from .story import DIRECTORY, NOW, all_batches, batch, marker

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)
CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=150, segment_ms=10_000, retention_bytes=2100, retention_ms=-1
)
CHECKPOINTS = (files.RECOVERY_POINT_CHECKPOINT, files.LOG_START_CHECKPOINT, files.HIGH_WATERMARK_CHECKPOINT)


def topic_id(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number]))


@dataclass(slots=True, kw_only=True)
class Promised:
    """What one log has promised so far."""

    topic_id: Uuid
    histories: list[list[bytes]] = field(default_factory=lambda: [[]])
    """Every batch from offset 0 on; a new list from each truncation on. The last is the present."""
    in_flight: bytes | None = None
    """An append that has begun and not returned."""
    truncating_to: int | None = None
    flushed: int = 0
    """How far a flush returned, since the last truncation."""
    flushes: int = 0
    """How often histories became impossible."""
    synced: int = 0
    """How far a sync may have reached, though nothing was promised: in a close that failed later."""
    end: int = 0
    start_max: int = 0
    high_watermark_max: int = 0

    @property
    def history(self) -> list[bytes]:
        return self.histories[-1]

    def forget_other_histories(self) -> None:
        """After a flush only those may come back that agree with the present as far as it was flushed."""
        self.flushes += 1
        present = [data for data in self.history if read_header(data).next_offset <= self.flushed]
        self.histories = [
            history
            for history in self.histories
            if [data for data in history if read_header(data).next_offset <= self.flushed] == present
        ]


@dataclass(slots=True)
class Chronicle:
    logs: dict[TopicPartition, Promised] = field(default_factory=dict)
    gone: set[Uuid] = field(default_factory=set)
    """Topics whose deletion is durable."""
    going: set[Uuid] = field(default_factory=set)
    """Topics in the middle of being deleted."""
    closed: bool = False
    """A clean shutdown has completed and nothing was started since."""
    closing: bool = False

    def promises(self) -> tuple[object, ...]:
        """All that a power loss may not break. Appends that were not flushed are not among them: they only add to what
        may be there."""
        at_rest = self.closed or self.closing
        logs = (
            (partition, each.topic_id, each.flushes, each.flushed, each.synced, each.start_max, each.truncating_to)
            + ((each.end,) if at_rest else ())
            for partition, each in sorted(self.logs.items())
        )
        return (*logs, frozenset(self.gone), frozenset(self.going), self.closed, self.closing)


class Seen:
    """Disks that were looked at already, by their states."""

    def __init__(self) -> None:
        self.lost: set[tuple[bytes, tuple[object, ...], bool, bool]] = set()
        """As power losses left them, with what was promised then."""
        self.recovered: set[tuple[bytes, bool]] = set()
        """As a recovery left them."""


class Life:
    """Drives a manager through the story. Each step keeps the chronicle right at every disk operation."""

    def __init__(self, disk: FaultyDisk, config: LogConfig = CONFIG) -> None:
        self.disk = disk
        self.config = config
        disk.make_dirs(DIRECTORY)
        disk.root.sync()  # Formatting a directory makes it durable.
        self.chronicle = Chronicle()
        self.manager = self._start()
        self.random = Random(3)
        self.sequences: dict[tuple[Uuid, int], int] = {}
        self.random_values = 0
        self.now = NOW

    def _start(self) -> LogManager:
        manager = LogManager(self.disk, [DIRECTORY], random=Random(5))
        manager.lock()
        manager.load(lambda topic: self.config, NOW)
        self.chronicle.closed = False  # From here on a marker would be a lie.
        return manager

    def log(self, partition: TopicPartition) -> Log:
        return self.manager.logs[partition]

    def create(self, partition: TopicPartition, number: int) -> None:
        self.chronicle.logs[partition] = Promised(topic_id=topic_id(number))
        self.manager.create(partition, topic_id(number), self.config, self.now)

    def append(
        self,
        partition: TopicPartition,
        *,
        epoch: int,
        producer_id: int = -1,
        transactional: bool = False,
        end_txn: bool | None = None,
        records: int = 2,
    ) -> None:
        log, promised = self.log(partition), self.chronicle.logs[partition]
        self.now += 7
        guard = None
        origin = AppendOrigin.CLIENT
        if end_txn is not None:
            data = marker(commit=end_txn, producer_id=producer_id, producer_epoch=0)
            origin = AppendOrigin.COORDINATOR
        else:
            key = (promised.topic_id, producer_id)
            sequence = self.sequences.get(key, 0) if producer_id >= 0 else -1
            data = batch(
                records,
                timestamp=self.now,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                sequence=sequence,
                transactional=transactional,
                value=bytes([65 + self.random.randrange(26)]) * self.random.randrange(5, 40),
            )
            if transactional:
                guard = log.producers.start_verification(producer_id, sequence, 0, self.now)
            if producer_id >= 0:
                self.sequences[key] = sequence + records
        promised.in_flight = bytes(data)
        info = log.append(
            data,
            read_header(data),
            leader_epoch=epoch,
            now_ms=self.now,
            origin=origin,
            verification_guard=guard,
        )
        promised.in_flight = None
        promised.history.append(bytes(data))
        promised.end = info.last_offset + 1
        log.update_high_watermark(log.log_end_offset)
        promised.high_watermark_max = max(promised.high_watermark_max, log.high_watermark)

    def flush(self, partition: TopicPartition) -> None:
        log, promised = self.log(partition), self.chronicle.logs[partition]
        log.flush(self.now)
        promised.flushed = max(promised.flushed, log.recovery_point)
        promised.forget_other_histories()

    def flush_while_appending(self, partition: TopicPartition, *, epoch: int) -> None:
        """A flush in a thread: it is prepared, the log goes on, and only what it was prepared for is promised."""
        log, promised = self.log(partition), self.chronicle.logs[partition]
        flush = log.prepare_flush()
        for _ in range(4):
            self.append(partition, epoch=epoch, producer_id=9)
        flush.run()
        log.on_flushed(flush, self.now)
        promised.flushed = max(promised.flushed, log.recovery_point)
        assert log.recovery_point < log.log_end_offset

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        log, promised = self.log(partition), self.chronicle.logs[partition]
        kept = [data for data in promised.history if read_header(data).next_offset <= offset]
        promised.truncating_to = offset
        log.truncate_to(offset)
        promised.truncating_to = None
        promised.flushed = min(promised.flushed, offset)
        promised.synced = min(promised.synced, offset)
        promised.histories.append(kept)
        promised.end = log.log_end_offset
        for entry in log.producers.entries.values():
            self.sequences[promised.topic_id, entry.producer_id] = entry.next_sequence
        for key in list(self.sequences):
            if key[0] == promised.topic_id and key[1] not in log.producers.entries:
                del self.sequences[key]

    def replicate(self, partition: TopicPartition, *epochs: int, producer_id: int = -1) -> None:
        """As a follower: batches of these epochs come in one answer, all of one size, so that those of one history
        would fit among those of another."""
        log, promised = self.log(partition), self.chronicle.logs[partition]
        self.now += 7
        fetched: list[bytes] = []
        for epoch in epochs:
            base = promised.end if not fetched else read_header(fetched[-1]).next_offset
            self.random_values += 1
            key = (promised.topic_id, producer_id)
            sequence = self.sequences.get(key, 0) if producer_id >= 0 else -1
            data = batch(
                2,
                timestamp=self.now,
                base_offset=base,
                leader_epoch=epoch,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                sequence=sequence,
                value=b"%08d" % self.random_values,
            )
            if producer_id >= 0:
                self.sequences[key] = sequence + 2
            fetched.append(bytes(data))
        promised.histories.append([*promised.history, *fetched])
        log.append_replicated(memoryview(b"".join(fetched)), self.now, leader_epoch=epochs[-1])
        promised.end = log.log_end_offset
        log.update_high_watermark(log.log_end_offset - 1)
        promised.high_watermark_max = max(promised.high_watermark_max, log.high_watermark)

    def start_over(self, partition: TopicPartition, offset: int) -> None:
        log, promised = self.log(partition), self.chronicle.logs[partition]
        promised.truncating_to, promised.start_max = 0, max(promised.start_max, offset)
        log.truncate_fully_and_start_at(offset, now_ms=self.now)
        promised.truncating_to = None
        promised.flushed = promised.synced = 0
        promised.histories.append([])
        promised.end = offset
        self.sequences.clear()

    def retention(self) -> None:
        for partition, log in self.manager.logs.items():
            log.update_high_watermark(log.log_end_offset)
            self.chronicle.logs[partition].start_max = log.log_end_offset
        self.manager.apply_retention(self.now)

    def delete_records(self, partition: TopicPartition, offset: int) -> None:
        self.chronicle.logs[partition].start_max = max(offset, self.chronicle.logs[partition].start_max)
        self.log(partition).advance_log_start(offset)

    def delete_topic(self, partition: TopicPartition) -> None:
        identity = self.chronicle.logs[partition].topic_id
        self.chronicle.going.add(identity)
        self.manager.delete([partition], self.now).run()
        del self.chronicle.logs[partition]
        self.chronicle.going.discard(identity)
        self.chronicle.gone.add(identity)

    def close(self) -> None:
        self.chronicle.closing = True
        self.manager.close(self.now, broker_epoch=4)
        self.chronicle.closing = False
        for partition, log in self.manager.logs.items():
            promised = self.chronicle.logs[partition]
            promised.synced = max(promised.synced, log.recovery_point)
            if not self.manager.directories[DIRECTORY].offline:
                promised.flushed = max(promised.flushed, log.recovery_point)
        if not self.disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}"):
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the shutdown was not clean: somebody looks at the disk now")
        self.chronicle.closed = True

    def restart(self) -> None:
        self.close()
        self.manager = self._start()

    def tell(self) -> None:
        """Appends, rolls, flushes, checkpoints, retention, deletions, truncations, shutdowns: the whole story."""
        self.create(A0, 1)
        self.create(A1, 2)
        for i in range(12):
            self.append(A0, epoch=0, producer_id=9 if i % 2 else -1)
            if i % 3 == 0:
                self.append(A1, epoch=0, producer_id=5, transactional=True)
        self.append(A1, epoch=0, producer_id=5, end_txn=False)
        self.flush(A0)
        self.manager.prepare_checkpoints().run()
        for i in range(10):
            self.append(A0, epoch=2, producer_id=9)
            if i % 4 == 0:
                self.append(A1, epoch=1, producer_id=6)
        self.flush(A1)
        self.retention()
        self.manager.prepare_high_watermark_checkpoints().run()
        self.flush(A0)
        self.manager.prepare_checkpoints().run()
        self.log(A0).begin_epoch(3)
        for _ in range(6):
            self.append(A0, epoch=3, producer_id=9, records=1)
        self.flush_while_appending(A0, epoch=4)
        self.delete_records(A0, self.log(A0).log_end_offset - 9)
        self.manager.prepare_checkpoints().run()
        self.retention()
        self.manager.remove_deleted(self.now + 100_000)
        self.create(B0, 3)
        for _ in range(9):
            self.append(B0, epoch=0, producer_id=8)
        self.flush(B0)
        self.manager.prepare_checkpoints().run()
        self.append(A1, epoch=1, producer_id=5, transactional=True)
        self.restart()
        self.append(A1, epoch=2, producer_id=5, end_txn=True)
        self.append(A0, epoch=5, producer_id=9)
        self.truncate(B0, 10)
        for _ in range(5):
            self.append(B0, epoch=2, producer_id=4)
        self.truncate(B0, 13)
        self.append(B0, epoch=3, producer_id=4)
        self.flush(B0)
        self.truncate(A1, self.log(A1).log_end_offset - 3)
        self.delete_topic(B0)
        self.create(B0, 4)
        self.append(B0, epoch=0)
        self.append(B0, epoch=0)
        self.manager.remove_deleted(self.now + 1_000_000)
        for _ in range(3):
            self.append(A0, epoch=5, producer_id=9)
        self.close()
        self.manager = self._start()
        self.append(A0, epoch=6, producer_id=9)

    def tell_as_a_follower(self) -> None:
        """Answers of many batches, cuts within them, at once after a flush or before any, and a start from nothing."""
        self.create(A0, 1)
        self.create(B0, 2)
        self.replicate(A0, 0, 0, 0, 1, producer_id=9)
        self.replicate(A0, 1, 1)
        self.truncate(A0, 8)
        self.replicate(A0, 2, 2, 2, 3)
        self.flush(A0)
        self.manager.prepare_checkpoints().run()
        self.replicate(A0, 3, 3, 3, 3, producer_id=9)
        self.truncate(A0, 18)
        self.log(A0).begin_epoch(5)
        self.log(A0).truncate_to(18)
        self.replicate(A0, 6)
        self.replicate(A0, 6, 6, 6, 7, 7, 7, producer_id=9)
        self.manager.prepare_high_watermark_checkpoints().run()
        # Below what was flushed, across segments, and with a flush under way.
        self.flush(A0)
        self.truncate(A0, 12)
        self.replicate(A0, 8, 8, 8, 8, 8, 8, 8)
        flush = self.log(A0).prepare_flush()
        self.truncate(A0, 20)
        self.replicate(A0, 9, 9, 9)
        flush.run()
        self.log(A0).on_flushed(flush, self.now)
        self.chronicle.logs[A0].flushed = self.log(A0).recovery_point
        self.replicate(A0, 9, 9)
        for epoch in range(10, 16):
            self.replicate(B0, epoch, epoch, producer_id=4)
            self.replicate(B0, epoch, producer_id=4)
            self.truncate(B0, self.log(B0).log_end_offset - 4)
        self.flush(B0)
        self.manager.prepare_checkpoints().run()
        self.start_over(B0, 6)
        self.replicate(B0, 17, 17, 18, producer_id=4)
        self.start_over(B0, 300)
        self.replicate(B0, 19, 19, 19, producer_id=4)
        self.flush(B0)
        self.restart()
        self.replicate(B0, 20, 20, producer_id=4)
        self.truncate(B0, 304)
        self.replicate(B0, 21)


# What must hold.


def check_after_crash(
    disk: FaultyDisk,
    chronicle: Chronicle,
    config: LogConfig,
    *,
    seen: Seen,
    power_loss: bool,
    sick: bool = False,
    recovering: bool = False,
) -> None:
    """Everything that the crash may not have broken, on the disk as it was left.

    If it came while `recovering` from another, that recovery may have flushed more than the chronicle knows. A `sick`
    disk has failed a sync: its page cache shows what will never reach it, and no later sync helps. What was `seen`
    before, under the same promises, need not be looked at again.
    """
    if power_loss:
        found = (disk.state(), chronicle.promises(), recovering, sick)
        if found in seen.lost:
            return
        seen.lost.add(found)
    honest_marker = disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")
    if honest_marker:
        # E5: the marker is the last thing that a clean shutdown writes, and is gone before anything else happens.
        assert chronicle.closed or chronicle.closing
    recovery_points = check_checkpoints(disk, chronicle, recovering=recovering)
    if not disk.is_dir(DIRECTORY):
        return
    manager = LogManager(disk, [DIRECTORY], random=Random(1))
    manager.lock()
    manager.load(lambda topic: config, NOW)
    assert not disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")
    for log in manager.logs.values():
        check_log(disk, log, chronicle, power_loss=power_loss, clean=honest_marker)
        if log.topic_id not in chronicle.going:
            assert log.log_end_offset >= recovery_points.get(log.topic_partition, 0)  # E3: it was all there.
    if not power_loss:
        missing = chronicle.logs.keys() - manager.logs.keys()
        assert all(chronicle.logs[tp].end == 0 or chronicle.logs[tp].topic_id in chronicle.going for tp in missing)
    for partition, promised in chronicle.logs.items():
        if promised.flushed and promised.topic_id not in chronicle.going:
            assert partition in manager.logs, "a flushed log is there"
    # From here on nothing depends on what was promised: many crashes come to the same.
    recovered = (disk.state(), sick)
    if recovered in seen.recovered:
        return
    seen.recovered.add(recovered)
    before = {tp: [data for _, data in all_batches(log)] for tp, log in manager.logs.items()}

    # E4: what was served once does not vanish in a second crash, though nothing was flushed since.
    if not sick:
        second = disk.after_power_loss(Survival.NOTHING, Random(0))
        again = LogManager(second, [DIRECTORY], random=Random(1))
        again.load(lambda topic: config, NOW)
        for tp, log in again.logs.items():
            assert [data for _, data in all_batches(log)] == before[tp]
        assert all(before[tp] == [] for tp in before.keys() - again.logs.keys())

    check_restarts(disk, manager, config, before)


def check_checkpoints(disk: FaultyDisk, chronicle: Chronicle, *, recovering: bool) -> dict[TopicPartition, int]:
    """E8: no checkpoint is torn. E3: no recovery point is ahead of what was flushed. Returns the recovery points."""
    recovery_points: dict[TopicPartition, int] = {}
    for path, content in disk.files().items():
        name = path.rpartition("/")[2]
        if name in CHECKPOINTS:
            offsets = decode_offsets(content)
            assert offsets is not None, f"{path} is torn: {content!r}"
            if name == files.RECOVERY_POINT_CHECKPOINT:
                recovery_points = offsets
            if name == files.RECOVERY_POINT_CHECKPOINT and not recovering:
                for partition, offset in offsets.items():
                    promised = chronicle.logs.get(partition)
                    if promised is not None and promised.topic_id not in chronicle.going and not chronicle.closing:
                        assert offset <= max(promised.flushed, promised.synced, promised.start_max)
    return recovery_points


def check_log(disk: FaultyDisk, log: Log, chronicle: Chronicle, *, power_loss: bool, clean: bool) -> None:
    assert log.topic_id not in chronicle.gone, "a deleted topic is back"
    if log.topic_id in chronicle.going:
        return
    promised = chronicle.logs.get(log.topic_partition)
    if promised is None or (power_loss and log.topic_id != promised.topic_id):
        # Its creation was under way, or its identity never reached the disk: then neither did a flush.
        assert promised is None or promised.flushed == 0
        return
    assert log.topic_id == promised.topic_id
    found = [data for _, data in all_batches(log)]

    # E1: whole batches with their CRC, without a gap, and nothing but what was written, in order.
    offset = None
    for data in found:
        header = read_header(data)
        assert crc_is_valid(data, 0, len(data))
        assert offset is None or header.base_offset == offset
        offset = header.next_offset
    assert log.log_end_offset == (offset if offset is not None else log.log_start_offset)
    assert any(is_slice_of(found, history, promised.in_flight, log.log_start_offset) for history in promised.histories)

    # E2: what a flush returned for is there. A process crash loses nothing that was written.
    lowest = promised.end if clean or not power_loss else promised.flushed
    if promised.truncating_to is not None:
        lowest = min(lowest, promised.truncating_to)
    assert log.log_end_offset >= lowest

    # E15: only what was below the high watermark may be gone from the start.
    assert log.log_start_offset <= max(promised.start_max, 0)
    assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
    assert log.recovery_point == log.log_end_offset, "what recovery kept is flushed"
    check_derived(disk, log)


def is_slice_of(found: list[bytes], history: list[bytes], in_flight: bytes | None, log_start: int) -> bool:
    """Is `found` what `history` (or it and the append under way) holds from the log start to some point?"""
    kept = [data for data in history if read_header(data).next_offset > log_start]
    if found == kept[: len(found)]:
        return True
    # The append under way was patched after it was noted: compare what lies under the CRC.
    return in_flight is not None and found[:-1] == kept and found[-1][16:] == in_flight[16:]


def check_derived(disk: FaultyDisk, log: Log) -> None:
    """E6 and E7: epochs, producers and indexes are what the batches say."""
    batches = all_batches(log)
    epochs = LeaderEpochCache()
    for header, _ in batches:
        epochs.assign(header.leader_epoch, header.base_offset)
    epochs.truncate_from_start(log.log_start_offset)
    assert [entry for entry in log.epochs.entries if entry[1] < log.log_end_offset] == epochs.entries

    replayed = ProducerStates()
    for header, data in batches:
        apply_to_producers(replayed, header, memoryview(data))
    for producer_id, entry in replayed.entries.items():
        known = log.producers.entries[producer_id]
        assert (known.epoch, known.last_sequence) == (entry.epoch, entry.last_sequence)
        if entry.txn_first_offset >= 0:
            assert known.txn_first_offset >= 0
    for entry in log.producers.entries.values():
        assert not entry.batches or entry.batches[-1].last_offset < log.log_end_offset

    for segment in log._segments:
        offsets, times = segment.build_indexes(note_end=log.config.compact and segment is not log._active)
        assert segment.offset_index(log._segments.cache).encode() == offsets.encode()
        assert segment.largest_timestamp() == times.last[0]
        check_times(segment, segment.time_index(log._segments.cache), final=segment is not log._active)


def check_times(segment: Segment, times: TimeIndex, *, final: bool) -> None:
    """Every entry is a running maximum: nothing up to its offset is newer, and the batch at it is as new."""
    from ottla.log import scan

    largest: dict[int, int] = {}
    so_far = -1
    for _, header in scan.headers(segment.file, 0, segment.size):
        if header.record_count:  # One that compaction emptied has no timestamp.
            so_far = max(so_far, header.max_timestamp)
        largest[header.last_offset - segment.base_offset] = so_far
    for timestamp, offset in zip(times.timestamps, times.relative_offsets, strict=True):
        assert largest[offset] == timestamp
    if final and segment.size:
        assert times.last[0] == so_far


def check_restarts(
    disk: FaultyDisk, manager: LogManager, config: LogConfig, before: dict[TopicPartition, list[bytes]]
) -> None:
    """E18: after a clean close, a restart changes nothing but checkpoints, and the files agree with a rebuild."""
    manager.close(NOW, broker_epoch=9)
    left = _without_checkpoints(disk)
    for _ in range(2):
        manager = LogManager(disk, [DIRECTORY], random=Random(1))
        manager.lock()
        manager.load(lambda topic: config, NOW)
        assert manager.directories[DIRECTORY].was_clean
        assert {tp: [data for _, data in all_batches(log)] for tp, log in manager.logs.items()} == before
        manager.close(NOW, broker_epoch=9)
        assert _without_checkpoints(disk) == left
    for path, content in left.items():
        if path.endswith(files.OFFSET_INDEX):
            log_file = path.removesuffix(files.OFFSET_INDEX) + files.LOG
            assert log_file in left
            assert OffsetIndex.decode(content, max(1, len(left[log_file]))) is not None
        if path.endswith(files.LEADER_EPOCH_CHECKPOINT):
            assert decode_epochs(content) is not None


def _without_checkpoints(disk: FaultyDisk) -> dict[str, bytes]:
    return {
        path: content
        for path, content in disk.files().items()
        if path.rpartition("/")[2] not in (*CHECKPOINTS, files.CLEAN_SHUTDOWN) and files.DELETE_DIRECTORY not in path
    }
