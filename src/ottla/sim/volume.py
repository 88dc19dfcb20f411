"""A machine's disk: what was written, what of it is durable, and what a crash leaves.

A `Volume` outlives the processes that use it. A file keeps its content (the page cache's) and, apart, what has reached
the platter; between them lies the list of the ranges written since the last sync. Directories likewise. A process crash
loses nothing. A power loss keeps what was synced and, file by file, a seeded part of the rest: nothing, all, a torn
prefix, or pieces with holes before them.

A failed sync is the kernel's: the ranges it covered are forgotten as if written, so that a later sync succeeds and does
not make them durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from ottla.runtime.seams import Buffer

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

    def lose_power(self, random: Random) -> int:
        """Keep what was synced, and some of what was not. How many writes were torn by that?"""
        torn = 0
        if self.pending:
            target = bytearray(self.platter)
            surviving, torn = self._surviving(random)
            self._apply(target, surviving)
            self.content = target
            self.platter = bytearray(target)
            self.pending = []
        elif len(self.platter) != len(self.content) or self.platter != self.content:
            self.content = bytearray(self.platter)  # A failed sync lost these for good.
        return torn

    def _surviving(self, random: Random) -> tuple[list[tuple[int, int]], int]:
        """And of how many writes a part does, and a part does not."""
        pending = self.pending
        fate = random.randrange(4)
        if fate == 0:
            return [], 0
        if fate == 1:
            return pending, 0
        whole = random.randrange(len(pending))
        if fate == 2:
            # A torn prefix: everything up to somewhere inside one of the writes.
            position, size = pending[whole]
            prefix = random.randrange(size) if size > 0 else 0
            return [*pending[:whole], *([(position, prefix)] if size > 0 else [])], int(prefix > 0)
        # Sectors here and there, with holes between them: the device writes in the order it likes.
        written: dict[int, bool] = {}
        kept: list[tuple[int, int]] = []
        torn = 0
        for position, size in pending:
            if size < 0:
                kept.append((position, size))
                continue
            at, end, survived = position, position + size, 0
            while at < end:
                sector = at // SECTOR
                stop = min(end, (sector + 1) * SECTOR)
                if sector not in written:
                    written[sector] = random.random() < 0.5
                if written[sector]:
                    kept.append((at, stop - at))
                    survived += stop - at
                at = stop
            torn += 0 < survived < size
        if random.random() < 0.5:
            # The file's new size was written before its data: what is missing reads as zeros.
            kept.append((len(self.content), -1))
        return kept, torn

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

    def lose_power(self, random: Random) -> int:
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
        return sum(self.entries[name].lose_power(random) for name in sorted(self.entries))


@dataclass(slots=True)
class DiskFaults:
    """What is wrong with a volume. Chances are of each operation."""

    read_errors: float = 0.0
    write_errors: float = 0.0
    sync_errors: float = 0.0
    failed: str = ""
    """Nothing below this directory can be read, written or synced, if there is a name."""
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
    torn: int = 0
    """Writes of which a power loss has left a part."""

    def lose_power(self, random: Random) -> None:
        self.torn += self.root.lose_power(random)

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
