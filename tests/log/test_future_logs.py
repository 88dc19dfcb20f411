"""A log that moves to another directory: at whatever moment the machine stops, there is one log, with all that was
promised in it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.log import Log, LogConfig, LogManager, files, future_logs
from ottla.model import TopicPartition, Uuid
from ottla.runtime.seams import DiskError

from .faulty_disk import FaultyDisk, Operation, Survival
from .story import NOW, TOPIC_ID, TP, all_batches, append, batch, fill

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
OLD, NEW = "/old", "/new"


def start(disk: FaultyDisk, directories: tuple[str, ...] = (OLD, NEW)) -> LogManager:
    disk.kill()
    manager = LogManager(disk, directories, random=Random(3))
    manager.lock()
    manager.load(lambda topic: CONFIG, NOW)
    return manager


def formatted() -> FaultyDisk:
    disk = FaultyDisk()
    for directory in (OLD, NEW):
        disk.make_dirs(directory)
    disk.root.sync()
    return disk


def copy(log: Log, future: Log, max_bytes: int = 300) -> None:
    """All that the copy lacks, a little at a time."""
    while (span := log.read(future.log_end_offset, max_bytes=max_bytes, upper_bound=log.log_end_offset)) is not None:
        future.append_replicated(memoryview(span.file.read(span.position, span.size)), NOW)
    future.update_high_watermark(log.high_watermark)


def place(log: Log) -> str:
    return log.directory.rpartition("/")[0]


def contents(log: Log) -> list[bytes]:
    return [data for _, data in all_batches(log)]


def begun(disk: FaultyDisk) -> tuple[LogManager, Log, Log]:
    """A manager with a log of three segments in the old directory, flushed, and its empty copy in the new one."""
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID, CONFIG, NOW, directory=OLD)
    fill(log, 18)
    log.flush(NOW)
    return manager, log, future_logs.begin(manager, TP, NEW, NOW)


def test_the_copy_takes_the_place_of_the_log() -> None:
    disk = formatted()
    manager, log, future = begun(disk)
    copy(log, future)
    before = contents(log)
    manager.prepare_checkpoints_of(NEW).run()
    future_logs.take_over(manager, TP, NOW).run()
    assert manager.logs == {TP: future}
    assert manager.futures == {}
    assert future.directory == f"{NEW}/{TP}"
    assert contents(future) == before
    fill(future, 12, epoch=1)  # It rolls, flushes and cuts under its new name.
    future.flush(NOW)
    future.truncate_to(20)
    assert log.offline
    assert [name for name in disk.list(OLD) if name.endswith(files.DELETE_DIRECTORY)]
    manager.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert not [name for name in disk.list(OLD) if disk.is_dir(f"{OLD}/{name}")]
    manager.close(NOW)
    again = start(disk)
    assert place(again.logs[TP]) == NEW
    assert contents(again.logs[TP])[:18] == before


def test_what_was_read_of_the_old_log_can_still_be_sent() -> None:
    manager, log, future = begun(formatted())
    copy(log, future)
    span = log.read(0, max_bytes=100, upper_bound=log.log_end_offset)
    assert span is not None
    before = span.file.read(span.position, span.size)
    future_logs.take_over(manager, TP, NOW).run()
    assert span.file.read(span.position, span.size) == before


def test_a_copy_begins_where_the_log_does_in_the_middle_of_a_batch_too() -> None:
    disk = formatted()
    manager = start(disk)
    log = manager.create(TP, TOPIC_ID, CONFIG, NOW, directory=OLD)
    fill(log, 4, records=5)
    log.advance_log_start(7)
    future = future_logs.begin(manager, TP, NEW, NOW)
    copy(log, future)
    assert (future.log_start_offset, future.log_end_offset) == (7, 20)
    manager.prepare_checkpoints_of(NEW).run()
    future_logs.take_over(manager, TP, NOW).run()
    manager.close(NOW)
    assert start(disk).logs[TP].log_start_offset == 7


def test_a_start_in_the_middle_finds_both() -> None:
    disk = formatted()
    manager, log, future = begun(disk)
    copy(log, future)
    append(log, batch(), epoch=0)
    manager.close(NOW)
    again = start(disk)
    assert place(again.logs[TP]) == OLD
    assert (again.logs[TP].log_end_offset, again.futures[TP].log_end_offset) == (19, 18)


def test_a_copy_that_is_given_up_leaves_nothing() -> None:
    disk = formatted()
    manager, _, _ = begun(disk)
    future_logs.give_up(manager, TP, NOW).run()
    manager.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    assert manager.futures == {}
    assert not [name for name in disk.list(NEW) if disk.is_dir(f"{NEW}/{name}")]


@pytest.mark.parametrize("end", [LogManager.delete, LogManager.set_apart], ids=["deleted", "set apart"])
def test_with_a_log_goes_its_copy(end: Callable[..., object]) -> None:
    disk = formatted()
    manager, _, future = begun(disk)
    end(manager, [TP], NOW).run()  # type: ignore[attr-defined]
    assert future.offline
    assert not start(disk).futures
    assert not start(disk).logs


def test_a_copy_alone_is_not_trusted_while_a_directory_is_missing() -> None:
    """The log may be there, with more in it; only the metadata can say that the copy had everything."""
    disk = formatted()
    manager, log, future = begun(disk)
    copy(log, future)
    manager.close(NOW)

    def unreadable(operation: Operation) -> None:
        if operation.path.startswith(OLD):
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "gone")

    disk.hook = unreadable
    doubtful = start(disk)
    assert doubtful.directories[OLD].offline
    assert doubtful.logs == {}
    assert TP in doubtful.futures


def test_a_copy_of_an_older_topic_of_the_same_name_is_nobodys() -> None:
    disk = formatted()
    manager, _, _ = begun(disk)
    manager.close(NOW)
    disk.remove_tree(f"{OLD}/{TP}")
    alone = start(disk, (OLD,))
    fill(alone.create(TP, Uuid(bytes(16)[:15] + b"x"), CONFIG, NOW), 3)
    alone.close(NOW)
    again = start(disk)
    assert again.logs[TP].log_end_offset == 3
    assert again.futures == {}


def test_names_that_are_too_long_for_a_copy() -> None:
    assert files.has_room_for_future(TopicPartition("t" * 213, 0))
    assert not files.has_room_for_future(TopicPartition("t" * 249, 0))
    name = files.future_name(TopicPartition("a.b-c", 7), Random(1))
    assert files.parse_future(name) == TopicPartition("a.b-c", 7)
    assert files.parse_future("a-7") is None
    assert files.parse_future("a-7-future") is None


def move_and_crash(survivals: list[Survival]) -> int:
    """Lose power, or the process, before every disk operation of a move; how many there were."""
    disk = formatted()
    manager, log, _ = begun(disk)
    promised = contents(log)
    points = 0

    def crash(operation: Operation) -> None:
        nonlocal points
        points += 1
        random = Random(points)
        where = f"before operation {points} ({operation.kind} {operation.path})"
        for left in (disk.copy(), *(disk.after_power_loss(survival, random) for survival in survivals)):
            found = start(left)
            assert list(found.logs) == [TP], where
            assert contents(found.logs[TP])[: len(promised)] == promised, where
            if TP in found.futures:  # The move goes on, and comes to its end.
                copy(found.logs[TP], found.futures[TP])
                found.prepare_checkpoints_of(NEW).run()
                future_logs.take_over(found, TP, NOW).run()
                assert contents(found.logs[TP])[: len(promised)] == promised, where
            found.close(NOW)
            again = start(left)
            assert contents(again.logs[TP])[: len(promised)] == promised, where
            assert not again.futures, where

    disk.hook = crash
    future = manager.futures[TP]
    copy(log, future)
    future.flush(NOW)
    append(log, batch(), epoch=0)
    log.flush(NOW)
    promised = contents(log)
    copy(log, future)
    manager.prepare_checkpoints_of(NEW).run()
    future_logs.take_over(manager, TP, NOW).run()
    append(future, batch(), epoch=0)
    future.flush(NOW)
    promised = contents(future)
    manager.remove_deleted(NOW + CONFIG.file_delete_delay_ms)
    manager.close(NOW)
    return points


@pytest.mark.slow
def test_a_crash_at_any_moment_of_a_move_leaves_one_log_with_everything() -> None:
    assert move_and_crash(list(Survival)) > 60


def test_a_new_disk_that_fails_leaves_the_log_where_it_was() -> None:
    """Before each operation on the new disk: the old log is there with everything, and goes on."""
    number = 0
    while True:
        number += 1
        disk = formatted()
        manager, log, future = begun(disk)
        seen = 0

        def fail(operation: Operation, number: int = number) -> None:
            nonlocal seen
            if operation.path.startswith(NEW):
                seen += 1
                if seen == number:
                    raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the new disk is gone")

        disk.hook = fail
        try:
            copy(log, future)
            manager.prepare_checkpoints_of(NEW).run()
            future_logs.take_over(manager, TP, NOW).run()
        except DiskError:
            if manager.logs[TP] is future:
                continue  # It had won: only the checkpoints came late.
            assert not log.offline
            append(log, batch(), epoch=0)
            disk.hook = None
            manager.fail_directory(NEW)
            manager.close(NOW)
            assert start(disk).logs[TP].log_end_offset == 19
        else:
            break
    assert number > 20
