"""Whatever moment of a compaction the process or the machine stops at, the log is the old one or the new one (E9)."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.log import Log, LogConfig, LogManager, files
from ottla.log.cleaner import SegmentCleaned, assess, begin_pass, clean
from ottla.runtime.seams import DiskError
from tests.seams.surroundings import InlineApart

from .compacting import SETTINGS, ChanceWriter, records, seal, write
from .faulty_disk import FaultyDisk, Operation, Survival
from .story import DIRECTORY, NOW, TP, all_batches, create, open_manager, restart
from .test_cleaner_model import check_log

CONFIG = LogConfig(
    compact=True, delete=False, delete_retention_ms=10, segment_bytes=1200, index_interval_bytes=150, segment_ms=1 << 50
)


Contents = tuple[bytes, ...]


def contents(log: Log) -> Contents:
    return tuple(data for _, data in all_batches(log))


class CleaningLife:
    """A log that is written to and compacted, over and over; it always knows what a start may find."""

    def __init__(self, disk: FaultyDisk, seed: int, config: LogConfig = CONFIG) -> None:
        self.disk = disk
        self.config = config
        self.manager: LogManager = open_manager(disk, config, verify_transactions=False)
        disk.sync_dir("/")
        self.log = create(self.manager, config)
        self.writer = ChanceWriter(self.log, seed, keys=6)
        self.flushed: Contents = ()
        self.swapping: tuple[Contents, Contents] | None = None
        """While a segment is swapped in: the log before, and after."""

    def tell(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            for _ in range(14):
                self.writer.step()
            self.writer.end_all()
            seal(self.log, self.writer.now_ms)
            self.manager.prepare_checkpoints().run()
            self.flushed = contents(self.log)
            self.compact()
            self.manager.remove_deleted(self.writer.now_ms + self.config.file_delete_delay_ms)
            self.writer.now_ms += 20

    def compact(self) -> None:
        log, now_ms = self.log, self.writer.now_ms
        current = begin_pass(self.disk, assess(log, now_ms), SETTINGS, Random(1), now_ms)

        def swap_in(cleaned: SegmentCleaned) -> None:
            swap = current.swap(cleaned)
            swap.prepare()
            assert swap.begin()
            after = contents(log)
            self.swapping = (self.flushed, after)
            swap.run()
            swap.finish(now_ms)
            self.flushed, self.swapping = after, None

        assert current.finish(clean(self.disk, current.task, InlineApart(swap_in)))
        self.manager.prepare_cleaner_checkpoint(log).run()

    def check(self, disk: FaultyDisk) -> None:
        """Start on `disk`: nothing that was flushed is missing, and the swap under way has happened or not."""
        manager = restart(disk, self.config)
        log = manager.logs[TP]
        found = contents(log)
        allowed = self.swapping or (self.flushed,)
        assert any(found[: len(each)] == each for each in allowed), "neither the old log nor the new one"
        self.check_aborted(log)
        names = disk.list(log.directory)
        assert not [name for name in names if name.endswith((files.CLEANED, files.SWAP, files.DELETED))]
        check_log(log)
        offset = log.log_end_offset
        write(log, ("afterwards", "1"))
        seal(log)
        assert log.log_end_offset == offset + 1
        found = contents(log)
        manager.close(NOW)
        again = restart(disk, self.config).logs[TP]
        assert contents(again) == found
        check_log(again)

    def check_aborted(self, log: Log) -> None:
        """Readers are told of every aborted transaction of which a record is left (D12)."""
        told = log.aborted_transactions(0, log.log_end_offset)
        log.update_high_watermark(log.log_end_offset)
        for header, record in records(log):
            if (
                header.is_transactional
                and record.offset in self.writer.aborted
                and record.offset < log.last_stable_offset
            ):
                assert any(
                    txn.producer_id == header.producer_id and txn.first_offset <= record.offset < txn.last_offset
                    for txn in told
                ), f"nobody is told that offset {record.offset} was aborted"


class Crashes:
    """A hook that tries a crash before every operation, on a copy of the disk."""

    def __init__(self, disk: FaultyDisk, survivals: list[list[Survival]], seed: int) -> None:
        self.disk = disk
        self.survivals = cycle(survivals)
        self.seed = seed
        self.life: CleaningLife | None = None
        self.points = 0

    def __call__(self, operation: Operation) -> None:
        if self.life is None or not self.life.flushed:
            return
        self.points += 1
        random = Random(self.seed * 100_003 + self.points)
        where = f"before operation {self.points} ({operation.kind} {operation.path}), seed {self.seed}"
        attempts = [("process crash", self._killed(operation, random))]
        attempts += [(kind.value, self.disk.after_power_loss(kind, random)) for kind in next(self.survivals)]
        for kind, disk in attempts:
            try:
                self.life.check(disk)
            except Exception as error:
                raise AssertionError(f"{kind} {where}: {error}") from error

    def _killed(self, operation: Operation, random: Random) -> FaultyDisk:
        disk = self.disk.copy()
        if operation.kind == "write" and len(operation.data) > 1:
            disk.open(operation.path).write(operation.position, operation.data[: random.randrange(len(operation.data))])
        return disk


def crash_everywhere(survivals: list[list[Survival]], seed: int, rounds: int) -> int:
    disk = FaultyDisk()
    crashes = Crashes(disk, survivals, seed)
    disk.hook = crashes
    crashes.life = life = CleaningLife(disk, seed)
    life.tell(rounds)
    print(f"crashes at {crashes.points} disk operations")
    return crashes.points


@pytest.mark.slow
def test_a_crash_before_any_disk_operation_of_a_compaction_leaves_the_old_log_or_the_new() -> None:
    survivals = [[Survival.PIECES], [Survival.NOTHING], [Survival.PREFIX], [Survival.ALL]]
    assert crash_everywhere(survivals, seed=1, rounds=2) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2])
def test_every_kind_of_crash_in_compactions(seed: int) -> None:
    crash_everywhere([[*Survival, Survival.PIECES, Survival.PIECES]], seed, rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 40))
def test_many_crashes_in_compactions(seed: int) -> None:
    crash_everywhere([[*Survival, Survival.PIECES, Survival.PIECES, Survival.PREFIX]], seed, rounds=4)


class CrashInRecovery(BaseException):
    """Stops a start in its middle."""


def crash_twice(every: int) -> int:
    """Lose power before every so many operations of a swap, and again before every one of the start that follows."""
    disk = FaultyDisk()
    life = CleaningLife(disk, seed=5)
    tried = points = 0

    def hook(operation: Operation) -> None:
        nonlocal tried, points
        if life.swapping is None:
            return
        points += 1
        if points % every:
            return
        for survival in (Survival.ALL, Survival.PIECES):
            lost = disk.after_power_loss(survival, Random(tried))
            number = 0
            while True:
                number += 1
                attempt = lost.copy()

                def stop(operation: Operation, attempt: FaultyDisk = attempt, number: int = number) -> None:
                    if attempt.operations == number:
                        raise CrashInRecovery

                attempt.hook = stop
                try:
                    LogManager(attempt, [DIRECTORY], random=Random(1)).load(lambda topic: CONFIG, NOW)
                except CrashInRecovery:
                    tried += 1
                    attempt.hook = None
                    life.check(attempt.after_power_loss(Survival.PIECES, Random(tried)))
                else:
                    break

    disk.hook = hook
    life.tell(1)
    print(f"{tried} crashes in starts")
    return tried


def test_a_start_that_finishes_a_swap_may_be_interrupted_too() -> None:
    assert crash_twice(8) > 20


@pytest.mark.slow
def test_a_start_may_be_interrupted_after_many_crashes_in_a_swap() -> None:
    assert crash_twice(3) > 100


def test_a_disk_that_fails_in_a_swap_takes_the_log_offline() -> None:
    number = 0
    while True:
        number += 1
        disk = FaultyDisk()
        life = CleaningLife(disk, seed=7, config=replace(CONFIG, segment_bytes=1 << 20))
        seen = 0

        def hook(operation: Operation, life: CleaningLife = life, number: int = number) -> None:
            nonlocal seen
            if life.swapping is not None:
                seen += 1
                if seen == number:
                    raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

        disk.hook = hook
        try:
            life.tell(1)
        except DiskError:
            assert life.log.offline
            disk.hook = None
            life.check(disk.copy())
        else:
            break
    assert number > 10
