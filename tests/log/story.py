"""What the log's tests share: batches, a manager on a disk in memory, and reading back what is there."""

from __future__ import annotations

from random import Random

from ottla.log import Log, LogConfig, LogManager
from ottla.log.append import AppendInfo, AppendOrigin
from ottla.model import TopicPartition, Uuid
from ottla.records import BatchBuilder, BatchHeader, CompressionType, batches, read_header
from ottla.runtime.seams import Disk

from .faulty_disk import FaultyDisk

DIRECTORY = "/data"
NOW = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))
TP = TopicPartition("topic", 0)


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    step: int = 1,
    value: bytes = b"value",
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: CompressionType = CompressionType.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
) -> memoryview:
    """One batch whose records are stamped `timestamp`, `timestamp` + `step` and so on."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
        log_append_time_ms=log_append_time_ms,
    )
    for i in range(count):
        builder.append(timestamp + i * step, b"key", value)
    return memoryview(builder.build())


def marker(*, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0) -> memoryview:
    """The control batch that ends a transaction."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    builder.append(NOW, key, b"\x00\x00" + coordinator_epoch.to_bytes(4, "big"))
    return memoryview(builder.build())


def append(log: Log, data: memoryview, *, epoch: int = 0, now_ms: int = NOW, **more: object) -> AppendInfo:
    return log.append(data, read_header(data), leader_epoch=epoch, now_ms=now_ms, **more)  # type: ignore[arg-type]


def fill(
    log: Log, count: int, *, records: int = 1, epoch: int = 0, value: bytes = b"value", timestamp: int = NOW
) -> None:
    """Append `count` batches, all of them seen."""
    for i in range(count):
        append(log, batch(records, value=value, timestamp=timestamp + i), epoch=epoch)
    log.update_high_watermark(log.log_end_offset)


def open_manager(disk: Disk, config: LogConfig | None = None, now_ms: int = NOW, **more: object) -> LogManager:
    """Started and loaded."""
    chosen = config if config is not None else LogConfig()
    manager = LogManager(disk, [DIRECTORY], random=Random(7), **more)  # type: ignore[arg-type]
    manager.lock()
    manager.load(lambda topic: chosen, now_ms)
    return manager


def restart(disk: FaultyDisk, config: LogConfig | None = None) -> LogManager:
    """A new process on the disk as the old one left it, whether it closed or was killed."""
    disk.kill()
    return open_manager(disk, config)


def create(manager: LogManager, config: LogConfig | None = None, partition: TopicPartition = TP) -> Log:
    return manager.create(partition, TOPIC_ID, config if config is not None else LogConfig(), NOW)


def all_batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the log start on, read as a consumer would, span by span."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while (span := log.read(offset, max_bytes=1 << 20, upper_bound=log.log_end_offset)) is not None:
        data = span.file.read(span.position, span.size)
        for header, view in batches(data):
            found.append((header, bytes(view)))
        assert found, "a span holds at least one whole batch"
        assert found[-1][0].next_offset > offset
        offset = found[-1][0].next_offset
    return found


def offsets_of(log: Log) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for header, _ in all_batches(log)]


CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
