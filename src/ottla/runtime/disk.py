"""The machine's file system behind the `Disk` seam.

Files are private to their owner. A descriptor lives as long as anybody holds its handle: a response that is still being
sent keeps the file of a deleted segment open, so the number can never be given to another file under it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from array import array
from collections.abc import Callable
from functools import cache
from typing import NoReturn

from ottla.errors import ErrorCode
from ottla.runtime.seams import Buffer, DiskError

READ_AHEAD_BYTES = 128 * 1024
"""What the kernel's read-ahead brings in at a time, about."""
CACHE_PROBES = 4
"""How many places of a span are looked at to guess whether it is in the page cache, where the system does not count the
pages for us: what was evicted was so in bulk."""

_SENDS_TO_FILES = sys.platform == "linux"
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700


_FORGET_BYTES = 4 << 20
"""So much of a file leaves the page cache in about a millisecond; then others get their turn."""
_FORGET_PAUSE_S = 0.001


def _forget(fd: int, position: int, size: int) -> None:
    if sys.platform == "linux":
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)


_WAIT_BEFORE_AND_WRITE = 1 | 2


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux has it, and Python does not."""
    import ctypes

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_CACHESTAT_CALL = 451
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@cache
def _cachestat() -> Callable[[int, int, int], int] | None:
    """How many pages of a span of a file are in the page cache; less than 0 where Linux is older than 6.5, or its
    answer forbidden. Nothing at all elsewhere."""
    if sys.platform != "linux":
        return None
    import ctypes

    call = ctypes.PyDLL(None).syscall  # Shorter than it takes to let others have the interpreter meanwhile.
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    call.restype = ctypes.c_long

    def pages(fd: int, position: int, size: int) -> int:
        words = array("Q", (position, size, 0, 0, 0, 0, 0))
        address = words.buffer_info()[0]
        return words[2] if call(_CACHESTAT_CALL, fd, address, address + 16, 0) == 0 else -1

    return pages


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _refuse(action: str, path: str, error: OSError) -> NoReturn:
    raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: {error.strerror}") from error


class Handle:
    """Owns one descriptor, and closes it when the last holder lets go."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class SystemFile:
    __slots__ = ("_fd", "_handle", "_path")

    def __init__(self, path: str, handle: Handle) -> None:
        self._path = path
        self._handle: Handle | None = handle
        self._fd = handle.fd
        """The handle's, or -1 when the file is closed: then the system refuses whatever is tried."""

    @property
    def path(self) -> str:
        return self._path

    @property
    def handle(self) -> Handle:
        if self._handle is None:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path} is closed")
        return self._handle

    def size(self) -> int:
        return os.fstat(self.handle.fd).st_size

    def read(self, position: int, size: int) -> bytes:
        handle = self.handle  # Held, here and below: a file that the loop closes meanwhile keeps its descriptor.
        fd = handle.fd
        try:
            data = os.pread(fd, size, position)
            if len(data) == size or not data:
                return data
            # The kernel may return less than there is, above all for very large reads.
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(fd, size - got, position + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            _refuse("read", self._path, error)

    def write(self, position: int, data: Buffer) -> None:
        fd = self._fd
        try:
            written = os.pwrite(fd, data, position)
            if written < len(data):
                view = memoryview(data).cast("B")
                while written < len(view):
                    written += os.pwrite(fd, view[written:], position + written)
        except OSError as error:
            _refuse("write", self._path, error)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self.handle.fd, size)
        except OSError as error:
            _refuse("truncate", self._path, error)

    def preallocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self.handle.fd, 0, size)
        except OSError as error:
            _refuse("preallocate", self._path, error)

    def cached(self, position: int, size: int) -> bool:
        handle = self.handle
        fd = handle.fd
        pages = _cachestat()
        if pages is not None and (found := pages(fd, position, size)) >= 0:
            return found == (position + size - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
        probe = bytearray(1)
        step = max(size // (CACHE_PROBES - 1), READ_AHEAD_BYTES)
        try:
            for at in range(position, position + size - 1, step):
                os.preadv(fd, (probe,), at, os.RWF_NOWAIT)
            os.preadv(fd, (probe,), position + size - 1, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # A file system without RWF_NOWAIT cannot say; do not stop serving for that.
        return True

    def read_now(self, position: int, size: int) -> Buffer | None:
        handle = self.handle
        data = bytearray(size)
        try:
            return data if os.preadv(handle.fd, (data,), position, os.RWF_NOWAIT) == size else None
        except BlockingIOError:
            return None
        except OSError:
            # A file system without RWF_NOWAIT cannot say; do not stop serving for that. A disk that fails says so now.
            found = self.read(position, size)
            return found if len(found) == size else None

    def prefetch(self, position: int, size: int) -> None:
        handle = self.handle
        fd = handle.fd
        try:
            if not _SENDS_TO_FILES:
                while size > 0 and (data := os.pread(fd, min(size, READ_AHEAD_BYTES), position)):
                    position += len(data)
                    size -= len(data)
                return
            # The kernel sees one reader going forward and reads ahead of it, and nothing is copied.
            nowhere = _nowhere()
            while size > 0 and (sent := os.sendfile(nowhere, fd, position, size)):
                position += sent
                size -= sent
        except OSError as error:
            _refuse("read", self._path, error)

    def write_back(self, position: int, size: int) -> None:
        write = _sync_file_range()
        if write is not None:
            handle = self.handle
            # Also waits for what was begun before, so that no more than one piece is ever on its way.
            write(handle.fd, position, size, _WAIT_BEFORE_AND_WRITE)

    def sync(self) -> None:
        handle = self.handle
        try:
            os.fdatasync(handle.fd)
        except OSError as error:
            _refuse("sync", self._path, error)

    def close(self) -> None:
        self._handle = None
        self._fd = -1


class SystemDisk:
    """Stateless but for the lock files that this process holds (POSIX locks do not exclude their own process)."""

    _locked: set[str] = set()  # noqa: RUF012  One table for the whole process is the point.

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return SystemFile(path, Handle(os.open(path, flags, _FILE_MODE)))
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse("open", path, error)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse("list", path, error)

    def make_dirs(self, path: str) -> None:
        try:
            os.makedirs(path, mode=_DIRECTORY_MODE, exist_ok=True)
        except OSError as error:
            _refuse("create", path, error)

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            _refuse("rename", source, error)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _refuse("remove", path, error)

    def forget_pages(self, path: str) -> None:
        with contextlib.suppress(OSError):  # Whoever removes it will say what is wrong.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                for position in range(0, size if size > _FORGET_BYTES else 0, _FORGET_BYTES):
                    _forget(fd, position, _FORGET_BYTES)
                    time.sleep(_FORGET_PAUSE_S)
            finally:
                os.close(fd)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _refuse("remove", path, error)

    def sync_dir(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            _refuse("sync", path, error)

    def file_size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse("stat", path, error)

    def read_file(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            _refuse("read", path, error)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            _refuse("write", temporary, error)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def space(self, path: str) -> tuple[int, int]:
        try:
            volume = os.statvfs(path)
        except OSError as error:
            _refuse("stat", path, error)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        real = os.path.realpath(path)
        if real in self._locked:
            raise BlockingIOError(f"{path} is locked")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except OSError as error:
            _refuse("open", path, error)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise BlockingIOError(f"{path} is locked") from error
        self._locked.add(real)

        def release() -> None:
            if real in self._locked:
                self._locked.discard(real)
                with contextlib.suppress(OSError):
                    os.close(fd)

        return release


class VolatileFile(SystemFile):
    __slots__ = ()

    def write_back(self, position: int, size: int) -> None:
        pass

    def sync(self) -> None:
        pass


class VolatileDisk(SystemDisk):
    """A disk for data that nobody will miss after a crash: the same files, never synced."""

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        return VolatileFile(path, super().open(path, create=create).handle)

    def sync_dir(self, path: str) -> None:
        pass

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        try:
            with open(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE), "wb"
            ) as file:
                file.write(data)
        except OSError as error:
            _refuse("write", temporary, error)
        self.rename(temporary, path)
