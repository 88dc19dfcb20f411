"""Starting again: after a clean close by trust, after a crash by reading, and with whatever files are found."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ottla.log import Log, LogConfig, LogManager, files, scan
from ottla.log.files import file_name
from ottla.log.segment import Segment
from ottla.records import read_header

from .compacting import compact, seal, write
from .faulty_disk import FaultyDisk
from .story import DIRECTORY, NOW, TP, all_batches, append, batch, create, offsets_of, open_manager, restart

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
PATH = f"{DIRECTORY}/topic-0"


def written(count: int = 40, *, flush_at: int = 0) -> tuple[FaultyDisk, LogManager, Log]:
    disk = FaultyDisk()
    manager = open_manager(disk, CONFIG)
    log = create(manager, CONFIG)
    for i in range(count):
        append(log, batch(2, timestamp=NOW + i, producer_id=4, producer_epoch=0, sequence=2 * i), epoch=i // 15)
        if i + 1 == flush_at:
            log.flush(NOW)
            manager.prepare_checkpoints().run()
    log.update_high_watermark(log.log_end_offset)
    return disk, manager, log


def leave(manager: LogManager, log: Log, *, clean: bool) -> None:
    """Everything is on the disk, after a clean shutdown or a crash."""
    if clean:
        manager.close(NOW, broker_epoch=31)
    else:
        log.flush(NOW)
        manager.prepare_checkpoints().run()


def start_with_copies(disk: FaultyDisk, config: LogConfig = CONFIG) -> LogManager:
    """A start of a node whose replicas others have too."""
    manager = LogManager(disk, [DIRECTORY], random=Random(7))
    manager.load(lambda topic: config, NOW, has_copies=lambda partition: partition == TP)
    return manager


def spoil(disk: FaultyDisk, path: str, position: int) -> None:
    file = disk.open(path)
    file.write(position, bytes([file.read(position, 1)[0] ^ 1]))


def test_a_clean_start_reads_no_batches() -> None:
    disk, manager, log = written()
    before = all_batches(log)
    manager.close(NOW)
    # A flipped bit in a sealed segment goes unnoticed, because nothing is read.
    spoil(disk, f"{PATH}/{file_name(0, '.log')}", 70)
    operations = disk.operations
    manager = open_manager(disk, CONFIG)
    assert disk.operations == operations + 2, "only the marker goes"
    again = manager.logs[TP]
    assert (again.log_end_offset, again.recovery_point, again.high_watermark) == (80, 80, 80)
    assert again.epochs.entries == [(0, 0), (1, 30), (2, 60)]
    assert again.producers.entries[4].last_sequence == 79
    assert len(all_batches(again)) == len(before)


def test_after_a_crash_the_first_bad_batch_ends_the_log_and_later_segments_go() -> None:
    disk, _, log = written()
    bases = log.segment_base_offsets
    assert len(bases) >= 4
    # The third batch of the third segment.
    third = log._segments[2]
    headers = [header for header, _ in all_batches(log) if bases[2] <= header.base_offset < bases[3]]
    bad = headers[2]
    spoil(disk, third.path(".log"), sum(header.size for header in headers[:2]) + 80)
    again = restart(disk, CONFIG).logs[TP]
    assert again.log_end_offset == bad.base_offset
    assert again.segment_base_offsets == bases[:3]
    assert again.producers.entries[4].last_sequence == bad.base_offset - 1
    assert again.recovery_point == again.log_end_offset
    assert not disk.exists(f"{PATH}/{file_name(bases[3], '.log')}")
    assert not disk.exists(f"{PATH}/{file_name(bases[3], '.snapshot')}")
    assert append(again, batch(), epoch=9).first_offset == bad.base_offset


def test_recovery_says_in_one_sentence_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, log = written()
    bases = log.segment_base_offsets
    headers = [header for header, _ in all_batches(log)]
    kept = [header for header in headers if header.base_offset < bases[2] + 4]
    spoil(disk, f"{PATH}/{file_name(bases[2], '.log')}", sum(h.size for h in kept if h.base_offset >= bases[2]) + 80)
    lost_bytes = sum(header.size for header in headers[len(kept) :])
    restart(disk, CONFIG)
    (said,) = caplog.messages
    assert said.startswith(f"topic-0 was cut at offset {bases[2] + 4}, the first that is lost: ")
    assert said.endswith(f" {lost_bytes} bytes went.")


@pytest.mark.parametrize("written_bytes", [0, 70])
def test_room_that_was_never_written_to_is_no_loss(written_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=1000, preallocate=True)
    log = create(open_manager(disk, config), config)
    for _ in range(3):
        append(log, batch())
    size = log.size_bytes()
    disk.open(f"{PATH}/{file_name(0, '.log')}").write(size, b"x" * written_bytes)
    again = restart(disk, config).logs[TP]
    assert (again.log_end_offset, again.size_bytes()) == (3, size)
    assert [f"{1000 - size} bytes" in message for message in caplog.messages] == [True] * bool(written_bytes)


def test_a_missing_segment_ends_the_log() -> None:
    disk, _, log = written()
    bases = log.segment_base_offsets
    disk.remove(f"{PATH}/{file_name(bases[2], '.log')}")
    again = restart(disk, CONFIG).logs[TP]
    assert (again.segment_base_offsets, again.log_end_offset) == (bases[:2], bases[2])


def test_what_lies_below_the_recovery_point_is_not_read() -> None:
    disk, _, _ = written(40, flush_at=30)
    spoil(disk, f"{PATH}/{file_name(0, '.log')}", 70)
    again = restart(disk, CONFIG).logs[TP]
    assert again.log_end_offset == 80


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", ["most of it", "nothing"])
def test_a_sealed_segment_that_lost_its_end_is_copied_again_if_there_are_copies(clean: bool, left: str) -> None:
    """E16: a replica with a hole below its high watermark must not be taken for one that has everything."""
    disk, manager, log = written()
    bases = log.segment_base_offsets
    leave(manager, log, clean=clean)
    file = disk.open(f"{PATH}/{file_name(bases[1], '.log')}")
    file.truncate(file.size() - 5 if left == "most of it" else 0)

    alone = open_manager(disk.copy(), CONFIG)
    assert alone.logs[TP].log_end_offset == 80, "without copies all is kept that can still be read"

    again = start_with_copies(disk)
    assert again.logs[TP].log_end_offset == (bases[2] - 2 if left == "most of it" else bases[1])
    assert again.logs[TP].lacks_committed
    assert again.previous_broker_epoch == -1
    append(again.logs[TP], batch(2), epoch=3)
    third = start_with_copies(disk)
    assert third.logs[TP].log_end_offset == again.logs[TP].log_end_offset, "mended once, it is whole"


@pytest.mark.parametrize("clean", [True, False])
def test_half_a_batch_is_no_gap_that_compaction_left(clean: bool) -> None:
    """A compacted log may have gaps between its segments, but what is torn was lost."""
    config = replace(CONFIG, compact=True)
    disk, manager, log = written()
    bases = log.segment_base_offsets
    leave(manager, log, clean=clean)
    file = disk.open(f"{PATH}/{file_name(bases[1], '.log')}")
    file.truncate(file.size() - 5)
    again = start_with_copies(disk, config)
    found = again.logs[TP]
    assert (found.log_end_offset, found.segment_base_offsets) == (bases[2] - 2, bases[:2])
    assert found.lacks_committed
    assert again.previous_broker_epoch == -1
    assert offsets_of(found) == [(at, at + 1) for at in range(0, bases[2] - 2, 2)]


def compacted_log(*, cleaned: bool) -> tuple[FaultyDisk, LogManager, Log, LogConfig]:
    """Several sealed segments of a compacted topic, with gaps between them if it was `cleaned`."""
    config = replace(CONFIG, compact=True)
    disk = FaultyDisk()
    manager = open_manager(disk, config)
    log = create(manager, config)
    for i in range(60):
        write(log, (f"key-{i % 7 if i % 3 else i}", "value"))
    seal(log)
    if cleaned:
        compact(disk, manager, log)
        write(log, ("key-1", "another"), ("key-2", "value"))
    manager.prepare_checkpoints().run()
    return disk, manager, log, config


def batches_of(segment: Segment) -> list[tuple[int, int]]:
    """Where each batch begins, in the file and in offsets."""
    return [(position, header.base_offset) for position, header in scan.headers(segment.file, 0, segment.size)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize("lost", ["the last batch", "half of them", "all of them"])
def test_an_end_that_was_lost_between_two_batches_is_no_gap_that_compaction_left(
    clean: bool, cleaned: bool, lost: str
) -> None:
    """E16, A2: nothing torn tells of it, but the segment's index knows the batch that was its last."""
    disk, manager, log, config = compacted_log(cleaned=cleaned)
    bases = log.segment_base_offsets
    assert len(bases) >= 4
    second = log._segments[1]
    batches = batches_of(second)
    assert len(batches) >= 3
    kept = {"the last batch": len(batches) - 1, "half of them": len(batches) // 2, "all of them": 0}[lost]
    if clean:
        manager.close(NOW, broker_epoch=31)

    whole = LogManager(disk.copy(), [DIRECTORY], random=Random(7))
    whole.load(lambda topic: config, NOW, has_copies=lambda partition: True)
    assert whole.logs[TP].segment_base_offsets == bases, "a gap that compaction left is no loss"
    assert not whole.logs[TP].lacks_committed
    assert whole.previous_broker_epoch == (31 if clean else -1)

    disk.open(f"{PATH}/{file_name(bases[1], '.log')}").truncate(batches[kept][0])
    again = LogManager(disk, [DIRECTORY], random=Random(7))
    again.load(lambda topic: config, NOW, has_copies=lambda partition: True)
    found = again.logs[TP]
    assert found.segment_base_offsets == bases[:2]
    assert all(header.base_offset < batches[kept][1] for header, _ in all_batches(found))
    assert found.log_end_offset <= batches[kept][1]
    assert found.lacks_committed
    assert again.previous_broker_epoch == -1


def test_recovery_cuts_a_torn_batch_and_zeros() -> None:
    for tail in (bytes(500), bytes(batch(5))[:90], b"\x01" * 70):
        disk, _, log = written(5)
        file = disk.open(log._active.path(".log"))
        file.write(file.size(), tail)
        again = restart(disk, CONFIG).logs[TP]
        assert offsets_of(again) == offsets_of(log)
        assert disk.file_size(log._active.path(".log")) == again._active.size


def test_the_log_start_above_the_log_end_empties_the_log() -> None:
    disk, manager, log = written(10)
    log.advance_log_start(15)
    manager.close(NOW)
    disk.write_atomically(f"{DIRECTORY}/{files.LOG_START_CHECKPOINT}", b"0\n1\ntopic 0 500\n")
    again = restart(disk, CONFIG).logs[TP]
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (500, 500, 500)
    assert again.segment_base_offsets == [500]
    assert append(again, batch()).first_offset == 500


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "preallocated"])
@pytest.mark.parametrize("which", [0, -1], ids=["sealed", "active"])
def test_an_index_that_is_missing_or_makes_no_sense_is_built_anew(suffix: str, damage: str, which: int) -> None:
    disk, manager, log = written()
    path = log._segments[which].path(suffix)
    manager.close(NOW)
    good = disk.read_file(path)
    if damage == "missing":
        disk.remove(path)
    elif damage == "torn":
        disk.open(path).truncate(len(good) - 3)
    else:
        disk.open(path).truncate(len(good) + 24 * 1000)
    manager = open_manager(disk, CONFIG)
    again = manager.logs[TP]
    assert offsets_of(again) == [(2 * i, 2 * i + 1) for i in range(40)]
    assert all(again.read(offset, max_bytes=100, upper_bound=80) for offset in range(80))
    found = again.offset_for_timestamp(NOW + 7)
    assert found is not None
    assert found.offset == 13
    manager.close(NOW)
    assert disk.read_file(path) == good


def test_leftovers_are_settled() -> None:
    disk, manager, _ = written()
    manager.close(NOW)
    before = {path: content for path, content in disk.files().items() if path.startswith(PATH)}
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000004.index.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        disk.open(f"{PATH}/{name}", create=True).write(0, b"rubbish")
    disk.open(f"{PATH}/00000000000000000007.index", create=True)
    disk.open(f"{PATH}/00000000000000000000-0000000001.checkpoint.deleted", create=True)
    open_manager(disk, CONFIG).close(NOW)
    after = {path: content for path, content in disk.files().items() if path.startswith(PATH)}
    assert after.pop(f"{PATH}/00000000000000000000-0000000001.checkpoint.deleted") == b"", "raft's to remove"
    assert after == before


def test_an_interrupted_swap_is_completed() -> None:
    """Compaction has merged the first two segments and was stopped before the old ones went."""
    disk, manager, log = written()
    bases = log.segment_base_offsets
    kept = [data for header, data in all_batches(log) if header.base_offset < bases[2] and header.base_offset % 4 == 0]
    manager.close(NOW)
    for suffix in (".log", ".index", ".timeindex"):
        file = disk.open(f"{PATH}/{file_name(0, suffix)}.swap", create=True)
        if suffix == ".log":
            file.write(0, b"".join(kept))
    again = restart(disk, CONFIG).logs[TP]
    assert again.segment_base_offsets == [0, *bases[2:]]
    assert [data for header, data in all_batches(again) if header.base_offset < bases[2]] == kept


def test_a_swap_that_was_never_complete_is_undone() -> None:
    disk, manager, log = written()
    before = all_batches(log)
    manager.close(NOW)
    for suffix in (".log.swap", ".index.cleaned"):
        disk.open(f"{PATH}/{file_name(0, suffix)}", create=True).write(0, bytes(10))
    again = restart(disk, CONFIG).logs[TP]
    assert all_batches(again) == before


def test_a_torn_snapshot_is_passed_over() -> None:
    disk, manager, _ = written()
    manager.close(NOW)
    disk.open(f"{PATH}/{file_name(80, '.snapshot')}").truncate(20)
    assert open_manager(disk, CONFIG).logs[TP].producers.entries[4].last_sequence == 79


def test_a_second_start_equals_the_first() -> None:
    disk, _, _ = written()
    first = disk.copy()
    open_manager(first, CONFIG).close(NOW)
    twice = first.copy()
    open_manager(twice, CONFIG).close(NOW)
    assert twice.files() == first.files()


# Truncating.


@pytest.mark.parametrize("clean", [True, False])
def test_truncation_across_segments_holds_after_a_restart(clean: bool) -> None:
    for offset in (0, 1, 2, 17, 40, 63, 79):
        disk, manager, log = written(40, flush_at=35)
        assert log.truncate_to(offset)
        end = offset - offset % 2
        assert log.log_end_offset == end, "half a batch cannot be kept"
        assert log.high_watermark <= end
        assert log.recovery_point <= end
        assert offsets_of(log) == [(i, i + 1) for i in range(0, end, 2)]
        append(log, batch(3), epoch=7)
        expected = all_batches(log)
        if clean:
            manager.close(NOW)
        again = restart(disk, CONFIG).logs[TP]
        assert all_batches(again) == expected
        assert again.epochs.entries == log.epochs.entries


def test_a_replica_that_starts_over_keeps_nothing() -> None:
    disk, manager, log = written(40, flush_at=35)
    log.truncate_fully_and_start_at(1000, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert log.epochs.entries == []
    assert log.producers.entries == {}
    log.append_replicated(batch(5, base_offset=1000, leader_epoch=3))
    again = open_manager(disk.copy(), CONFIG).logs[TP]
    assert offsets_of(again) == [(1000, 1004)]
    manager.close(NOW)
    assert offsets_of(open_manager(disk, CONFIG).logs[TP]) == [(1000, 1004)]


# Flushing.


def test_a_flush_moves_the_recovery_point_only_as_far_as_it_was_prepared() -> None:
    _, _, log = written(5)
    flush = log.prepare_flush()
    append(log, batch(2), epoch=3)
    flush.run()
    assert log.recovery_point == 0
    log.on_flushed(flush, NOW + 9)
    assert (log.recovery_point, log.log_end_offset, log.last_flush_ms) == (10, 12, NOW + 9)


def test_a_truncation_during_a_flush_lowers_what_it_promises() -> None:
    _, _, log = written(20)
    flush = log.prepare_flush()
    log.truncate_to(10)
    for _ in range(20):
        append(log, batch(2), epoch=9)
    flush.run()
    log.on_flushed(flush, NOW)
    assert log.recovery_point == 10
    log.flush(NOW)
    assert log.recovery_point == log.log_end_offset
    for segment in log._segments:
        offsets, _ = segment.build_indexes()
        assert segment.offset_index(log._segments.cache).encode() == offsets.encode()


def test_retention_during_a_flush_leaves_no_files_behind() -> None:
    disk, manager, log = written(40)
    flush = log.prepare_flush()
    log.update_config(LogConfig(segment_bytes=700, retention_bytes=1, file_delete_delay_ms=0))
    manager.apply_retention(NOW)
    manager.remove_deleted(NOW)
    flush.run()
    log.on_flushed(flush, NOW)
    assert [name for name in disk.list(PATH) if name.endswith((".index", ".timeindex"))] == []


def test_when_a_flush_is_due() -> None:
    config = LogConfig(flush_messages=3, flush_ms=1000)
    log = create(open_manager(FaultyDisk(), config), config)
    assert not log.flush_due(NOW + 10_000), "there is nothing to flush"
    append(log, batch(2))
    assert not log.flush_due(NOW + 999)
    assert log.flush_due(NOW + 1000)
    append(log, batch(1))
    assert log.flush_due(NOW)
    log.flush(NOW)
    assert not log.flush_due(NOW + 10_000)


def test_a_sealed_segment_asks_for_a_flush_and_one_flush_is_one_sync_otherwise() -> None:
    disk, _, log = written(5)
    log.flush(NOW)
    before = disk.syncs
    append(log, batch(), epoch=0)
    log.flush(NOW)
    assert disk.syncs == before + 1, "flush.messages=1 costs one sync"
    while not log.rolled:
        append(log, batch(), epoch=0)
    assert log.flush_due(NOW)
    log.flush(NOW)
    assert not log.flush_due(NOW)
    assert disk.exists(log._segments[0].path(".index"))


def test_records_are_where_their_headers_say() -> None:
    _, _, log = written(10)
    for header, data in all_batches(log):
        assert read_header(data) == header
