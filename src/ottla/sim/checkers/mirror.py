"""What one replica's log holds, batch by batch, kept up to date from its files as the log moves.

The files are read past the disk seam: looking costs nothing in the simulation and disturbs nothing. A mirror notices
growth, truncation and movement of the bounds by comparing a few numbers, and reads only what is new.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.errors import Malformed
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.records import read_header
from ottla.sim.checkers.violation import Violation
from ottla.sim.volume import FileNode, Volume


class Batch(NamedTuple):
    """One batch where it lies."""

    base: int
    next: int
    """The offset after its last."""
    epoch: int
    crc: int
    size: int
    file: FileNode
    position: int
    path: str
    producer_id: int

    def same(self, other: Batch) -> bool:
        """The same bytes, as far as a checksum can tell."""
        return self[:5] == other[:5]

    def is_of(self, other: Batch) -> bool:
        """The same offsets in the same epoch, of whatever is left of it."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        return f"{self.base}..{self.next - 1} of epoch {self.epoch} (crc {self.crc:08x})"


class Mirror:
    __slots__ = (
        "_compacted",
        "_cuts",
        "_damaged",
        "_file",
        "_position",
        "_segment",
        "_shape",
        "batches",
        "cleaned",
        "dropped",
        "end",
        "log",
        "path",
        "start",
        "volume",
        "where",
    )

    def __init__(self, log: Log, volume: Volume, where: str, *, damaged: bool = False, compacted: bool = False) -> None:
        """What cannot be read of a `damaged` log is passed over. Segments of a `compacted` one may be replaced."""
        self._damaged = damaged
        self._compacted = compacted
        self._shape: list[Segment] = []
        self._cuts = log.cuts
        self.cleaned: list[Batch] | None = None
        """What there was before segments were replaced, if they were in the last update."""
        self.log = log
        self.volume = volume
        self.where = where
        """Who and what, for messages."""
        self.batches: list[Batch] = []
        self.dropped = 0
        """How many of the first batches went in the last update, since the log's start had moved past them."""
        self.end = -1
        self.start = -1
        self._segment = -1
        self._position = 0
        self._file: FileNode | None = None
        self.path = ""
        self._rebuild()

    def update(self) -> int | None:
        """Follow the log. The least offset from which on its batches are other ones than before; None if it only
        grew, or did not move."""
        log = self.log
        self.dropped = self._drop_gone() if log.log_start_offset != self.start else 0
        self.cleaned = None
        if self._compacted and self._is_replaced():
            before_it = self.batches
            self._rebuild()
            self.cleaned = before_it
            return None
        end, before = log.log_end_offset, self.end
        active = log._active
        if end < before or (active.base_offset == self._segment and active.size < self._position):
            changed = self._rebuild()
            return end if changed is None else changed
        if end > before:
            if self._segment not in log._segments.bases:
                return self._rebuild()
            self._read_all()
        return None

    def _is_replaced(self) -> bool:
        """Has compaction put other segments in the place of those that we know, on the disk as well?"""
        log = self.log
        if log._swap is not None or log.cuts != self._cuts:
            return False
        return any(known is not now for known, now in zip(self._shape, log._segments, strict=False))

    def _rebuild(self) -> int | None:
        """Read everything anew; the first offset that is not as it was, or None if all of it is still there."""
        before = self.batches
        self.batches = []
        bases = self.log._segments.bases
        self._open(bases[0])
        self._read_all()
        self._drop_gone()  # The first segment may begin before the log does.
        for old, new in zip(before, self.batches, strict=False):
            if not old.same(new):
                return min(old.base, new.base)
        shorter = min(len(before), len(self.batches))
        return before[shorter].base if len(before) > shorter else None

    def _read_all(self) -> None:
        bases = self.log._segments.bases
        at = bases.index(self._segment)
        while True:
            segment = self.log._segments[at]
            self._read(segment.size)
            at += 1
            if at == len(bases):
                break
            self._open(bases[at])
        self.end = self.log.log_end_offset
        if self._compacted and self.log._swap is None:
            self._shape = list(self.log._segments)
        self._cuts = self.log.cuts
        if self.batches and self.batches[-1].next != self.end and not self._damaged:
            raise Violation("A22", f"{self.where} ends at {self.end}, but its last batch is {self.batches[-1]}")

    def _open(self, base: int) -> None:
        self._segment = base
        self._position = 0
        self.path = f"{self.log.directory}/{base:020d}.log"
        found = self.volume.find(self.path)
        self._file = found if isinstance(found, FileNode) else None

    def _read(self, end: int) -> None:
        """The batches of the segment at hand, from where we got to."""
        file, position, path = self._file, self._position, self.path
        if file is None:
            return
        content, batches = file.content, self.batches
        expected = batches[-1].next if batches else -1
        while position < end:
            try:
                header = read_header(content, position)
            except Malformed as error:
                if self._damaged:
                    position = end
                    break
                raise Violation("E1", f"{self.where} has no batch at {position} of {path}: {error}") from None
            base = header.base_offset
            if base < expected and not self._damaged:
                raise Violation("A22", f"{self.where}: a batch at {base} follows one that ends at {expected}")
            size = header.batch_length + 12
            expected = base + header.last_offset_delta + 1
            batches.append(
                Batch(base, expected, header.leader_epoch, header.crc, size, file, position, path, header.producer_id)
            )
            position += size
        self._position = position

    def _drop_gone(self) -> int:
        """The batches before the log's start are not ours any more: how many?"""
        self.start = start = self.log.log_start_offset
        batches = self.batches
        gone = 0
        while gone < len(batches) and batches[gone].next <= start:
            gone += 1
        del batches[:gone]
        return gone

    def index_of(self, offset: int) -> int:
        """Which batch holds `offset`, or the first after it."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].next <= offset:
                low = middle + 1
            else:
                high = middle
        return low


def is_durable(volume: Volume, path: str) -> bool:
    """Would the name survive a power loss, whatever happens?"""
    node: object = volume.root
    for name in path.split("/"):
        if name:
            synced = getattr(node, "synced", None)
            entries = getattr(node, "entries", None)
            if synced is None or entries is None or synced.get(name) is not entries.get(name) or name not in synced:
                return False
            node = synced[name]
    return True


def durable_end(volume: Volume, batches: list[Batch]) -> int:
    """The offset before which every batch would survive a power loss, whatever happens; -1 if there is no batch."""
    end = batches[0].base if batches else -1
    named: dict[str, bool] = {}
    for batch in batches:
        if batch.path not in named:
            named[batch.path] = is_durable(volume, batch.path)
        file, at, stop = batch.file, batch.position, batch.position + batch.size
        if not named[batch.path] or file.platter[at:stop] != file.content[at:stop]:
            break
        end = batch.next
    return end
