"""The real disk keeps the promises of its seam."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.runtime import DiskError
from ottla.runtime.disk import SystemDisk


def test_what_is_written_by_position_is_read_by_position(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "log"), create=True)
    file.write(0, b"abcdef")
    file.write(3, memoryview(b"XYZ!"))
    assert file.read(0, 100) == b"abcXYZ!"
    assert file.read(5, 2) == b"Z!"
    assert file.read(7, 5) == b""
    assert file.size() == 7


def test_files_and_directories_are_private_to_their_owner(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.make_dirs(str(tmp_path / "a" / "b"))
    disk.open(str(tmp_path / "a" / "b" / "log"), create=True)
    disk.write_atomically(str(tmp_path / "a" / "b" / "checkpoint"), b"0\n0\n")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "b" / "log").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "b" / "checkpoint").stat().st_mode & 0o077 == 0


def test_opening_what_is_not_there_is_a_plain_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SystemDisk().open(str(tmp_path / "nothing"))


def test_a_refusal_of_the_system_is_a_disk_error_that_names_the_path(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "log"), create=True)
    file.close()
    with pytest.raises(DiskError, match="log is closed"):
        file.read(0, 1)
    with pytest.raises(DiskError, match="cannot write"):
        file.write(0, b"x")
    with pytest.raises(DiskError, match="cannot open"):
        SystemDisk().open(str(tmp_path))


def test_an_atomic_write_replaces_the_file_and_leaves_no_trace(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "checkpoint")
    disk.write_atomically(path, b"old")
    disk.write_atomically(path, b"new")
    assert disk.read_file(path) == b"new"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_a_handle_keeps_the_descriptor_of_a_closed_and_removed_file(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "00000000000000000000.log")
    file = disk.open(path, create=True)
    file.write(0, b"still being sent")
    handle = file.handle
    file.close()
    disk.remove(path)
    assert os.pread(handle.fd, 100, 0) == b"still being sent"
    fd = handle.fd
    del handle
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_that_is_closed_during_a_read_is_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop closes files that threads are reading: the number must not go to another file between two reads."""
    disk = SystemDisk()
    file = disk.open(str(tmp_path / "00000000000000000000.log"), create=True)
    file.write(0, b"first and second")
    pread = os.pread

    def short_then_closed(fd: int, size: int, position: int) -> bytes:
        data = pread(fd, min(size, 6), position)
        file.close()
        return data

    monkeypatch.setattr(os, "pread", short_then_closed)
    assert file.read(0, 16) == b"first and second"


def test_a_lock_excludes_this_process_and_others_until_it_is_released(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / ".lock")
    release = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    attempt = (
        "import sys; from ottla.runtime.disk import SystemDisk\n"
        "try: SystemDisk().lock(sys.argv[1])\n"
        "except BlockingIOError: sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", attempt, path]).returncode == 3
    release()
    assert subprocess.run([sys.executable, "-c", attempt, path]).returncode == 0
    disk.lock(path)()


@pytest.mark.parametrize("counted", [True, False])
def test_what_was_evicted_is_not_cached_and_can_be_brought_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    if not counted:
        monkeypatch.setattr("ottla.runtime.disk._cachestat", lambda: None)
    path = tmp_path / "log"
    file = SystemDisk().open(str(path), create=True)
    file.write(0, bytes(1 << 20))
    file.sync()
    assert file.cached(0, 1 << 20)
    assert file.cached(4095, 2)
    assert file.read_now(4095, 2) == bytes(2)
    assert file.read_now((1 << 20) - 1, 2) is None  # There is only one.
    with path.open("rb") as other:

        def is_seen_evicted(look: Callable[[], object]) -> bool:
            """By one look, since a look that finds nothing may make the kernel read ahead; and it lets go of pages
            only when nobody else looks at them any more."""
            for _ in range(600):
                os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if not look():
                    return True
                time.sleep(0.1)
            return False

        assert is_seen_evicted(lambda: file.cached(0, 1 << 20))
        assert is_seen_evicted(lambda: file.cached(4095, 2))
        assert is_seen_evicted(lambda: file.read_now(4095, 2))
    file.prefetch(0, 1 << 20)
    assert file.cached(0, 1 << 20)
    assert file.read_now(4095, 2) == bytes(2)


def test_a_file_system_that_cannot_say_what_is_cached_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SystemDisk().open(str(tmp_path / "log"), create=True)
    file.write(0, b"there")

    def unknown(fd: int, buffers: object, position: int, flags: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", unknown)
    assert file.read_now(1, 3) == b"her"
    assert file.read_now(1, 9) is None


def test_preallocation_grows_the_file_and_truncation_cuts_it(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "log"), create=True)
    file.preallocate(4096)
    assert file.size() == 4096
    file.truncate(10)
    assert file.size() == 10
    file.sync()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such hint")
def test_a_large_file_is_forgotten_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, position, size, advice: told.append((position, size)))
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes((9 << 20) + 1))
    small.write_bytes(b"x")
    disk = SystemDisk()
    disk.forget_pages(str(small))
    disk.forget_pages(str(tmp_path / "nothing"))
    assert told == []
    disk.forget_pages(str(large))
    assert told == [(0, 4 << 20), (4 << 20, 4 << 20), (8 << 20, 4 << 20)]
    assert large.stat().st_size == (9 << 20) + 1
