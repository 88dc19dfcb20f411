"""What goes and what stays: retention by time and size, DeleteRecords, and how files leave."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, LogManager

from .faulty_disk import FaultyDisk
from .story import NOW, TP, append, batch, create, fill, offsets_of, open_manager

SEGMENT = len(batch()) * 10


def segments_of_ten(count: int, **config: object) -> tuple[FaultyDisk, LogManager, Log]:
    """A log of `count` full segments, ten records each, the records of segment n stamped n seconds after `NOW`."""
    disk = FaultyDisk()
    chosen = LogConfig(segment_bytes=SEGMENT, **{"retention_ms": -1, **config})  # type: ignore[arg-type]
    manager = open_manager(disk, chosen)
    log = create(manager, chosen)
    for second in range(count):
        fill(log, 10, timestamp=NOW + second * 1000)
    assert log.segment_base_offsets == [10 * n for n in range(count)]
    return disk, manager, log


def test_by_size_whole_segments_go_while_the_rest_is_still_large_enough() -> None:
    _, manager, log = segments_of_ten(5, retention_bytes=3 * SEGMENT - 1)
    assert manager.apply_retention(NOW) == 2
    assert log.log_start_offset == 20
    assert manager.apply_retention(NOW) == 0


def test_by_time_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    _, manager, log = segments_of_ten(5, retention_ms=10_000)
    newest_of_first = NOW + 9
    assert manager.apply_retention(newest_of_first + 10_000) == 0
    assert manager.apply_retention(newest_of_first + 10_001) == 1
    assert log.log_start_offset == 10
    assert manager.apply_retention(NOW + 2009 + 10_001) == 2
    assert log.segment_base_offsets == [30, 40]


def test_a_record_from_the_future_holds_its_segment_and_all_after_it() -> None:
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=SEGMENT, retention_ms=1000)
    manager = open_manager(disk, config)
    log = create(manager, config)
    fill(log, 10, timestamp=NOW)
    append(log, batch(timestamp=NOW + 10**9))
    fill(log, 29, timestamp=NOW)
    manager.apply_retention(NOW + 10**6)
    assert log.segment_base_offsets[0] == 10


def test_an_expired_active_segment_is_rolled_and_goes_too() -> None:
    _, manager, log = segments_of_ten(3, retention_ms=1000)
    assert manager.apply_retention(NOW + 100_000) == 3
    assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (30, 30, [30])
    assert manager.apply_retention(NOW + 200_000) == 0
    assert append(log, batch()).first_offset == 30


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    _, manager, log = segments_of_ten(4, retention_ms=1000)
    log.high_watermark = 29
    assert manager.apply_retention(NOW + 100_000) == 2
    assert log.log_start_offset == 20


def test_a_topic_that_is_only_compacted_keeps_everything_above_its_log_start() -> None:
    _, manager, log = segments_of_ten(4, retention_ms=1, retention_bytes=1, delete=False, compact=True)
    assert manager.apply_retention(NOW + 10**9) == 0
    log.advance_log_start(25)
    assert manager.apply_retention(NOW + 10**9) == 2
    assert log.segment_base_offsets == [20, 30]


def test_deleted_records_cannot_be_read_and_their_segments_go() -> None:
    _, manager, log = segments_of_ten(4)
    assert log.advance_log_start(25)
    assert not log.advance_log_start(20), "it never goes back"
    with pytest.raises(KafkaError) as refusal:
        log.advance_log_start(41)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.read(24, max_bytes=1, upper_bound=40)
    assert offsets_of(log)[0] == (25, 25)
    assert manager.apply_retention(NOW) == 2
    assert log.segment_base_offsets == [20, 30]


def test_files_are_renamed_first_and_removed_after_the_delay() -> None:
    disk, manager, log = segments_of_ten(4, retention_bytes=SEGMENT, file_delete_delay_ms=500)
    log.flush(NOW)
    span = log.read(0, max_bytes=1 << 20, upper_bound=40)
    manager.apply_retention(NOW)
    names = disk.list(log.directory)
    for suffix in (".log", ".index", ".timeindex"):
        assert f"00000000000000000010{suffix}.deleted" in names
        assert f"00000000000000000010{suffix}" not in names
    assert "00000000000000000010.snapshot.deleted" in names
    assert span is not None
    manager.remove_deleted(NOW + 499)
    assert disk.list(log.directory) == names
    manager.remove_deleted(NOW + 500)
    assert not any(name.endswith(".deleted") for name in disk.list(log.directory))


def test_the_new_log_start_is_on_the_disk_before_any_file_goes() -> None:
    disk, manager, log = segments_of_ten(4, retention_bytes=SEGMENT)
    work = manager.begin_retention(NOW)
    assert log.log_start_offset == 30
    assert not any(name.endswith(".deleted") for name in disk.list(log.directory))
    work.run()
    assert b"topic 0 30" in disk.read_file("/data/log-start-offset-checkpoint")
    assert manager.finish_retention(NOW) == 3


def test_retention_counts_from_the_time_index_after_a_restart() -> None:
    disk, manager, log = segments_of_ten(5, retention_ms=10_000)
    manager.close(NOW)
    manager = open_manager(disk, log.config)
    assert manager.apply_retention(NOW + 1009 + 10_001) == 2
    assert manager.logs[TP].log_start_offset == 20
