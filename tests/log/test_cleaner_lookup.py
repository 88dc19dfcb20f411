"""What a compaction has to know beforehand is read apart from the loop: choosing and beginning read nothing then."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ottla.log import Log, LogConfig
from ottla.log.cleaner import assess, begin_pass, lookup

from .compacting import SETTINGS, seal, write
from .faulty_disk import FaultyDisk
from .story import NOW, TP, create, open_manager, restart
from .test_cleaner import CONFIG, end, transact

LAGS = replace(CONFIG, min_compaction_lag_ms=1, max_compaction_lag_ms=1_000)


def started_again(config: LogConfig = LAGS) -> tuple[FaultyDisk, Log]:
    """A node that has just started on a log of three sealed segments, the middle one with an aborted transaction."""
    disk = FaultyDisk()
    manager = open_manager(disk, config, verify_transactions=False)
    log = create(manager, config)
    write(log, ("a", "1"), timestamp=NOW - 5_000)
    seal(log)
    transact(log, 7, ("a", "2"))
    end(log, 7, commit=False)
    seal(log)
    write(log, ("b", "1"), timestamp=NOW - 3_000)
    seal(log)
    manager.close(NOW)
    log = restart(disk, config).logs[TP]
    log.update_high_watermark(log.log_end_offset)
    return disk, log


def test_what_was_looked_up_need_not_be_read() -> None:
    disk, log = started_again()
    wanted = lookup(disk, [log], of_transactions=True)
    assert wanted.is_needed
    wanted.run()
    wanted.tell()
    assert not lookup(disk, [log], of_transactions=True).is_needed
    reads = disk.reads
    due = assess(log, NOW + 60_000)
    current = begin_pass(disk, due, SETTINGS, Random(3), NOW + 60_000)
    assert disk.reads == reads
    # And it is what would have been read.
    other_disk, other = started_again()
    reads = other_disk.reads
    expected = assess(other, NOW + 60_000)
    expected_pass = begin_pass(other_disk, expected, SETTINGS, Random(3), NOW + 60_000)
    assert other_disk.reads > reads
    assert replace(due, log=other) == expected
    assert current.task == expected_pass.task
    assert [entry.producer_id for entry in current.task.aborted] == [7]
    assert due.overdue_ms == 64_000


def test_a_log_that_asks_for_no_lag_has_nothing_to_look_up_before_it_is_chosen() -> None:
    disk, log = started_again(CONFIG)
    assert not lookup(disk, [log]).is_needed
    assert lookup(disk, [log], of_transactions=True).is_needed


def test_nothing_is_told_of_a_log_that_was_cut_meanwhile() -> None:
    disk, log = started_again()
    wanted = lookup(disk, [log], of_transactions=True)
    wanted.run()
    log.truncate_to(1)
    reads = disk.reads
    wanted.tell()
    assert lookup(disk, [log], of_transactions=True).is_needed
    assert disk.reads == reads


def test_what_cannot_be_read_is_left_to_whoever_needs_it() -> None:
    disk, log = started_again()
    wanted = lookup(disk, [log], of_transactions=True)
    for path in [path for path in disk.files() if path.endswith(".timeindex")]:
        disk.remove(path)
    wanted.run()
    wanted.tell()
    assert lookup(disk, [log]).is_needed
    assert assess(log, NOW + 60_000).overdue_ms == 64_000
