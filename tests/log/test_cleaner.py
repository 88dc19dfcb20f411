"""Compaction, story by story: what stays, what goes, and when (invariants E10 to E14)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import ottla.records.cleaning as records_cleaning
from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, LogManager, files
from ottla.log.append import AppendOrigin
from ottla.log.cleaner import CleaningSettings, CorruptSegment, SegmentCleaned, Swap, assess, begin_pass, clean, survey
from ottla.model import TopicPartition
from ottla.records import BatchBuilder, CompressionType, iterate
from ottla.records.cleaning import _pure
from tests.seams.surroundings import InlineApart

from .compacting import SETTINGS, compact, header_of, keyed, records, seal, texts, write
from .faulty_disk import FaultyDisk
from .story import DIRECTORY, NOW, TP, all_batches, append, create, marker, offsets_of, open_manager, restart

CONFIG = LogConfig(compact=True, delete=False, delete_retention_ms=1000, segment_bytes=1 << 20)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=["compiled", "in Python"])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of the work on records."""
    if request.param == "in Python":
        monkeypatch.setattr(records_cleaning, "OffsetMap", _pure.OffsetMap)
        monkeypatch.setattr(records_cleaning, "SLOT_BYTES", _pure.SLOT_BYTES)


def stage(config: LogConfig = CONFIG) -> tuple[FaultyDisk, LogManager, Log]:
    disk = FaultyDisk()
    manager = open_manager(disk, config, verify_transactions=False)
    return disk, manager, create(manager, config)


def transact(log: Log, producer: int, *pairs: tuple[str, str | None], sequence: int = 0, epoch: int = 0) -> None:
    encoded: list[tuple[bytes | None, bytes | None]] = [
        (key.encode(), None if value is None else value.encode()) for key, value in pairs
    ]
    data = keyed(encoded, producer_id=producer, producer_epoch=epoch, sequence=sequence, transactional=True)
    append(log, data, origin=AppendOrigin.COORDINATOR)


def end(log: Log, producer: int, *, commit: bool, epoch: int = 0) -> None:
    data = marker(commit=commit, producer_id=producer, producer_epoch=epoch)
    append(log, data, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


def controls(log: Log) -> list[int]:
    return [header.base_offset for header, data in all_batches(log) if header.is_control and list(iterate(data))]


# What stays.


@pytest.mark.usefixtures("side")
def test_of_every_key_the_last_record_stays_at_its_offset() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"), ("b", "1"), ("a", "2"))
    write(log, ("c", "1"))
    write(log, ("b", "2"))
    seal(log)
    write(log, ("c", "2"))
    compact(disk, manager, log)
    assert texts(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")]
    assert offsets_of(log) == [(0, 2), (3, 3), (4, 4), (5, 5)]
    assert log.log_end_offset == 6
    assert log.first_dirty_offset == 5


@pytest.mark.usefixtures("side")
@pytest.mark.parametrize("compression", list(CompressionType))
def test_records_keep_everything_but_their_neighbours(compression: CompressionType) -> None:
    disk, manager, log = stage()
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % (i % 4), b"v%d" % i) for i in range(10)]
    append(log, keyed(pairs, timestamp=NOW, compression=compression))
    append(log, keyed(pairs[:1], timestamp=NOW + 50, compression=compression, log_append_time_ms=NOW + 99))
    log.update_high_watermark(log.log_end_offset)
    before = {record.offset: record for _, record in records(log)}
    seal(log)
    compact(disk, manager, log)
    after = [record for _, record in records(log)]
    assert [record.offset for record in after] == [6, 7, 9, 10]
    assert all(before[record.offset] == record for record in after)
    assert header_of(log, 0).compression == compression


@pytest.mark.usefixtures("side")
def test_a_segment_of_which_nothing_stays_is_an_empty_file() -> None:
    disk, manager, log = stage(replace(CONFIG, segment_bytes=150))
    write(log, ("a", "1"))
    seal(log)
    write(log, ("b", "1"), ("b", "2"), ("a", "2"))
    seal(log)
    write(log, ("a", "3"), ("b", "3"))
    seal(log)
    compact(disk, manager, log)
    assert texts(log) == [(4, "a", "3"), (5, "b", "3")]
    assert offsets_of(log) == [(4, 5)]
    assert log.segment_base_offsets == [0, 1, 4, 6]
    assert log.log_end_offset == 6
    for closed in (False, True):
        copy = disk.copy()
        if closed:
            restart(copy, CONFIG).close(NOW)
        reopened = restart(copy, CONFIG).logs[TP]
        assert texts(reopened) == [(4, "a", "3"), (5, "b", "3")]
        assert reopened.log_end_offset == 6
    compact(disk, manager, log)
    assert log.segment_base_offsets == [0, 6]


@pytest.mark.usefixtures("side")
def test_a_merged_segment_reaches_as_far_as_those_it_was_made_of() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    write(log, ("c", "1"))
    seal(log)
    write(log, ("b", "1"), ("b", "2"), ("a", "2"))
    seal(log)
    write(log, ("x", "1" * 200))
    seal(log)
    write(log, ("a", "3"), ("b", "3"))
    seal(log)
    log.update_config(replace(CONFIG, segment_bytes=350))
    compact(disk, manager, log)
    assert log.segment_base_offsets == [0, 5, 6, 8]
    assert offsets_of(log) == [(1, 1), (2, 4), (5, 5), (6, 7)]
    assert header_of(log, 2).record_count == 0


@pytest.mark.usefixtures("side")
def test_also_if_one_of_them_was_empty_before() -> None:
    """A start that finishes the swap would else take the one in the middle for a segment that is yet to be cleaned."""
    disk, manager, log = stage()
    for key in ("c", "b", "d"):
        write(log, (key, "1"))
        seal(log)
    write(log, ("d", "2" * 200))
    seal(log)
    log.update_config(replace(CONFIG, segment_bytes=100))
    compact(disk, manager, log)
    assert (log.segment_base_offsets, offsets_of(log)) == ([0, 1, 2, 3, 4], [(0, 0), (1, 1), (3, 3)])
    write(log, ("b", "2"))
    seal(log)
    log.update_config(replace(CONFIG, segment_bytes=250))
    compact(disk, manager, log)
    assert log.segment_base_offsets == [0, 3, 4, 5]
    assert offsets_of(log) == [(0, 0), (1, 1), (3, 3), (4, 4)]
    assert header_of(log, 1).record_count == 0


@pytest.mark.usefixtures("side")
def test_a_log_whose_last_cleaned_records_all_go_ends_where_it_ended() -> None:
    disk, manager, log = stage()
    write(log, ("a", None))
    write(log, ("a", None))
    seal(log)
    compact(disk, manager, log, NOW)
    compact(disk, manager, log, NOW + 2000)
    assert texts(log) == []
    assert offsets_of(log) == [(1, 1)]
    assert log.log_end_offset == 2
    disk = disk.copy()
    assert restart(disk, CONFIG).logs[TP].log_end_offset == 2


@pytest.mark.usefixtures("side")
def test_small_segments_are_merged_and_full_ones_are_not() -> None:
    disk, manager, log = stage(replace(CONFIG, segment_bytes=2000))
    for i in range(6):
        write(log, (f"k{i}", "x" * 300))
        seal(log)
    assert log.segment_base_offsets == [0, 1, 2, 3, 4, 5, 6]
    compact(disk, manager, log)
    assert log.segment_base_offsets == [0, 5, 6]
    assert [offset for offset, _, _ in texts(log)] == [0, 1, 2, 3, 4, 5]
    names = disk.list(log.directory)
    assert [name for name in names if name.endswith((files.CLEANED, files.SWAP))] == []
    assert "00000000000000000001.log.deleted" in names
    manager.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert [name for name in disk.list(log.directory) if name.endswith(files.DELETED)] == []
    assert set(disk.forgotten) == {f"{log.directory}/{name}" for name in names if name.endswith(files.DELETED)}
    assert [offset for offset, _, _ in texts(log)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("side")
def test_a_batch_larger_than_the_buffers_is_read_whole() -> None:
    disk, manager, log = stage()
    write(log, ("a", "x" * 9000), ("a", "y" * 9000))
    write(log, ("b", "z"))
    seal(log)
    compact(disk, manager, log, settings=replace(SETTINGS, io_bytes=200))
    assert [(offset, key) for offset, key, _ in texts(log)] == [(1, "a"), (2, "b")]


@pytest.mark.usefixtures("side")
def test_a_map_that_is_full_ends_the_pass_early_and_the_next_goes_on_there() -> None:
    disk, manager, log = stage()
    for i in range(10):
        write(log, (f"k{i}", "1"), (f"k{i}", "2"))
    seal(log)
    tiny = CleaningSettings(map_bytes=records_cleaning.SLOT_BYTES * 5, map_load_factor=0.9, io_bytes=1 << 12)
    reached: list[int] = []
    while assess(log, NOW).dirty_bytes and len(reached) < 20:
        reached.append(compact(disk, manager, log, settings=tiny).next_dirty_offset)
    assert reached == sorted(set(reached))
    assert reached[0] < 10
    assert reached[-1] == 20
    assert texts(log) == [(2 * i + 1, f"k{i}", "2") for i in range(10)]


@pytest.mark.usefixtures("side")
def test_nobody_but_the_last_stable_offset_the_active_segment_and_the_lag_holds_compaction_back() -> None:
    _, _, log = stage()
    write(log, ("a", "1"))
    seal(log)
    write(log, ("a", "2"), timestamp=NOW + 500)
    seal(log)
    write(log, ("a", "3"))
    assert assess(log, NOW).end_offset == 2
    log.update_config(replace(CONFIG, min_compaction_lag_ms=1000))
    assert assess(log, NOW + 1200).end_offset == 1
    assert assess(log, NOW + 1501).end_offset == 2
    log.update_config(CONFIG)
    transact(log, 7, ("b", "1"))
    log.update_high_watermark(log.log_end_offset)
    seal(log)
    write(log, ("c", "1"))
    seal(log)
    assert log.last_stable_offset == 3
    assert assess(log, NOW).end_offset == 2
    end(log, 7, commit=True)
    assert assess(log, NOW).end_offset == 5
    log.high_watermark = 1
    assert assess(log, NOW).end_offset == 1


def test_what_no_flush_has_covered_is_left_alone() -> None:
    _, _, log = stage()
    write(log, ("a", "1"))
    log.roll(NOW)
    write(log, ("a", "2"))
    assert assess(log, NOW).dirty_bytes == 0
    log.flush(NOW)
    assert assess(log, NOW).end_offset == 1


# When a log is due.


def test_the_dirtiest_log_comes_first_and_only_beyond_its_ratio() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk, CONFIG)
    half, all_dirty, plain = (
        create(manager, config, TopicPartition("topic", index))
        for index, config in enumerate((CONFIG, CONFIG, replace(CONFIG, compact=False)))
    )
    for log in (half, all_dirty, plain):
        write(log, ("a", "1"))
        seal(log)
    compact(disk, manager, half)
    assert [each.log for each in survey(manager.logs.values(), NOW)] == [all_dirty, half]
    write(half, ("b", "1"))
    seal(half)
    found = {each.log: each for each in survey(manager.logs.values(), NOW)}
    assert found[half].dirty_ratio == 0.5
    assert not found[half].is_due
    assert found[all_dirty].is_due
    write(half, ("b", "2"))
    seal(half)
    assert assess(half, NOW).is_due


def test_a_record_older_than_the_longest_lag_makes_its_log_due() -> None:
    disk, manager, log = stage(replace(CONFIG, max_compaction_lag_ms=DAY_MS, min_cleanable_dirty_ratio=0.99))
    write(log, ("a", "1" * 500))
    seal(log)
    compact(disk, manager, log)
    write(log, ("b", "1"))
    seal(log)
    assert not assess(log, NOW + DAY_MS).is_due
    due = assess(log, NOW + DAY_MS + 5)
    assert due.overdue_ms == 5
    assert due.is_due


def test_a_segment_is_sealed_when_compaction_must_be_able_to_touch_it() -> None:
    _, _, log = stage(replace(CONFIG, max_compaction_lag_ms=1000))
    write(log, ("a", "1"))
    write(log, ("a", "2"), timestamp=NOW + 1000)
    assert log.segment_base_offsets == [0]
    write(log, ("a", "3"), timestamp=NOW + 1001)
    assert log.segment_base_offsets == [0, 2]


def test_a_checkpoint_outside_the_log_is_not_believed() -> None:
    _, _, log = stage()
    write(log, ("a", "1"), ("a", "2"), ("a", "3"))
    seal(log)
    log.first_dirty_offset = 7
    assert assess(log, NOW).first_dirty_offset == 0
    log.first_dirty_offset = 1
    assert assess(log, NOW).first_dirty_offset == 1
    log.advance_log_start(2)
    assert assess(log, NOW).first_dirty_offset == 2


# Tombstones.


@pytest.mark.usefixtures("side")
def test_a_tombstone_goes_only_after_its_horizon_which_the_first_pass_sets() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"), ("b", "1"))
    write(log, ("a", None), ("c", "1"))
    seal(log)
    compact(disk, manager, log, NOW + DAY_MS)
    assert texts(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = header_of(log, 2)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + DAY_MS + 1000
    assert [record.timestamp for _, record in records(log)] == [NOW + 1, NOW, NOW + 1]
    compact(disk, manager, log, NOW + DAY_MS + 999)
    assert texts(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    compact(disk, manager, log, NOW + DAY_MS + 1000)
    assert texts(log) == [(1, "b", "1"), (3, "c", "1")]


@pytest.mark.usefixtures("side")
def test_a_key_that_was_deleted_and_written_again_is_there() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    write(log, ("a", None))
    write(log, ("a", "2"))
    seal(log)
    compact(disk, manager, log)
    assert texts(log) == [(2, "a", "2")]


# Transactions.


@pytest.mark.usefixtures("side")
def test_aborted_records_go_and_do_not_hide_older_ones() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"), ("b", "1"))
    transact(log, 7, ("a", "aborted"))
    transact(log, 8, ("b", "committed"))
    end(log, 7, commit=False)
    end(log, 8, commit=True)
    seal(log)
    compact(disk, manager, log)
    assert texts(log) == [(0, "a", "1"), (3, "b", "committed")]
    assert controls(log) == [4, 5]


@pytest.mark.usefixtures("side")
def test_a_transaction_whose_marker_lies_beyond_is_judged_by_it() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    transact(log, 7, ("a", "aborted"))
    seal(log)
    end(log, 7, commit=False)
    assert assess(log, NOW).end_offset == 2
    compact(disk, manager, log)
    assert texts(log) == [(0, "a", "1")]
    assert log.aborted_transactions(0, 10)


@pytest.mark.usefixtures("side")
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_stays_while_its_records_do_and_then_until_its_horizon(commit: bool) -> None:
    disk, manager, log = stage()
    transact(log, 7, ("a", "1"))
    end(log, 7, commit=commit)
    write(log, ("x", "1"))
    log.producers.entries.clear()  # Expired: nothing has to stay for its next batch.
    seal(log)
    if commit:
        compact(disk, manager, log, NOW)
        assert controls(log) == [1]
        assert not header_of(log, 1).has_delete_horizon
    write(log, ("a", "2"))
    seal(log)
    compact(disk, manager, log, NOW + 10)
    assert texts(log) == [(2, "x", "1"), (3, "a", "2")]
    assert controls(log) == [1], "the pass that removes the records keeps the marker"
    assert not header_of(log, 1).has_delete_horizon
    assert bool(log.aborted_transactions(0, 9)) is not commit
    compact(disk, manager, log, NOW + 20)
    assert controls(log) == [1]
    assert header_of(log, 1).has_delete_horizon
    assert header_of(log, 1).base_timestamp == NOW + 20 + 1000
    assert not log.aborted_transactions(0, 9)
    compact(disk, manager, log, NOW + 20 + 999)
    assert controls(log) == [1]
    compact(disk, manager, log, NOW + 20 + 1000)
    assert controls(log) == []


@pytest.mark.usefixtures("side")
def test_the_last_batch_of_an_active_producer_stays_for_its_sequence() -> None:
    disk, manager, log = stage()
    append(log, keyed([(b"a", b"1")] * 3, producer_id=4, producer_epoch=2, sequence=0))
    append(log, keyed([(b"a", b"1")] * 2, producer_id=4, producer_epoch=2, sequence=3))
    write(log, ("a", "2"))
    seal(log)
    compact(disk, manager, log)
    assert offsets_of(log) == [(3, 4), (5, 5)]
    assert header_of(log, 3).record_count == 0
    disk = disk.copy()
    for name in disk.list(log.directory):
        if name.endswith(files.SNAPSHOT):
            disk.remove(f"{log.directory}/{name}")
    reopened = restart(disk, CONFIG).logs[TP]
    entry = reopened.producers.entries[4]
    assert (entry.epoch, entry.last_sequence) == (2, 4)
    append(reopened, keyed([(b"b", b"1")], producer_id=4, producer_epoch=2, sequence=5))
    with pytest.raises(KafkaError) as refused:
        append(reopened, keyed([(b"b", b"1")], producer_id=4, producer_epoch=2, sequence=9))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.usefixtures("side")
def test_the_last_marker_of_an_active_producer_stays_for_its_epoch() -> None:
    disk, manager, log = stage()
    transact(log, 7, ("a", "1"))
    end(log, 7, commit=True, epoch=1)
    write(log, ("a", "2"))
    seal(log)
    for later in (0, 10, 5000):
        compact(disk, manager, log, NOW + later)
    assert controls(log) == [1]
    log.producers.entries.clear()
    compact(disk, manager, log, NOW + 6000)
    assert controls(log) == []


# The log around it.


def test_reads_by_offset_and_by_time_go_over_gaps() -> None:
    disk, manager, log = stage()
    for i in range(9):
        write(log, ("a" if i % 3 else "b", str(i)), timestamp=NOW + 10 * i)
    seal(log)
    write(log, ("c", "9"), timestamp=NOW + 90)
    compact(disk, manager, log)
    assert [offset for offset, _, _ in texts(log)] == [6, 8, 9]
    for asked, found in ((0, 6), (3, 6), (6, 6), (7, 8), (8, 8), (9, 9)):
        assert header_of(log, asked).last_offset == found
    assert log.read(10, max_bytes=1, upper_bound=10) is None
    with pytest.raises(KafkaError):
        log.read(11, max_bytes=1, upper_bound=11)
    for stamp, offset in ((NOW, 6), (NOW + 60, 6), (NOW + 61, 8), (NOW + 81, 9)):
        answer = log.offset_for_timestamp(stamp)
        assert answer is not None
        assert answer.offset == offset
    assert log.offset_for_timestamp(NOW + 91) is None


def test_a_span_that_is_being_sent_stays_readable_through_the_swap() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    write(log, ("a", "2"))
    seal(log)
    span = log.read(0, max_bytes=1 << 20, upper_bound=2)
    assert span is not None
    before = span.file.read(span.position, span.size)
    compact(disk, manager, log)
    manager.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert span.file.read(span.position, span.size) == before
    assert texts(log) == [(1, "a", "2")]


def test_the_largest_timestamp_is_that_of_a_record_that_is_there() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"), timestamp=NOW + 5)
    append(log, keyed([(b"b", b"1")], timestamp=NOW + 99, producer_id=4, producer_epoch=0, sequence=0))
    write(log, ("b", "2"), timestamp=NOW + 7)
    seal(log)
    compact(disk, manager, log)
    latest = log.offset_of_max_timestamp()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (NOW + 7, 2)
    reopened = restart(disk.copy(), CONFIG).logs[TP]
    assert reopened.offset_of_max_timestamp() == latest


def test_a_follower_copies_a_compacted_log_as_it_is() -> None:
    disk, manager, log = stage()
    for i in range(12):
        write(log, (f"k{i % 3}", str(i)))
        if i % 4 == 3:
            seal(log)
    compact(disk, manager, log)
    other_disk, other_manager, follower = stage()
    for _, data in all_batches(log):
        follower.append_replicated(memoryview(data), NOW)
    assert [data for _, data in all_batches(follower)] == [data for _, data in all_batches(log)]
    assert follower.log_end_offset == log.log_end_offset
    follower.update_high_watermark(follower.log_end_offset)
    seal(follower)
    write(follower, ("k0", "13"))
    seal(follower)
    compact(other_disk, other_manager, follower)
    assert [offset for offset, _, _ in texts(follower)] == [10, 11, 12]


def test_leader_epochs_outlive_the_batches_that_began_them() -> None:
    disk, manager, log = stage()
    for epoch in range(4):
        append(log, keyed([(b"a", b"1"), (b"b", b"1")]), epoch=epoch)
    log.update_high_watermark(log.log_end_offset)
    seal(log)
    compact(disk, manager, log)
    expected = [(0, 0), (1, 2), (2, 4), (3, 6)]
    assert log.epochs.entries == expected
    assert restart(disk.copy(), CONFIG).logs[TP].epochs.entries == expected
    manager.close(NOW)
    assert restart(disk, CONFIG).logs[TP].epochs.entries == expected


def test_how_far_a_log_is_clean_is_kept_in_kafkas_file_and_goes_with_the_log() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"), ("a", "2"))
    seal(log)
    compact(disk, manager, log)
    path = f"{DIRECTORY}/{files.CLEANER_CHECKPOINT}"
    assert disk.files()[path] == b"0\n1\ntopic 0 2\n"
    assert restart(disk.copy(), CONFIG).logs[TP].first_dirty_offset == 2
    manager.delete([TP], NOW).run()
    assert disk.files()[path] == b"0\n0\n"


def test_a_truncation_takes_the_clean_point_back() -> None:
    disk, manager, log = stage()
    for i in range(4):
        write(log, ("a", str(i)))
    seal(log)
    compact(disk, manager, log)
    log.truncate_to(2)
    assert log.first_dirty_offset == 2
    assert disk.files()[f"{DIRECTORY}/{files.CLEANER_CHECKPOINT}"] == b"0\n1\ntopic 0 2\n"


def test_delete_and_compact_together_do_both() -> None:
    config = replace(CONFIG, delete=True, retention_ms=1000)
    disk, manager, log = stage(config)
    write(log, ("a", "1"), ("a", "2"))
    seal(log)
    write(log, ("b", "1"), ("b", "2"), timestamp=NOW + 5000)
    seal(log)
    compact(disk, manager, log, NOW + 10)
    assert texts(log) == [(1, "a", "2"), (3, "b", "2")]
    log.update_config(replace(config, segment_bytes=100))
    assert manager.apply_retention(NOW + 20_000) == 1
    assert log.log_start_offset == 4


# What happens meanwhile.


def begun(log: Log, disk: FaultyDisk) -> Swap:
    """A pass that has made one segment of all, which is not swapped in yet."""
    current = begin_pass(disk, assess(log, NOW), SETTINGS, Random(1), NOW)
    facts: list[SegmentCleaned] = []
    clean(disk, current.task, InlineApart(facts.append))
    assert len(facts) == 1
    return current.swap(facts[0])


def stage_with_two_segments() -> tuple[FaultyDisk, LogManager, Log]:
    disk, manager, log = stage()
    write(log, ("a", "1"), ("a", "2"))
    write(log, ("b", "1"))
    seal(log)
    write(log, ("b", "2"))
    seal(log)
    return disk, manager, log


def test_a_log_that_was_cut_meanwhile_keeps_what_it_has() -> None:
    disk, _, log = stage_with_two_segments()
    swap = begun(log, disk)
    log.truncate_to(2)
    swap.prepare()
    assert not swap.begin()
    swap.discard()
    assert [offset for offset, _, _ in texts(log)] == [0, 1]
    assert [name for name in disk.list(log.directory) if name.endswith(files.CLEANED)] == []


def test_a_log_that_was_cut_and_filled_again_to_the_same_size_keeps_what_it_has() -> None:
    disk, _, log = stage()
    write(log, ("a", "1"), ("b", "1"))
    write(log, ("a", "2"))
    seal(log)
    swap = begun(log, disk)
    (segment, _), size = log._segments, log._segments[0].size
    log.truncate_to(2)
    write(log, ("c", "2"))
    seal(log)
    assert log._segments[0] is segment
    assert segment.size == size
    swap.prepare()
    assert not swap.begin()
    assert texts(log) == [(0, "a", "1"), (1, "b", "1"), (2, "c", "2")]


def test_a_log_that_was_cut_after_its_last_swap_is_not_called_clean() -> None:
    disk, manager, log = stage_with_two_segments()
    manager.prepare_recovery_point_checkpoints().run()
    current = begin_pass(disk, assess(log, NOW), SETTINGS, Random(3), NOW)
    cleaned = clean(disk, current.task, InlineApart())
    log.truncate_to(2)
    for _ in range(4):
        write(log, ("a", "1"))
    assert not current.is_wanted
    assert not current.finish(cleaned)
    assert log.first_dirty_offset is None


def test_segments_that_retention_took_meanwhile_do_not_come_back() -> None:
    disk, manager, log = stage_with_two_segments()
    swap = begun(log, disk)
    log.advance_log_start(3)
    assert manager.apply_retention(NOW) == 1
    swap.prepare()
    assert not swap.begin()
    assert [offset for offset, _, _ in texts(log)] == [3]


@pytest.mark.parametrize("steps", range(12))
def test_a_truncation_in_the_middle_of_a_swap_finishes_it_first(steps: int) -> None:
    disk, manager, log = stage_with_two_segments()
    swap = begun(log, disk)
    swap.prepare()
    assert swap.begin()
    for _ in range(steps):
        swap._step()
    log.truncate_to(3)
    assert texts(log) == [(1, "a", "2")]
    swap.run()
    swap.finish(NOW)
    write(log, ("c", "1"))
    assert texts(log) == [(1, "a", "2"), (3, "c", "1")]
    manager.close(NOW)
    assert texts(restart(disk, CONFIG).logs[TP]) == [(1, "a", "2"), (3, "c", "1")]


@pytest.mark.parametrize("steps", range(12))
def test_a_topic_that_is_deleted_in_the_middle_of_a_swap_is_gone(steps: int) -> None:
    disk, manager, log = stage_with_two_segments()
    swap = begun(log, disk)
    swap.prepare()
    assert swap.begin()
    for _ in range(steps):
        swap._step()
    manager.delete([TP], NOW).run()
    again = create(manager, CONFIG)
    swap.run()
    swap.finish(NOW)
    write(again, ("z", "1"))
    assert texts(again) == [(0, "z", "1")]
    assert disk.list(again.directory) == ["00000000000000000000.log", "partition.metadata"]


def test_a_corrupt_batch_is_not_made_into_a_sound_one() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    write(log, ("b", "1"))
    seal(log)
    file = disk.open(f"{log.directory}/{files.file_name(0, files.LOG)}")
    file.write(100, b"\xff")
    before = disk.files()[f"{log.directory}/{files.file_name(0, files.LOG)}"]
    with pytest.raises(CorruptSegment, match="corrupt"):
        compact(disk, manager, log)
    assert disk.files()[f"{log.directory}/{files.file_name(0, files.LOG)}"] == before


def test_a_log_that_apache_kafka_left_with_gaps_between_its_segments_is_kept() -> None:
    disk, manager, log = stage()
    write(log, ("a", "1"))
    seal(log)
    builder = BatchBuilder(base_offset=9)
    builder.append(NOW, b"b", b"1")
    log.append_replicated(memoryview(builder.build()), NOW)
    log.update_high_watermark(10)
    seal(log)
    # Kafka names a segment after its first batch, and a compacted one before it may end earlier.
    disk.rename(f"{log.directory}/{files.file_name(1, files.LOG)}", f"{log.directory}/{files.file_name(9, files.LOG)}")
    manager.prepare_checkpoints().run()
    reopened = restart(disk.copy(), CONFIG).logs[TP]
    assert texts(reopened) == [(0, "a", "1"), (9, "b", "1")]
