"""The heart of the room: whatever moment the process or the machine stops at, the promises of invariants E hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from random import Random

import pytest

from ottla.errors import ErrorCode, StartupError
from ottla.log import LogConfig, LogManager, files
from ottla.runtime.seams import DiskError

from .crash_story import CONFIG, Life, Seen, check_after_crash
from .faulty_disk import FaultyDisk, Operation, Survival
from .story import DIRECTORY, NOW


class Crashes:
    """A hook that tries a crash before every operation of the story, on a copy of the disk."""

    def __init__(self, disk: FaultyDisk, config: LogConfig, survivals: list[list[Survival]], seed: int) -> None:
        self.disk = disk
        self.config = config
        self.seed = seed
        self.survivals = cycle(survivals)
        self.life: Life | None = None
        self.points = 0
        self.crashes = 0
        self._seen = Seen()

    def __call__(self, operation: Operation) -> None:
        if self.life is None:
            return  # The very first start: there is nothing to lose yet.
        self.points += 1
        random = Random(self.seed * 100_003 + self.points)
        where = f"before operation {self.points} ({operation.kind} {operation.path}), seed {self.seed}"
        self._check(where, "process crash", self._killed(operation, random), power_loss=False)
        for survival in next(self.survivals):
            self._check(where, survival.value, self.disk.after_power_loss(survival, random), power_loss=True)

    def _killed(self, operation: Operation, random: Random) -> FaultyDisk:
        """A process that is killed in the middle of a write leaves some of it."""
        disk = self.disk.copy()
        if operation.kind == "write" and len(operation.data) > 1:
            part = operation.data[: random.randrange(len(operation.data))]
            disk.open(operation.path).write(operation.position, part)
        return disk

    def _check(self, where: str, kind: str, disk: FaultyDisk, *, power_loss: bool) -> None:
        assert self.life is not None
        self.crashes += 1
        try:
            check_after_crash(disk, self.life.chronicle, self.config, seen=self._seen, power_loss=power_loss)
        except Exception as error:
            raise AssertionError(f"{kind} {where}: {error}") from error


Story = Callable[[Life], None]
STORIES = pytest.mark.parametrize("story", [Life.tell, Life.tell_as_a_follower], ids=["a leader", "a follower"])


def crash_everywhere(config: LogConfig, survivals: list[list[Survival]], story: Story, seed: int = 1) -> Crashes:
    disk = FaultyDisk()
    crashes = Crashes(disk, config, survivals, seed)
    disk.hook = crashes
    crashes.life = life = Life(disk, config)
    story(life)
    return crashes


@pytest.mark.slow
@STORIES
def test_a_crash_before_any_disk_operation_breaks_no_promise(story: Story) -> None:
    """A process crash at every operation, and a power loss of each kind in turn."""
    survivals = [[Survival.PIECES], [Survival.NOTHING], [Survival.PREFIX], [Survival.ALL]]
    crashes = crash_everywhere(CONFIG, survivals, story)
    print(f"{crashes.crashes} crashes at {crashes.points} disk operations")
    assert crashes.points > 200


@pytest.mark.slow
@STORIES
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 23))])
def test_every_kind_of_crash_at_every_operation(seed: int, story: Story) -> None:
    config = replace(CONFIG, preallocate=seed % 2 == 1, flush_messages=1 if seed == 2 else CONFIG.flush_messages)
    crashes = crash_everywhere(config, [[*Survival, Survival.PIECES, Survival.PREFIX]], story, seed)
    print(f"{crashes.crashes} crashes at {crashes.points} disk operations")


def tell_with_a_failure(number: int, kinds: frozenset[str], story: Story) -> tuple[FaultyDisk, Life, str, bool]:
    """Tell the story on a disk whose operation `number` of these kinds fails; what failed, and whether in a close."""
    disk = FaultyDisk()
    life = Life(disk)
    failed: list[str] = []
    failed_while_closing: list[bool] = []
    seen = 0

    def hook(operation: Operation) -> None:
        nonlocal seen
        if operation.kind in kinds:
            seen += 1
            if seen == number:
                failed.append(f"{operation.kind} {operation.path}")
                failed_while_closing.append(life.chronicle.closing)
                raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left, or worse")

    disk.hook = hook
    with suppress(DiskError, StartupError):
        story(life)
    return disk, life, failed[0] if failed else "", any(failed_while_closing)


def check_failure(number: int, kinds: frozenset[str], story: Story, seen: Seen) -> bool:
    """E17: the log that met the error is offline and stays so, and no promise made before it is broken."""
    disk, life, failed, in_close = tell_with_a_failure(number, kinds, story)
    if not failed:
        return False
    where = f"{failed} failed ({number})"
    partition_directory = failed.split()[1].rpartition("/")[0]
    for log in life.manager.logs.values():
        if log.directory == partition_directory and not in_close:
            assert log.offline, where
            with pytest.raises(DiskError):
                log.prepare_flush()
            with pytest.raises(DiskError):
                log.read(log.log_start_offset, max_bytes=1, upper_bound=log.log_end_offset)
    disk.hook = None
    with suppress(DiskError):
        if not in_close and not life.chronicle.closed:
            life.close()
    assert (
        in_close
        or not disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")
        or not any(log.directory == partition_directory for log in life.manager.logs.values())
    ), f"{where}: the marker is not honest"
    life.chronicle.closed |= disk.exists(f"{DIRECTORY}/{files.CLEAN_SHUTDOWN}")
    try:
        check_after_crash(disk.copy(), life.chronicle, CONFIG, seen=seen, power_loss=True, sick="sync" in kinds)
        for survival in Survival:
            lost = disk.after_power_loss(survival, Random(number))
            check_after_crash(lost, life.chronicle, CONFIG, seen=seen, power_loss=True)
    except Exception as error:
        raise AssertionError(f"{where}: {error}") from error
    return True


CHANGES = frozenset({"write", "create", "mkdir", "truncate", "rename", "remove"})
SYNCS = frozenset({"sync", "sync_dir"})


def fail_everywhere(kinds: frozenset[str], stride: int, story: Story) -> int:
    number = 1
    seen = Seen()
    while check_failure(number, kinds, story, seen):
        number += stride
    print(f"every {stride}. of {number} operations failed")
    return number


@pytest.mark.parametrize("kinds", [CHANGES, SYNCS], ids=["EIO or ENOSPC on a change", "EIO on a sync"])
@STORIES
def test_a_disk_error_takes_the_log_offline_and_loses_nothing_promised(kinds: frozenset[str], story: Story) -> None:
    assert fail_everywhere(kinds, 7, story) > 50


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [CHANGES, SYNCS], ids=["EIO or ENOSPC on a change", "EIO on a sync"])
@STORIES
def test_every_disk_error(kinds: frozenset[str], story: Story) -> None:
    assert fail_everywhere(kinds, 1, story) > 50


class CrashInRecovery(BaseException):
    """Stops a recovery in its middle."""


def crash_in_recovery(disk: FaultyDisk, life: Life, seed: int, seen: Seen) -> int:
    """Lose power again before every operation of the recovery from a power loss; how many operations it has."""
    number = 0
    while True:
        number += 1
        attempt = disk.copy()

        def stop(operation: Operation, attempt: FaultyDisk = attempt, number: int = number) -> None:
            if attempt.operations == number:
                raise CrashInRecovery

        attempt.hook = stop
        manager = LogManager(attempt, [DIRECTORY], random=Random(1))
        try:
            manager.load(lambda topic: CONFIG, NOW)
        except CrashInRecovery:
            survival = list(Survival)[(seed + number) % len(Survival)]
            lost = attempt.after_power_loss(survival, Random(seed * 1009 + number))
            check_after_crash(lost, life.chronicle, CONFIG, seen=seen, power_loss=True, recovering=True)
        else:
            return number - 1


def crash_twice(every: int, story: Story) -> int:
    disk = FaultyDisk()
    seen = Seen()
    tried = points = 0

    def hook(operation: Operation) -> None:
        nonlocal tried, points
        points += 1
        if points % every == 0:
            survival = list(Survival)[points // every % len(Survival)]
            lost = disk.after_power_loss(survival, Random(points))
            tried += crash_in_recovery(lost, life, points, seen)

    life = Life(disk)
    disk.hook = hook
    story(life)
    print(f"{tried} crashes in the recovery from {points // every} crashes")
    return tried


@STORIES
def test_recovery_itself_may_be_interrupted(story: Story) -> None:
    assert crash_twice(60, story) > 50


@pytest.mark.slow
@STORIES
def test_recovery_may_be_interrupted_anywhere(story: Story) -> None:
    assert crash_twice(3, story) > 500
