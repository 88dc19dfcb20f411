"""The `Disk` seam in memory: what was written, what of it is durable, and what a crash leaves.

A `Volume` is the machine's disk and outlives the processes that use it; a `SimDisk` is one incarnation's way to it, and
of no use to a dead one. A file keeps its content (the page cache's) and, apart, what has reached the platter; between
them lies the list of the ranges written since the last sync. Directories likewise. A process crash loses nothing. A
power loss keeps what was synced and, file by file, a seeded part of the rest: nothing, all, a torn prefix, or pieces
with holes before them.

A failed sync is the kernel's: the ranges it covered are forgotten as if written, so that a later sync succeeds and does
not make them durable.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn

from ottla.errors import ErrorCode
from ottla.runtime.seams import Buffer, DiskError
from ottla.sim.loop import NodeDied

SECTOR = 512


class FileNode:
    """One file's bytes, twice."""

    __slots__ = ("content", "pending", "platter")

    def __init__(self) -> None:
        self.content = bytearray()
        self.platter = bytearray()
        self.pending: list[tuple[int, int]] = []
        """Since the last sync: (position, size) written, or (size, -1) cut or grown to."""

    def write(self, position: int, data: Buffer) -> None:
        content = self.content
        size = len(data)
        end = len(content)
        if position == end:
            content += data
        else:
            if position > end:
                content.extend(bytes(position - end))
            content[position : position + size] = data
        self.pending.append((position, size))

    def truncate(self, size: int) -> None:
        _resize(self.content, size)
        self.pending.append((size, -1))

    def sync(self) -> None:
        """Bring the platter up to date, range by range."""
        if self.pending:
            self._apply(self.platter, self.pending)
            # A range that was written and cut off again is not in the content any more.
            _resize(self.platter, len(self.content))
            self.pending = []

    def _apply(self, target: bytearray, ranges: list[tuple[int, int]]) -> None:
        content = self.content
        for position, size in ranges:
            if size < 0:
                _resize(target, position)
            else:
                data = content[position : position + size]
                if position > len(target):
                    target.extend(bytes(position - len(target)))
                target[position : position + len(data)] = data

    def lose_power(self, random: Random) -> None:
        """Keep what was synced, and some of what was not."""
        if self.pending:
            target = bytearray(self.platter)
            self._apply(target, self._surviving(random))
            self.content = target
            self.platter = bytearray(target)
            self.pending = []
        elif len(self.platter) != len(self.content) or self.platter != self.content:
            self.content = bytearray(self.platter)  # A failed sync lost these for good.

    def _surviving(self, random: Random) -> list[tuple[int, int]]:
        pending = self.pending
        fate = random.randrange(4)
        if fate == 0:
            return []
        if fate == 1:
            return pending
        whole = random.randrange(len(pending))
        if fate == 2:
            # A torn prefix: everything up to somewhere inside one of the writes.
            position, size = pending[whole]
            torn = [(position, random.randrange(size))] if size > 0 else []
            return pending[:whole] + torn
        # Sectors here and there, with holes between them: the device writes in the order it likes.
        written: dict[int, bool] = {}
        kept: list[tuple[int, int]] = []
        for position, size in pending:
            if size < 0:
                kept.append((position, size))
                continue
            at, end = position, position + size
            while at < end:
                sector = at // SECTOR
                stop = min(end, (sector + 1) * SECTOR)
                if sector not in written:
                    written[sector] = random.random() < 0.5
                if written[sector]:
                    kept.append((at, stop - at))
                at = stop
        if random.random() < 0.5:
            # The file's new size was written before its data: what is missing reads as zeros.
            kept.append((len(self.content), -1))
        return kept

    def forget_pending(self) -> None:
        """A sync failed: the kernel holds the pages for clean, and never writes them."""
        self.pending = []


class DirNode:
    """A directory's entries, twice."""

    __slots__ = ("entries", "pending", "synced")

    def __init__(self) -> None:
        self.entries: dict[str, FileNode | DirNode] = {}
        self.synced: dict[str, FileNode | DirNode] = {}
        self.pending: list[tuple[str | None, str | None, FileNode | DirNode | None]] = []
        """(name gone, name come, what it names) since the last sync; a rename is both in one."""

    def change(self, gone: str | None, come: str | None, node: FileNode | DirNode | None) -> None:
        _change(self.entries, gone, come, node)
        self.pending.append((gone, come, node))

    def sync(self) -> None:
        if self.pending:
            self.synced = dict(self.entries)
            self.pending = []

    def lose_power(self, random: Random) -> None:
        if self.pending:
            entries = dict(self.synced)
            fate = random.randrange(4)
            survivors = self.pending
            if fate == 0:
                survivors = []
            elif fate == 2:
                survivors = survivors[: random.randrange(len(survivors))]
            elif fate == 3:
                survivors = [change for change in survivors if random.random() < 0.5]
            for gone, come, node in survivors:
                _change(entries, gone, come, node)
            self.entries = entries
            self.synced = dict(entries)
            self.pending = []
        for name in sorted(self.entries):
            self.entries[name].lose_power(random)


@dataclass(slots=True)
class DiskFaults:
    """What is wrong with a volume. Chances are of each operation."""

    read_errors: float = 0.0
    write_errors: float = 0.0
    sync_errors: float = 0.0
    full: bool = False
    """No room: nothing may be created or grown."""
    slow_sync_s: float = 0.0
    """Up to so much longer for each sync."""


@dataclass(slots=True)
class Volume:
    """The disk of one machine."""

    random: Random
    root: DirNode = field(default_factory=DirNode)
    faults: DiskFaults = field(default_factory=DiskFaults)
    sync_s: float = 0.001
    """How long a sync takes, at most, on a good day."""
    syncs: int = 0
    writes: int = 0
    renames: int = 0

    def lose_power(self, random: Random) -> None:
        self.root.lose_power(random)

    def settle(self) -> None:
        """Time enough has passed for everything to reach the platter."""
        _settle(self.root)

    def wipe(self) -> None:
        """A new, empty disk in its place, with nothing wrong about it."""
        self.root = DirNode()
        self.faults = DiskFaults()

    def files(self) -> Iterator[tuple[str, FileNode]]:
        """Every file with its path, in order."""
        return _walk(self.root, "")

    def find(self, path: str) -> FileNode | DirNode | None:
        node: FileNode | DirNode | None = self.root
        for name in path.split("/"):
            if name:
                if type(node) is not DirNode:
                    return None
                node = node.entries.get(name)
        return node


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
            if self.crash_after is not None:
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


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    elif size > len(content):
        content.extend(bytes(size - len(content)))


def _change(
    entries: dict[str, FileNode | DirNode], gone: str | None, come: str | None, node: FileNode | DirNode | None
) -> None:
    if gone is not None:
        entries.pop(gone, None)
    if come is not None:
        assert node is not None
        entries[come] = node


def _walk(node: DirNode, prefix: str) -> Iterator[tuple[str, FileNode]]:
    for name in sorted(node.entries):
        child = node.entries[name]
        if isinstance(child, DirNode):
            yield from _walk(child, f"{prefix}/{name}")
        else:
            yield f"{prefix}/{name}", child


def _settle(node: DirNode) -> None:
    node.sync()
    for child in node.entries.values():
        if isinstance(child, DirNode):
            _settle(child)
        else:
            child.sync()
