"""The lineage of a log: which epoch began where, and what replicas are told about it."""

from __future__ import annotations

import pytest

from ottla.log import LeaderEpochCache, LogConfig
from ottla.log.checkpoints import decode_epochs

from .faulty_disk import FaultyDisk
from .story import NOW, TP, append, batch, create, fill, open_manager

ENTRIES = [(2, 0), (4, 10), (7, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # No epoch.
        (0, (0, 0)),  # Older than all: the asked epoch, and where the first known one starts.
        (1, (1, 0)),
        (2, (2, 10)),  # Ends where the next begins.
        (3, (2, 10)),  # Between: the floor.
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, 42)),  # The latest ends at the log's end.
        (8, (-1, -1)),  # Above all: undefined.
    ],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochCache(ENTRIES).end_offset_for(asked, 42) == answer


def test_an_empty_cache_knows_nothing() -> None:
    assert LeaderEpochCache().end_offset_for(0, 42) == (-1, -1)
    assert LeaderEpochCache().latest_epoch is None
    assert LeaderEpochCache().epoch_for_offset(3) is None


@pytest.mark.parametrize(
    ("epoch", "start", "after"),
    [
        (7, 40, ENTRIES),  # Known.
        (7, 25, [(2, 0), (4, 10), (7, 25)]),  # Began earlier than we knew.
        (9, 42, [*ENTRIES, (9, 42)]),
        (9, 30, [(2, 0), (4, 10), (9, 30)]),  # The one before had no records.
        (9, 5, [(2, 0), (9, 5)]),
        (5, 20, [(2, 0), (4, 10), (5, 20)]),  # A newer epoch contradicts it and goes.
        (0, 0, [(0, 0)]),  # Epoch 0 is an epoch.
    ],
)
def test_assigning(epoch: int, start: int, after: list[tuple[int, int]]) -> None:
    cache = LeaderEpochCache(ENTRIES)
    assert cache.assign(epoch, start) == (after != ENTRIES)
    assert cache.entries == after


@pytest.mark.parametrize(
    ("end", "after"), [(42, ENTRIES), (31, ENTRIES), (30, ENTRIES[:2]), (10, ENTRIES[:1]), (5, ENTRIES[:1]), (0, [])]
)
def test_cutting_the_end(end: int, after: list[tuple[int, int]]) -> None:
    cache = LeaderEpochCache(ENTRIES)
    cache.truncate_from_end(end)
    assert cache.entries == after
    assert cache.dirty == (after != ENTRIES)


@pytest.mark.parametrize(
    ("start", "after"),
    [
        (0, ENTRIES),
        (5, [(2, 5), (4, 10), (7, 30)]),
        (10, [(4, 10), (7, 30)]),
        (29, [(4, 29), (7, 30)]),
        (35, [(7, 35)]),
    ],
)
def test_cutting_the_start(start: int, after: list[tuple[int, int]]) -> None:
    cache = LeaderEpochCache(ENTRIES)
    cache.truncate_from_start(start)
    assert cache.entries == after
    assert cache.dirty == (after != ENTRIES)


def test_which_epoch_wrote_an_offset() -> None:
    cache = LeaderEpochCache([(2, 5), (4, 10)])
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 2, 2, 4, 4]


def test_back_to_back_elections_are_known_before_any_append() -> None:
    log = create(open_manager(FaultyDisk()))
    log.begin_epoch(0)
    fill(log, 3)
    log.begin_epoch(1)
    assert log.end_offset_for_epoch(0) == (0, 3)
    log.begin_epoch(2)
    append(log, batch(), epoch=2)
    assert log.epochs.entries == [(0, 0), (2, 3)]
    assert log.end_offset_for_epoch(1) == (0, 3)


def test_an_epoch_is_on_the_disk_before_its_first_batch_lands_on_flushed_data() -> None:
    disk = FaultyDisk()
    log = create(open_manager(disk))
    path = f"{log.directory}/leader-epoch-checkpoint"
    append(log, batch(), epoch=0)
    assert not disk.exists(path), "a new partition's first append waits for nothing"
    log.flush(NOW)
    assert decode_epochs(disk.read_file(path)) == [(0, 0)]
    log.begin_epoch(5)
    assert decode_epochs(disk.read_file(path)) == [(0, 0)], "without a batch it decides nothing"
    append(log, batch(), epoch=5)
    assert decode_epochs(disk.read_file(path)) == [(0, 0), (5, 1)]


def test_truncation_trims_the_epochs_even_if_no_record_goes() -> None:
    log = create(open_manager(FaultyDisk()))
    fill(log, 3)
    log.begin_epoch(6)
    assert log.epochs.latest_epoch == 6
    assert not log.truncate_to(3)
    assert log.epochs.entries == [(0, 0)]


def test_epochs_that_the_checkpoint_lacks_are_read_from_the_batches() -> None:
    disk = FaultyDisk()
    manager = open_manager(disk, LogConfig(segment_bytes=500))
    log = create(manager, LogConfig(segment_bytes=500))
    for epoch in (0, 3, 4):
        fill(log, 10, epoch=epoch)
    manager.close(NOW)
    disk.remove(f"{log.directory}/leader-epoch-checkpoint")
    assert open_manager(disk).logs[TP].epochs.entries == [(0, 0), (3, 10), (4, 20)]


def test_an_epoch_goes_on_where_a_later_one_was_begun_and_never_used() -> None:
    """We led epoch 14 without a record, and follow a leader whose epoch 11 goes on at our log's end."""
    cache = LeaderEpochCache([(10, 568), (11, 677), (14, 838)])
    assert cache.assign(11, 838)
    assert cache.entries == [(10, 568), (11, 677)]
    cache = LeaderEpochCache([(10, 568), (12, 677), (14, 838)])
    assert cache.assign(11, 838), "an epoch that we never had contradicts one that has records"
    assert cache.entries == [(10, 568), (11, 838)]
