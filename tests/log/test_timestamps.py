"""Finding records by time: exact to the record, in whatever order timestamps come."""

from __future__ import annotations

from random import Random

import pytest

from ottla.log import Log, LogConfig
from ottla.records import CompressionType, iterate

from .faulty_disk import FaultyDisk
from .story import NOW, TP, all_batches, append, batch, create, open_manager

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)


def by_hand(log: Log, timestamp: int) -> tuple[int, int] | None:
    for _, data in all_batches(log):
        for record in iterate(data):
            if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                return record.timestamp, record.offset
    return None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_the_first_record_at_or_after_a_time_is_found(seed: int, compression: CompressionType) -> None:
    random = Random(seed)
    disk = FaultyDisk()
    manager = open_manager(disk, CONFIG)
    log = create(manager, CONFIG)
    for _ in range(60):
        data = batch(
            random.randrange(1, 5),
            timestamp=NOW + random.randrange(1000),
            step=random.randrange(-20, 20),
            compression=compression,
        )
        append(log, data, epoch=3)
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start(random.randrange(30))
    for again in range(2):
        for timestamp in range(NOW - 100, NOW + 1100, 7):
            found = log.offset_for_timestamp(timestamp)
            assert (None if found is None else found[:2]) == by_hand(log, timestamp)
            assert found is None or found.leader_epoch == 3
        if not again:
            manager.close(NOW)
            log = open_manager(disk, CONFIG).logs[TP]


def test_the_largest_timestamp_is_that_of_its_first_record() -> None:
    log = create(open_manager(FaultyDisk()), CONFIG)
    assert log.offset_of_max_timestamp() is None
    append(log, batch(3, timestamp=NOW, step=10), epoch=1)
    append(log, batch(3, timestamp=NOW + 500, step=-10), epoch=2)
    append(log, batch(2, timestamp=NOW + 500, step=0), epoch=2)
    assert log.offset_of_max_timestamp() == (NOW + 500, 3, 2)


def test_a_batch_stamped_by_the_log_answers_with_its_first_record() -> None:
    log = create(open_manager(FaultyDisk()), CONFIG)
    append(log, batch(3, timestamp=1, log_append_time_ms=NOW))
    assert log.offset_for_timestamp(NOW - 1) == (NOW, 0, 0)
    assert log.offset_of_max_timestamp() == (NOW, 0, 0)


def test_records_without_timestamps_are_not_found() -> None:
    log = create(open_manager(FaultyDisk()), CONFIG)
    append(log, batch(2, timestamp=-1, step=0))
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
