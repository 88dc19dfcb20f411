"""A disk in memory that knows what is durable and what is not, and that can fail.

Every file keeps its content, the content that was synced, and the writes since; every directory its entries, those that
were synced, and the changes since. A process crash keeps everything. A power loss keeps what was synced and, of the
rest, whatever a seeded `Random` lets survive: nothing, all, a torn prefix, or pieces from the middle with holes of
zeros before them. Before each operation that changes anything a hook is called, which may look, copy the disk, or
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from hashlib import blake2b
from random import Random
from typing import NamedTuple

from ottla.errors import ErrorCode
from ottla.runtime.seams import Buffer, DiskError


class Survival(Enum):
    """What a power loss leaves of what was not synced."""

    NOTHING = "nothing"
    ALL = "all"
    PREFIX = "a torn prefix"
    PIECES = "pieces from the middle"


class Operation(NamedTuple):
    """Something that is about to happen."""

    kind: str
    path: str
    position: int = 0
    data: bytes = b""


Hook = Callable[[Operation], None]


class FileNode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""
        self.pending: list[tuple[int, bytes | None]] = []
        """(position, data) written, or (size, None) truncated, since the last sync."""
        self.poisoned = False
        """A sync failed: whatever later syncs say, nothing more reaches the disk."""

    def write(self, position: int, data: bytes) -> None:
        _write_into(self.content, position, data)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        _truncate(self.content, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        if not self.poisoned:
            self.synced = bytes(self.content)
            self.pending = []

    def copy(self) -> FileNode:
        node = FileNode()
        node.content, node.synced, node.pending = bytearray(self.content), self.synced, list(self.pending)
        node.poisoned = self.poisoned
        return node

    def after_power_loss(self, survival: Survival, random: Random) -> FileNode:
        content = bytearray(self.synced)
        pending = self.pending
        if survival is Survival.PREFIX and pending:
            whole = random.randrange(len(pending))
            torn_at, torn = pending[whole]
            pending = pending[:whole]
            if torn:
                pending = [*pending, (torn_at, torn[: random.randrange(len(torn))])]
        elif survival is Survival.PIECES:
            kept = [item for item in pending if random.random() < 0.6]
            pending = [_piece(item, random) for item in kept]
        elif survival is Survival.NOTHING:
            pending = []
        for position, data in pending:
            if data is None:
                _truncate(content, position)
            else:
                _write_into(content, position, data)
        node = FileNode()
        node.content, node.synced = content, bytes(content)
        return node


class DirNode:
    def __init__(self) -> None:
        self.entries: dict[str, FileNode | DirNode] = {}
        self.synced: dict[str, FileNode | DirNode] = {}
        self.pending: list[tuple[str | None, str | None, FileNode | DirNode | None]] = []
        """(name gone, name come, what it names) since the last sync; a rename is both in one."""

    def change(self, gone: str | None, come: str | None, node: FileNode | DirNode | None) -> None:
        _change(self.entries, gone, come, node)
        self.pending.append((gone, come, node))

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.pending = []

    def copy(self, seen: dict[int, FileNode | DirNode]) -> DirNode:
        node = DirNode()
        seen[id(self)] = node

        def copied(original: FileNode | DirNode) -> FileNode | DirNode:
            if id(original) not in seen:
                seen[id(original)] = original.copy() if isinstance(original, FileNode) else original.copy(seen)
            return seen[id(original)]

        node.entries = {name: copied(child) for name, child in self.entries.items()}
        node.synced = {name: copied(child) for name, child in self.synced.items()}
        node.pending = [(gone, come, None if child is None else copied(child)) for gone, come, child in self.pending]
        return node

    def after_power_loss(self, survival: Survival, random: Random) -> DirNode:
        entries = dict(self.synced)
        pending = self.pending
        if survival is Survival.NOTHING:
            pending = []
        elif survival is Survival.PREFIX:
            pending = pending[: random.randrange(len(pending) + 1)]
        elif survival is Survival.PIECES:
            pending = [item for item in pending if random.random() < 0.5]
        for change in pending:
            _change(entries, *change)
        node = DirNode()
        for name, child in entries.items():
            node.entries[name] = child.after_power_loss(survival, random)
        node.sync()
        return node


class MemoryFile:
    def __init__(self, disk: FaultyDisk, path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self._checked().content)

    def read(self, position: int, size: int) -> bytes:
        self._disk.reads += 1
        return bytes(self._checked().content[position : position + size])

    def write(self, position: int, data: Buffer) -> None:
        node = self._checked()
        content = bytes(data)
        self._disk.about_to("write", self._path, position, content)
        node.write(position, content)

    def truncate(self, size: int) -> None:
        node = self._checked()
        if size != len(node.content):
            self._disk.about_to("truncate", self._path)
            node.truncate(size)

    def preallocate(self, size: int) -> None:
        node = self._checked()
        self._disk.about_to("preallocate", self._path)
        if size > len(node.content):
            node.truncate(size)

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
        node = self._checked()
        try:
            self._disk.about_to("sync", self._path)
        except DiskError:
            node.poisoned = True
            raise
        self._disk.syncs += 1
        node.sync()

    def close(self) -> None:
        self._open = False

    def _checked(self) -> FileNode:
        if not self._open:
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path} is closed")
        return self._node


class FaultyDisk:
    def __init__(self, root: DirNode | None = None) -> None:
        self.root = root if root is not None else DirNode()
        self.hook: Hook | None = None
        self.operations = 0
        self.reads = 0
        self.syncs = 0
        self.forgotten: list[str] = []
        """Files of which the system was told to drop what it has in memory."""
        self._locked: set[str] = set()

    def about_to(self, kind: str, path: str, position: int = 0, data: bytes = b"") -> None:
        self.operations += 1
        if self.hook is not None:
            self.hook(Operation(kind, path, position, data))

    # Crashing.

    def kill(self) -> None:
        """The process that used the disk is gone, and its locks with it."""
        self._locked.clear()

    def copy(self) -> FaultyDisk:
        """The disk as another process finds it after this one was killed."""
        return FaultyDisk(self.root.copy({}))

    def after_power_loss(self, survival: Survival, random: Random) -> FaultyDisk:
        return FaultyDisk(self.root.copy({}).after_power_loss(survival, random))

    def files(self) -> dict[str, bytes]:
        """Path → content of every file."""
        return {path: bytes(node.content) for path, node in _walk(self.root, "")}

    def state(self) -> bytes:
        """A digest of all that decides what anybody finds here, now or after a power loss: two disks with the same one
        need not both be looked at."""
        digest = blake2b(digest_size=16)
        _digest(self.root, digest.update, {})
        return digest.digest()

    # The seam.

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            self.about_to("create", path)
            node = FileNode()
            parent.change(None, name, node)
        assert isinstance(node, FileNode)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), DirNode)

    def list(self, path: str) -> list[str]:
        return sorted(self._dir(path).entries)

    def make_dirs(self, path: str) -> None:
        node = self.root
        for name in path.strip("/").split("/"):
            child = node.entries.get(name)
            if child is None:
                self.about_to("mkdir", path)
                child = DirNode()
                node.change(None, name, child)
            assert isinstance(child, DirNode)
            node = child

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "a log never moves between directories"
        self.about_to("rename", source)
        parent.change(name, new_name, parent.entries[name])

    def remove(self, path: str) -> None:
        if isinstance(self._find(path), FileNode):
            self.about_to("remove", path)
            parent, name = self._parent(path)
            parent.change(name, None, None)

    def forget_pages(self, path: str) -> None:
        self.forgotten.append(path)

    def remove_tree(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, DirNode):
            for name in sorted(node.entries):
                if isinstance(node.entries[name], DirNode):
                    self.remove_tree(f"{path}/{name}")
                else:
                    self.remove(f"{path}/{name}")
            self.about_to("rmdir", path)
            parent, name = self._parent(path)
            parent.change(name, None, None)

    def sync_dir(self, path: str) -> None:
        self.about_to("sync_dir", path)
        self.syncs += 1
        self._dir(path).sync()

    def file_size(self, path: str) -> int:
        return len(self._file(path).content)

    def read_file(self, path: str) -> bytes:
        self.reads += 1
        return bytes(self._file(path).content)

    def write_atomically(self, path: str, data: bytes) -> None:
        file = self.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.write(0, data)
        file.sync()
        self.rename(f"{path}.tmp", path)
        self.sync_dir(path.rpartition("/")[0])

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locked:
            raise BlockingIOError(path)
        self._locked.add(path)
        return lambda: self._locked.discard(path)

    # Finding.

    def _find(self, path: str) -> FileNode | DirNode | None:
        node: FileNode | DirNode | None = self.root
        for name in path.strip("/").split("/"):
            if not isinstance(node, DirNode):
                return None
            if name:
                node = node.entries.get(name)
        return node

    def _dir(self, path: str) -> DirNode:
        node = self._find(path)
        if not isinstance(node, DirNode):
            raise FileNotFoundError(path)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(path)
        return node

    def _parent(self, path: str) -> tuple[DirNode, str]:
        head, _, name = path.rpartition("/")
        return self._dir(head), name


def _change(
    entries: dict[str, FileNode | DirNode], gone: str | None, come: str | None, node: FileNode | DirNode | None
) -> None:
    if gone is not None:
        entries.pop(gone, None)
    if come is not None:
        assert node is not None
        entries[come] = node


def _write_into(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _truncate(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _piece(item: tuple[int, bytes | None], random: Random) -> tuple[int, bytes | None]:
    position, data = item
    if not data:
        return item
    start = random.randrange(len(data))
    stop = random.randrange(start, len(data)) + 1
    return position + start, data[start:stop]


def _digest(node: FileNode | DirNode, tell: Callable[[bytes], None], known: dict[int, int]) -> None:
    """A node that is reached by two names, or by one before a sync and another after it, is told once."""
    if id(node) in known:
        tell(b"#%d" % known[id(node)])
        return
    known[id(node)] = len(known)
    if isinstance(node, FileNode):
        for part in (bytes(node.content), node.synced, repr(node.pending).encode(), b"%d" % node.poisoned):
            tell(b"%d:" % len(part))
            tell(part)
        return
    for entries in (node.entries, node.synced):
        tell(b"{%d" % len(entries))
        for name, child in sorted(entries.items()):
            tell(name.encode())
            _digest(child, tell, known)
    for gone, come, named in node.pending:
        tell(repr((gone, come)).encode())
        if named is not None:
            _digest(named, tell, known)


def _walk(node: DirNode, prefix: str) -> Iterator[tuple[str, FileNode]]:
    for name, child in sorted(node.entries.items()):
        if isinstance(child, DirNode):
            yield from _walk(child, f"{prefix}/{name}")
        else:
            yield f"{prefix}/{name}", child
