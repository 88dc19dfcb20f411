"""A follower's log takes what a leader wrote, cuts what a leader has not, and knows when it lacks something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, LogManager, UnexpectedOffset
from ottla.log.checkpoints import decode_offsets
from ottla.records import read_header
from tests.log.faulty_disk import FaultyDisk

from .story import (
    DIRECTORY,
    NOW,
    TP,
    all_batches,
    append,
    batch,
    create,
    fill,
    marker,
    offsets_of,
    open_manager,
    restart,
)

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=150)


def follower(config: LogConfig = SMALL) -> tuple[FaultyDisk, LogManager, Log]:
    disk = FaultyDisk()
    manager = open_manager(disk, config)
    return disk, manager, create(manager, config)


def fetched(*epochs: int, base: int = 0, records: int = 1, value: bytes = b"value") -> memoryview:
    data = bytearray()
    for epoch in epochs:
        data += batch(records, base_offset=base, leader_epoch=epoch, value=value)
        base += records
    return memoryview(data)


# Taking.


def test_what_came_lands_with_one_write_a_segment() -> None:
    disk, _, log = follower(LogConfig())
    writes: list[str] = []
    disk.hook = lambda operation: writes.append(operation.kind)
    log.append_replicated(fetched(*[0] * 500))
    assert writes == ["write"]
    assert log.log_end_offset == 500
    assert offsets_of(log) == [(i, i) for i in range(500)]


def test_more_batches_than_the_tail_remembers() -> None:
    _, _, log = follower(LogConfig())
    log.append_replicated(fetched(*[0] * 5000))
    for offset in (0, 17, 2500, 4100, 4999):
        span = log.read(offset, max_bytes=10_000_000, upper_bound=5000)
        assert span is not None
        assert read_header(span.file.read(span.position, 100)).base_offset == offset


def test_batches_of_a_newer_epoch_than_the_leaders_are_left_to_their_leader() -> None:
    _, _, log = follower()
    info = log.append_replicated(fetched(1, 1, 2, 2), leader_epoch=1)
    assert info is not None
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 1, 2)
    assert log.append_replicated(fetched(2, base=2), leader_epoch=1) is None
    assert log.epochs.entries == [(1, 0)]


def test_a_batch_that_the_leader_took_is_not_too_large_for_the_follower() -> None:
    """The topic's `segment.bytes` may have reached the two at different times."""
    _, _, log = follower()
    log.append_replicated(fetched(0, 0, value=b"x" * 900))
    log.append_replicated(fetched(0, 0, base=2))
    assert offsets_of(log) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert log.segment_base_offsets == [0, 1, 2]


def test_a_log_that_starts_within_a_batch_keeps_all_of_it() -> None:
    disk, manager, log = follower()
    log.truncate_fully_and_start_at(14)
    log.append_replicated(fetched(3, 3, base=10, records=10))
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (14, 14, 30)
    assert offsets_of(log) == [(10, 19), (20, 29)]
    manager.prepare_checkpoints().run()
    again = restart(disk, SMALL).logs[TP]
    assert (again.log_start_offset, again.log_end_offset) == (14, 30)
    # Only at the very start of a log: anywhere else it would be an overlap.
    with pytest.raises(UnexpectedOffset):
        again.append_replicated(fetched(3, base=25, records=10))


def test_a_marker_that_cannot_be_read_is_found_before_anything_is_written() -> None:
    from ottla.records import BatchBuilder

    _, _, log = follower()
    builder = BatchBuilder(
        base_offset=1, leader_epoch=0, producer_id=5, producer_epoch=0, transactional=True, control=True
    )
    builder.append(NOW, b"\x00\x00\x00\x01", b"\x00")
    with pytest.raises(KafkaError) as refusal:
        log.append_replicated(memoryview(bytes(fetched(0)) + bytes(builder.build())))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0
    sound = memoryview(bytearray(marker(commit=True, producer_id=5, producer_epoch=0)))
    assert log.append_replicated(sound) is not None


def test_the_last_epoch_is_that_of_the_last_batch() -> None:
    _, _, log = follower()
    assert log.last_epoch == -1
    log.append_replicated(fetched(0, 0, 4))
    assert log.last_epoch == 4
    log.begin_epoch(6)
    assert log.last_epoch == 4, "we led, and nobody wrote"
    log.truncate_to(2)
    assert log.last_epoch == 0
    log.truncate_fully_and_start_at(70)
    assert log.last_epoch == -1


# Cutting.


@pytest.mark.parametrize("start_over", [False, True], ids=["cut", "start over"])
def test_files_that_a_cut_leaves_behind_are_removed_later(start_over: bool) -> None:
    """The loop cuts, and to remove a large file takes long."""
    disk, manager, log = follower()
    for base in range(0, 40, 10):
        log.append_replicated(fetched(*[0] * 10, base=base))
    gone = log.segment_base_offsets[0 if start_over else 1 :]
    assert len(gone) > 2
    removed: list[str] = []
    disk.hook = lambda operation: removed.append(operation.path) if operation.kind == "remove" else None
    if start_over:
        log.truncate_fully_and_start_at(70)
    else:
        log.truncate_to(1)
    assert [path for path in removed if ".log" in path or "index" in path] == []
    names = {f"{DIRECTORY}/{TP}/{base:020}.log.deleted" for base in gone}
    assert names <= set(disk.files())
    manager.remove_deleted(NOW)
    assert names <= set(removed)
    assert names.isdisjoint(disk.files())
    assert log.segment_base_offsets == [70 if start_over else 0]


@pytest.mark.parametrize("at", ["the torn batch", "behind it"])
def test_a_cut_leaves_nothing_of_a_torn_batch(at: str) -> None:
    """A disk has lost the end of a sealed segment, and nobody has noticed yet: what comes next must not lie behind the
    half of a batch, which belongs to another history."""
    disk, _, log = follower()
    for base in range(0, 40, 10):
        log.append_replicated(fetched(*[0] * 10, base=base))
    end = log.segment_base_offsets[2]
    path = log._segments[1].path(".log")
    log.flush(NOW)
    size = disk.file_size(path)
    torn = size // (end - log.segment_base_offsets[1])
    disk.open(path).truncate(size - torn - 5)  # The last batch, and a bit of the one before it.
    log._segments[1].size = size - torn - 5  # As a start that trusts the log finds it.
    log.truncate_to(end - 2 if at == "the torn batch" else end - 1)
    assert log.log_end_offset == end - 2
    assert disk.file_size(path) == size - 2 * torn
    log.append_replicated(fetched(*[1] * 5, base=end - 2))
    assert offsets_of(log) == [(i, i) for i in range(end + 3)]
    assert log.epochs.entries == [(0, 0), (1, end - 2)]
    assert offsets_of(restart(disk, SMALL).logs[TP]) == offsets_of(log)


def test_a_cut_is_on_the_disk_before_anything_takes_its_place() -> None:
    disk, _, log = follower()
    log.append_replicated(fetched(0, 0, 0))
    assert not log.cut_unsynced
    log.truncate_to(1)
    assert log.cut_unsynced
    syncs: list[str] = []
    disk.hook = lambda operation: syncs.append(operation.kind) if operation.kind != "write" else None
    log.append_replicated(fetched(1, base=1))
    assert syncs[:2] == ["sync", "sync_dir"], "a follower's append"
    assert not log.cut_unsynced

    log.truncate_to(1)
    syncs.clear()
    append(log, batch(), epoch=1)
    assert syncs[:2] == ["sync", "sync_dir"], "a leader's append, in an epoch that it knows"

    log.truncate_to(1)
    log.flush(NOW)
    assert not log.cut_unsynced
    syncs.clear()
    log.append_replicated(fetched(0, base=1))
    assert syncs == [], "a flush has done it"


def test_a_flush_that_began_before_the_cut_does_not_settle_it() -> None:
    _, _, log = follower()
    log.append_replicated(fetched(0, 0, 0))
    flush = log.prepare_flush()
    log.truncate_to(1)
    flush.run()
    log.on_flushed(flush, NOW)
    assert log.cut_unsynced
    assert log.recovery_point == 1


def test_cutting_below_the_high_watermark_is_remembered_by_its_checkpoint_first() -> None:
    """After an unclean election. A higher one on the disk would show consumers what was never committed."""
    disk, manager, log = follower()
    fill(log, 10)
    log.flush(NOW)
    manager.prepare_checkpoints().run()
    order: list[str] = []
    disk.hook = lambda operation: order.append(f"{operation.kind} {operation.path.rpartition('/')[2]}")
    log.truncate_to(4)
    assert order.index("rename recovery-point-offset-checkpoint.tmp") < order.index("truncate 00000000000000000000.log")
    assert order.index("rename replication-offset-checkpoint.tmp") < order.index("truncate 00000000000000000000.log")
    stored = decode_offsets(disk.read_file(f"{DIRECTORY}/replication-offset-checkpoint"))
    assert stored == {TP: 4}
    assert (log.high_watermark, log.recovery_point) == (4, 4)


def test_producers_are_as_they_were_at_the_cut() -> None:
    _, _, log = follower()
    for i in range(10):
        data = batch(1, base_offset=i, leader_epoch=i // 5, producer_id=8, producer_epoch=0, sequence=i)
        log.append_replicated(data)
    log.truncate_to(6)
    assert log.producers.entries[8].last_sequence == 5
    log.truncate_to(0)
    assert log.producers.entries == {}


# Lacking.


def spoil(disk: FaultyDisk, offset: int) -> None:
    """Flip a bit in the batch at `offset` of a log whose batches are all of one size, at rest."""
    path = f"{DIRECTORY}/{TP}/00000000000000000000.log"
    content = disk.read_file(path)
    size = int.from_bytes(content[8:12], "big") + 12
    file = disk.open(path)
    file.write(offset * size + size - 3, bytes([content[offset * size + size - 3] ^ 4]))
    file.sync()


def test_corruption_below_the_high_watermark_is_told() -> None:
    """E16. The log ends before it, and says that it lacks what it once had."""
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    manager.prepare_checkpoints().run()
    spoil(disk, 6)
    manager = restart(disk)
    log = manager.logs[TP]
    assert (log.log_end_offset, log.high_watermark, log.missing_until) == (6, 6, 10)
    assert log.cut_at_load
    assert log.lacks_committed
    # Copied again from a peer, it lacks nothing.
    log.append_replicated(fetched(0, 0, 0, base=6))
    assert log.lacks_committed
    log.append_replicated(fetched(0, base=9))
    assert not log.lacks_committed


def test_a_loss_above_the_high_watermark_is_no_such_thing() -> None:
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    log.high_watermark = 4
    manager.prepare_checkpoints().run()
    spoil(disk, 6)
    log = restart(disk).logs[TP]
    assert log.cut_at_load
    assert not log.lacks_committed


def test_a_clean_shutdown_proves_nothing_if_records_are_gone() -> None:
    """The marker is there, and yet the log ends early: this broker must not be taken for one that has everything."""
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    manager.close(NOW, broker_epoch=31)
    sound = open_manager(disk.copy())
    assert sound.previous_broker_epoch == 31
    path = f"{log.directory}/00000000000000000000.log"
    file = disk.open(path)
    file.truncate(file.size() - 5)
    manager = open_manager(disk)
    assert manager.directories[DIRECTORY].was_clean
    assert manager.logs[TP].lacks_committed
    assert manager.previous_broker_epoch == -1
    # Nor is the next start taken for a clean one, if this one is killed before anybody heard of it.
    assert restart(disk).previous_broker_epoch == -1


def test_a_clean_shutdown_proves_nothing_if_the_log_ended_later() -> None:
    """Nothing torn is left, and all that this follower knew to be committed is there. But its leader may have committed
    more before the follower heard of it (A2)."""
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    log.high_watermark = 8
    manager.close(NOW, broker_epoch=31)
    file = disk.open(f"{log.directory}/00000000000000000000.log")
    file.truncate(file.size() // 10 * 9)
    manager = open_manager(disk)
    assert (manager.logs[TP].log_end_offset, manager.logs[TP].high_watermark) == (9, 8)
    assert manager.previous_broker_epoch == -1
    manager.close(NOW, broker_epoch=32)
    assert open_manager(disk).previous_broker_epoch == 32


def test_a_clean_shutdown_proves_nothing_if_a_whole_log_is_gone() -> None:
    """Whoever throws a replica's directory away, to have it copied anew, must not find it elected without records."""
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    manager.close(NOW, broker_epoch=31)
    emptied = disk.copy()
    emptied.remove_tree(log.directory)
    again = open_manager(emptied)
    assert TP not in again.logs
    assert again.directories[DIRECTORY].was_clean
    assert again.previous_broker_epoch == -1


def test_a_log_that_was_deleted_in_order_is_not_missed() -> None:
    disk, manager, log = follower(LogConfig())
    fill(log, 10)
    manager.prepare_checkpoints().run()
    manager.delete([TP], NOW).run()
    manager.close(NOW, broker_epoch=31)
    assert open_manager(disk).previous_broker_epoch == 31


def test_a_follower_is_as_its_leader_after_any_cut() -> None:
    _, _, leader = follower()
    for epoch in range(6):
        fill(leader, 7, epoch=epoch, records=2)
    whole = b"".join(data for _, data in all_batches(leader))
    for cut in range(0, 84, 5):
        disk, _, log = follower(replace(SMALL, segment_bytes=500))
        log.append_replicated(memoryview(whole))
        log.truncate_to(cut)
        rest = b"".join(data for header, data in all_batches(leader) if header.base_offset >= log.log_end_offset)
        log.append_replicated(memoryview(rest))
        assert all_batches(log) == all_batches(leader)
        assert log.epochs.entries == leader.epochs.entries
        again = restart(disk, SMALL).logs[TP]
        assert all_batches(again) == all_batches(leader)
