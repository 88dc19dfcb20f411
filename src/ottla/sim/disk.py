"""The `Disk` seam in memory: one incarnation's way to the volume of its machine, and of no use to a dead one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NoReturn

from ottla.errors import ErrorCode
from ottla.runtime.seams import Buffer, DiskError
from ottla.sim.loop import NodeDied
from ottla.sim.volume import DirNode, FileNode, Volume


class SimFile:
    """An open file. Of a process that died, nothing but `NodeDied` is to be had of it."""

    __slots__ = ("_disk", "_node", "_open", "_path")

    def __init__(self, disk: SimDisk, path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self._node.content)

    def read(self, position: int, size: int) -> bytes:
        if self._disk.armed:
            self._disk.consider("read", self._path)
        if not self._open:
            _refuse("read", self._path, errno.EBADF)
        with memoryview(self._node.content) as view:
            return bytes(view[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        if self._disk.armed:
            self._disk.consider("write", self._path)
        if not self._open:
            _refuse("write", self._path, errno.EBADF)
        self._disk.volume.writes += 1
        self._node.write(position, data)

    def truncate(self, size: int) -> None:
        if self._disk.armed:
            self._disk.consider("truncate", self._path)
        if not self._open:
            _refuse("truncate", self._path, errno.EBADF)
        if size != len(self._node.content):
            self._node.truncate(size)

    def preallocate(self, size: int) -> None:
        if self._disk.armed:
            self._disk.consider("write", self._path)
        if size > len(self._node.content):
            self._node.truncate(size)

    def cached(self, position: int, size: int) -> bool:
        return True

    def read_now(self, position: int, size: int) -> bytes | None:
        data = self.read(position, size)
        return data if len(data) == size else None

    def prefetch(self, position: int, size: int) -> None:
        pass

    def write_back(self, position: int, size: int) -> None:
        pass

    def sync(self) -> None:
        if not self._open:
            _refuse("sync", self._path, errno.EBADF)
        if self._disk.begin_sync(self._path):
            self._node.sync()
        else:
            self._node.forget_pending()
            _refuse("sync", self._path, errno.EIO)

    def close(self) -> None:
        self._open = False


class SimDisk:
    """One incarnation's disk."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.armed = False
        """Is there anything to consider before an operation? So that a good day costs one look."""
        self.dead = False
        self.crash_after: int | None = None
        """Die before the operation with this number, counted down."""
        self.on_crash: Callable[[], bool] = lambda: False
        self.on_sync: Callable[[float], None] = lambda seconds: None
        """A sync takes time; whoever runs the node knows whose."""
        self._locked: set[str] = set()

    # Faults.

    def die(self) -> None:
        self.dead = True
        self.armed = True

    def crash_in(self, operations: int, on_crash: Callable[[], bool]) -> None:
        """Have the node die in the middle of its work: before the `operations`th change to the disk from now on.

        `on_crash` does it, or returns false if it is better not done.
        """
        self.crash_after = operations
        self.on_crash = on_crash
        self.armed = True

    def rearm(self) -> None:
        """The volume's faults have changed."""
        faults = self.volume.faults
        self.armed = bool(
            self.dead
            or self.crash_after is not None
            or faults.full
            or faults.read_errors
            or faults.write_errors
            or faults.sync_errors
            or faults.failed
        )

    def consider(self, operation: str, path: str) -> None:
        """Fail `operation` if it is to fail."""
        if self.dead:
            raise NodeDied
        if operation != "read" and self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after <= 0:
                self.crash_after = None
                if self.on_crash():
                    raise NodeDied
                self.rearm()
        volume = self.volume
        faults = volume.faults
        if faults.failed and path.startswith(faults.failed):
            _refuse(operation, path, errno.EIO)
        if operation == "read":
            if faults.read_errors and volume.random.random() < faults.read_errors:
                _refuse("read", path, errno.EIO)
            return
        if faults.full and operation in ("write", "create"):
            _refuse(operation, path, errno.ENOSPC)
        if faults.write_errors and volume.random.random() < faults.write_errors:
            _refuse(operation, path, errno.EIO)

    def begin_sync(self, path: str) -> bool:
        """Take the time that a sync takes; false if it fails."""
        volume = self.volume
        if self.armed:
            if self.dead:
                raise NodeDied
            if self.crash_after is not None or self.volume.faults.failed:
                self.consider("sync", path)
        volume.syncs += 1
        faults = volume.faults
        self.on_sync((volume.sync_s + faults.slow_sync_s) * volume.random.random())
        return not (faults.sync_errors and volume.random.random() < faults.sync_errors)

    # The seam.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if self.armed:
            self.consider("read", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            if self.armed:
                self.consider("create", path)
            node = FileNode()
            parent.change(None, name, node)
        if not isinstance(node, FileNode):
            _refuse("open", path, errno.EISDIR)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self.volume.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self.volume.find(path), DirNode)

    def list(self, path: str) -> list[str]:
        if self.armed:
            self.consider("read", path)
        return sorted(self._dir(path).entries)

    def make_dirs(self, path: str) -> None:
        node = self.volume.root
        for name in path.split("/"):
            if not name:
                continue
            child = node.entries.get(name)
            if child is None:
                if self.armed:
                    self.consider("create", path)
                child = DirNode()
                node.change(None, name, child)
            if not isinstance(child, DirNode):
                _refuse("create", path, errno.ENOTDIR)
            node = child

    def rename(self, source: str, target: str) -> None:
        if self.armed:
            self.consider("rename", source)
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        node = parent.entries.get(name)
        if node is None:
            _refuse("rename", source, errno.ENOENT)
        self.volume.renames += 1
        if parent is other:
            parent.change(name, new_name, node)
        else:
            other.change(None, new_name, node)
            parent.change(name, None, None)

    def remove(self, path: str) -> None:
        if self.armed:
            self.consider("remove", path)
        if isinstance(self.volume.find(path), FileNode):
            parent, name = self._parent(path)
            parent.change(name, None, None)

    def forget_pages(self, path: str) -> None:
        pass

    def remove_tree(self, path: str) -> None:
        node = self.volume.find(path)
        if isinstance(node, DirNode):
            for name in sorted(node.entries):
                self.remove_tree(f"{path}/{name}")
            if self.armed:
                self.consider("remove", path)
            parent, name = self._parent(path)
            parent.change(name, None, None)
        elif node is not None:
            self.remove(path)

    def sync_dir(self, path: str) -> None:
        node = self._dir(path)
        if not self.begin_sync(path):
            _refuse("sync", path, errno.EIO)
        node.sync()

    def file_size(self, path: str) -> int:
        return len(self._file(path).content)

    def read_file(self, path: str) -> bytes:
        if self.armed:
            self.consider("read", path)
        return bytes(self._file(path).content)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write(0, data)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0])

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 0 if self.volume.faults.full else 1 << 39

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(f"{path} is locked")
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    # Finding.

    def _dir(self, path: str) -> DirNode:
        node = self.volume.find(path)
        if not isinstance(node, DirNode):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return node

    def _file(self, path: str) -> FileNode:
        node = self.volume.find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return node

    def _parent(self, path: str) -> tuple[DirNode, str]:
        head, _, name = path.rpartition("/")
        return self._dir(head), name


_WORDS = {
    errno.EIO: "Input/output error",
    errno.ENOSPC: "No space left on device",
    errno.EBADF: "Bad file descriptor",
    errno.ENOENT: "No such file or directory",
    errno.EISDIR: "Is a directory",
    errno.ENOTDIR: "Not a directory",
}


def _refuse(action: str, path: str, number: int) -> NoReturn:
    raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: {_WORDS[number]}")
