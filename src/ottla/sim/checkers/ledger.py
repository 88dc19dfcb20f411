"""What has been committed in each partition, ever, by anybody: the truth that replicas are held against.

The ledger of a partition begins empty and only grows. A leader whose high watermark moves past its end writes the next
entries; everybody else, and every later leader, must hold exactly these.

Also kept here: every batch that any replica ever held, by offset and leader epoch, with the batch before it. Two logs
that agree on one batch must agree on the one before, and so on all (A5).
"""

from __future__ import annotations

from ottla.records import BatchHeader, read_header
from ottla.sim.checkers.mirror import Batch
from ottla.sim.checkers.violation import Violation


class Ledger:
    __slots__ = ("by_base", "cleaned_to", "end", "lineage", "name", "order", "start", "starts", "writers", "written")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_base: dict[int, Batch] = {}
        self.order: list[Batch] = []
        self.start = 0
        """Everything before it was rightly deleted by somebody."""
        self.starts = {0}
        """Where a log may begin: where somebody asked for it, or a segment did."""
        self.end = 0
        """The true high watermark: nothing at or after it was ever committed."""
        self.cleaned_to = 0
        """Below this offset some replica may have compacted, and others may have copied what that left."""
        self.lineage: dict[tuple[int, int], tuple[int, int, int, tuple[int, int] | None]] = {}
        self.writers: dict[int, int] = {}
        """Leader epoch → the node that led in it."""
        self.written: list[BatchHeader] = []
        """What producers have committed to a compacted log, as it was before any of it could go."""

    def commit(self, batch: Batch, where: str, *, compacted: bool = False) -> bool:
        """`where` holds `batch` below its high watermark. Is it the first to do so? In a `compacted` log it may have
        lost records since."""
        known = self.by_base.get(batch.base)
        if known is not None:
            if not known.same(batch) and not (compacted and known.is_of(batch)):
                raise Violation(
                    "A4", f"{where} holds {batch} below its high watermark, but {known} was committed there"
                )
            return False
        if batch.base < self.end:
            raise Violation("A4", f"{where} holds {batch}, where other batches were committed up to {self.end}")
        self.by_base[batch.base] = batch
        self.order.append(batch)
        self.end = batch.next
        if compacted and batch.producer_id >= 0:
            self.written.append(read_header(batch.file.content, batch.position))
        return True

    def note(self, batch: Batch, before: Batch | None, where: str, *, compacted: bool = False) -> None:
        """`where` holds `batch`, committed or not, right after `before`."""
        if compacted and batch.next <= self.end:
            return  # It is held against what was committed, and what was before it may be gone.
        key = (batch.base, batch.epoch)
        known = self.lineage.get(key)
        previous = None if before is None else (before.base, before.epoch)
        if known is None:
            self.lineage[key] = (batch.next, batch.crc, batch.size, previous)
        elif known[:3] != (batch.next, batch.crc, batch.size):
            raise Violation("A5", f"{where} holds {batch}, and elsewhere that offset and epoch is another batch")
        elif not compacted and previous is not None and known[3] is not None and known[3] != previous:
            raise Violation(
                "A5", f"{where} holds {batch} after {previous}, elsewhere it follows {known[3]} (offset, epoch)"
            )

    def lead(self, epoch: int, node: int) -> None:
        """`node` acts as leader in `epoch`."""
        known = self.writers.setdefault(epoch, node)
        if known != node:
            raise Violation("A12", f"nodes {known} and {node} both lead {self.name} in epoch {epoch}")

    def first_missing(self, batches: list[Batch], log_start: int) -> Batch | None:
        """The first committed batch that a log with these batches lacks, or holds in another form."""
        held = {batch.base: batch for batch in batches}
        for entry in self.order:
            if entry.next <= log_start:
                continue
            found = held.get(entry.base)
            if found is None or not found.same(entry):
                return entry
        return None
