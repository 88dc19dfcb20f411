"""An offsets checkpoint that the loop prepares and a thread may write, so that an older one never replaces a newer.

The loop may have to write a checkpoint itself, at once (before a truncation), while a thread is at an earlier one.
There is one baton a file, and only its holder writes: the loop then waits for that single write. The version makes a
write fall away that comes after a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue

from ottla.log.checkpoints import encode_offsets, read_offsets
from ottla.model import TopicPartition
from ottla.runtime.seams import Disk, DiskError


class PendingWork:
    """Work that blocks on the disk, captured on the loop; `run` may run in a thread."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterable[Callable[[], None]]) -> None:
        self._steps = list(steps)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def run(self) -> None:
        for step in self._steps:
            step()


class CheckpointFile:
    __slots__ = ("_baton", "_disk", "_path", "_prepared", "_written", "failed")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._baton: SimpleQueue[None] = SimpleQueue()
        self._baton.put(None)
        self._prepared = 0
        self._written = 0
        self.failed = False
        """The disk refused a write: like a log, the directory is not tried again."""

    def read(self) -> dict[TopicPartition, int]:
        return read_offsets(self._disk, self._path)

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """The write of these offsets, for later."""
        self._prepared += 1
        version, data = self._prepared, encode_offsets(offsets)
        return lambda: self._write(version, data)

    def _write(self, version: int, data: bytes) -> None:
        self._baton.get()
        try:
            if version > self._written:
                self._disk.write_atomically(self._path, data)
                self._written = version
        except DiskError:
            self.failed = True
            raise
        finally:
            self._baton.put(None)
