"""What a disk keeps: everything when a process dies, what was synced when the power goes, and nothing of a lie."""

from __future__ import annotations

from random import Random

import pytest

from ottla.runtime.seams import DiskError
from ottla.sim.disk import SimDisk
from ottla.sim.loop import NodeDied
from ottla.sim.volume import Volume


def fresh() -> tuple[Volume, SimDisk]:
    volume = Volume(random=Random(1))
    disk = SimDisk(volume)
    disk.make_dirs("/data/t-0")
    disk.sync_dir("/data")
    disk.sync_dir("/")
    return volume, disk


def synced_file(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write(0, data)
    file.sync()
    disk.sync_dir(path.rpartition("/")[0])


def after_power_losses(seeds: int, path: str, *steps: bytes) -> set[bytes | None]:
    """What is found at `path` after `b"synced"` was synced and each of `steps` appended, under many seeds."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        volume, disk = fresh()
        synced_file(disk, path, b"synced")
        file = disk.open(path)
        for step in steps:
            file.write(file.size(), step)
        volume.lose_power(Random(seed))
        again = SimDisk(volume)
        found.add(again.read_file(path) if again.exists(path) else None)
    return found


def test_a_process_that_dies_leaves_what_it_wrote() -> None:
    volume, disk = fresh()
    disk.open("/data/t-0/a", create=True).write(0, b"written")
    disk.die()
    assert SimDisk(volume).read_file("/data/t-0/a") == b"written"


def test_a_power_loss_keeps_what_was_synced_and_any_prefix_of_the_rest() -> None:
    found = after_power_losses(300, "/data/t-0/a", b"one", b"two")
    assert None not in found
    assert all(data is not None and data.startswith(b"synced") for data in found)
    assert b"synced" in found
    assert b"syncedonetwo" in found
    assert b"syncedon" in found, "a write is torn"


def test_a_later_sector_survives_without_the_one_before() -> None:
    found = after_power_losses(300, "/data/t-0/a", b"x" * 600, b"y" * 600)
    holes = [data for data in found if data is not None and b"\0" in data and data.rstrip(b"\0")[-1:] in (b"x", b"y")]
    assert holes


def test_a_name_is_lost_unless_its_directory_was_synced() -> None:
    kept = 0
    for seed in range(50):
        volume, disk = fresh()
        file = disk.open("/data/t-0/new", create=True)
        file.write(0, b"x")
        file.sync()
        volume.lose_power(Random(seed))
        kept += SimDisk(volume).exists("/data/t-0/new")
    assert 0 < kept < 50


def test_a_rename_is_old_or_new_and_never_neither() -> None:
    seen: set[bytes] = set()
    for seed in range(50):
        volume, disk = fresh()
        disk.write_atomically("/data/t-0/c", b"old")
        file = disk.open("/data/t-0/c.tmp", create=True)
        file.write(0, b"new")
        file.sync()
        disk.rename("/data/t-0/c.tmp", "/data/t-0/c")
        volume.lose_power(Random(seed))
        seen.add(SimDisk(volume).read_file("/data/t-0/c"))
    assert seen == {b"old", b"new"}


def test_what_a_failed_sync_covered_is_lost_though_the_next_succeeds() -> None:
    volume, disk = fresh()
    synced_file(disk, "/data/t-0/a", b"safe")
    file = disk.open("/data/t-0/a")
    file.write(4, b"gone")
    volume.faults.sync_errors = 1.0
    with pytest.raises(DiskError):
        file.sync()
    volume.faults.sync_errors = 0.0
    file.sync()
    file.write(8, b"kept")
    file.sync()
    assert file.read(0, 20) == b"safegonekept", "the page cache still has it"
    volume.lose_power(Random(3))
    assert SimDisk(volume).read_file("/data/t-0/a") == b"safe\0\0\0\0kept"


def test_errors_of_each_kind() -> None:
    volume, disk = fresh()
    file = disk.open("/data/t-0/a", create=True)
    volume.faults.write_errors = 1.0
    disk.rearm()
    with pytest.raises(DiskError, match="Input/output"):
        file.write(0, b"x")
    volume.faults.write_errors, volume.faults.full = 0.0, True
    disk.rearm()
    with pytest.raises(DiskError, match="No space"):
        file.write(0, b"x")
    with pytest.raises(DiskError, match="No space"):
        disk.open("/data/t-0/b", create=True)
    volume.faults.full, volume.faults.read_errors = False, 1.0
    disk.rearm()
    with pytest.raises(DiskError):
        file.read(0, 1)
    volume.faults.read_errors = 0.0
    disk.rearm()
    file.write(0, b"x")
    assert file.read(0, 1) == b"x"


def test_nothing_of_a_dead_process_reaches_the_disk() -> None:
    volume, disk = fresh()
    file = disk.open("/data/t-0/a", create=True)
    disk.die()
    for attempt in (
        lambda: file.write(0, b"x"),
        lambda: file.read(0, 1),
        file.sync,
        lambda: disk.open("/data/t-0/b", create=True),
        lambda: disk.rename("/data/t-0/a", "/data/t-0/c"),
        lambda: disk.write_atomically("/data/t-0/d", b"x"),
    ):
        with pytest.raises(NodeDied):
            attempt()
    assert SimDisk(volume).list("/data/t-0") == ["a"]


def test_a_death_is_timed_to_an_operation() -> None:
    volume, disk = fresh()
    died: list[str] = []

    def die() -> bool:
        died.append("now")
        return True

    disk.crash_in(4, die)
    with pytest.raises(NodeDied):
        disk.write_atomically("/data/t-0/c", b"whole")
    assert died == ["now"]
    assert SimDisk(volume).read_file("/data/t-0/c.tmp") == b"whole", "created and written, but not synced"


def test_a_directory_moves_with_all_that_is_in_it() -> None:
    _, disk = fresh()
    synced_file(disk, "/data/t-0/a", b"x")
    disk.rename("/data/t-0", "/data/t-0-delete")
    assert disk.read_file("/data/t-0-delete/a") == b"x"
    disk.remove_tree("/data/t-0-delete")
    assert disk.list("/data") == []
