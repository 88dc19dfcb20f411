"""What the tests of compaction share: a pass from beginning to end, and logs made by chance."""

from __future__ import annotations

from random import Random

from ottla.log import Log, LogManager
from ottla.log.append import AppendOrigin
from ottla.log.cleaner import CleaningSettings, LogCleaned, SegmentCleaned, assess, begin_pass, clean
from ottla.records import BatchBuilder, BatchHeader, CompressionType, Record, iterate, read_header
from ottla.runtime.seams import Disk
from tests.seams.surroundings import InlineApart

from .story import NOW, all_batches, append, marker

SETTINGS = CleaningSettings(map_bytes=1 << 20, io_bytes=1 << 12)


def keyed(
    pairs: list[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int = NOW,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: CompressionType = CompressionType.NONE,
    log_append_time_ms: int | None = None,
) -> memoryview:
    """One batch with these keys and values; None as a value is a tombstone."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
        log_append_time_ms=log_append_time_ms,
    )
    for index, (key, value) in enumerate(pairs):
        builder.append(timestamp + index, key, value, ((b"h", b"x"),) if index % 3 == 1 else ())
    return memoryview(builder.build())


def write(log: Log, *pairs: tuple[str, str | None], **more: int) -> None:
    """One batch of text keys and values, seen by everybody."""
    encoded: list[tuple[bytes | None, bytes | None]] = [
        (key.encode(), None if value is None else value.encode()) for key, value in pairs
    ]
    append(log, keyed(encoded, **more))  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)


def seal(log: Log, now_ms: int = NOW) -> None:
    """Close the active segment, and put it on the disk."""
    log.roll(now_ms)
    log.flush(now_ms)


def compact(
    disk: Disk, manager: LogManager, log: Log, now_ms: int = NOW, settings: CleaningSettings = SETTINGS
) -> LogCleaned:
    """One pass, whether it is due or not, and everything that follows from it."""
    manager.prepare_recovery_point_checkpoints().run()
    current = begin_pass(disk, assess(log, now_ms), settings, Random(3), now_ms)

    def swap_in(cleaned: SegmentCleaned) -> None:
        swap = current.swap(cleaned)
        swap.prepare()
        assert swap.begin()
        swap.run()
        swap.finish(now_ms)

    cleaned = clean(disk, current.task, InlineApart(swap_in))
    assert current.finish(cleaned)
    manager.prepare_cleaner_checkpoint(log).run()
    return cleaned


def records(log: Log) -> list[tuple[BatchHeader, Record]]:
    """Every record of data that is there, with its batch's header."""
    return [(header, record) for header, data in all_batches(log) if not header.is_control for record in iterate(data)]


def texts(log: Log) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for _, record in records(log)
    ]


class ChanceWriter:
    """Producers of every kind at work on one log: plain, idempotent, and transactional ones that commit and abort."""

    def __init__(self, log: Log, seed: int, keys: int = 12) -> None:
        self.log = log
        self.random = Random(seed)
        self.keys = keys
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        """By producer: the offsets of its open transaction."""
        self.aborted: set[int] = set()
        """Offsets of records that were aborted."""
        self.now_ms = NOW
        self.leader_epoch = 0

    def step(self) -> None:
        random = self.random
        self.now_ms += random.randrange(50)
        choice = random.random()
        if choice < 0.03:
            self.leader_epoch += 1
        elif choice < 0.10:
            seal(self.log, self.now_ms)
        elif choice < 0.25 and self.open:
            self.end(random.choice(list(self.open)), commit=random.random() < 0.5)
        else:
            self.data()
        self.log.update_high_watermark(self.log.log_end_offset)

    def data(self) -> None:
        random = self.random
        producer = random.choice((-1, 1, 2, 11, 12, 13))
        pairs = [self.pair() for _ in range(random.randint(1, 6))]
        transactional = producer > 10
        epoch = self.epochs.setdefault(producer, 0) if producer >= 0 else -1
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
        data = keyed(
            pairs,
            timestamp=self.now_ms,
            producer_id=producer,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=transactional,
            compression=random.choice((CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD)),
            log_append_time_ms=self.now_ms if random.random() < 0.2 else None,
        )
        info = append(self.log, data, epoch=self.leader_epoch, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)
        if transactional:
            self.open.setdefault(producer, []).extend(range(info.first_offset, info.last_offset + 1))

    def pair(self) -> tuple[bytes | None, bytes | None]:
        random = self.random
        key = b"key-%d" % random.randrange(self.keys)
        return key, None if random.random() < 0.2 else random.randbytes(random.randrange(1, 40))

    def end(self, producer: int, *, commit: bool) -> None:
        offsets = self.open.pop(producer)
        if not commit:
            self.aborted.update(offsets)
        bump = self.random.random() < 0.5  # Transactions of version 2 have an epoch each (KIP-890).
        if bump:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        data = marker(commit=commit, producer_id=producer, producer_epoch=self.epochs[producer])
        append(self.log, data, epoch=self.leader_epoch, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)

    def end_all(self) -> None:
        for producer in list(self.open):
            self.end(producer, commit=self.random.random() < 0.5)
        self.log.update_high_watermark(self.log.log_end_offset)


def header_of(log: Log, offset: int) -> BatchHeader:
    """Of the batch that a read at `offset` begins with."""
    span = log.read(offset, max_bytes=1, upper_bound=log.log_end_offset)
    assert span is not None
    return read_header(span.file.read(span.position, span.size))
