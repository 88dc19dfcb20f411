"""What a pass wants to know of sealed segments before it begins, read from the disk apart from the loop.

Three steps, so that the loop reads nothing: it says what is missing (`lookup`), a thread reads that (`run`, which
touches nothing but files), and the loop puts it where it will be asked for (`tell`). What cannot be read is left out:
whoever needs it meets the error. Driven by `broker/upkeep/compaction`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.log import files, scan, txn_index
from ottla.log.cleaner.choosing import first_dirty_offset
from ottla.log.log import Log
from ottla.log.log_config import MAX_LONG
from ottla.log.segment import UNKNOWN_TIMESTAMP, Segment
from ottla.log.time_index import TimeIndex
from ottla.log.txn_index import AbortedTxn
from ottla.model import NO_TIMESTAMP
from ottla.runtime.seams import Disk, DiskError

_HEADER_CHUNK = 128


@dataclass(slots=True)
class _Facts:
    """Of one segment: what is to be read, and then what was."""

    segment: Segment
    size: int
    wants_last: bool = False
    wants_first: bool = False
    wants_aborted: bool = False
    last: tuple[int, int] | None = None
    """The largest timestamp, and how far behind the base offset it is."""
    first: int | None = None
    aborted: list[AbortedTxn] | None = None


@dataclass(slots=True)
class Lookup:
    """States: asked for → run → told."""

    disk: Disk
    _facts: list[tuple[Log, int, list[_Facts]]] = field(default_factory=list)
    """With the log's count of cuts: of one that was cut meanwhile nothing is told."""

    @property
    def is_needed(self) -> bool:
        return any(facts for _, _, facts in self._facts)

    def run(self) -> None:
        for _, _, facts in self._facts:
            for each in facts:
                try:
                    self._read(each)
                except (DiskError, OSError, ValueError):
                    continue

    def _read(self, facts: _Facts) -> None:
        segment = facts.segment
        if facts.wants_last:
            data = self.disk.read_file(segment.path(files.TIME_INDEX))
            index = TimeIndex.decode(data) if data else None
            facts.last = None if index is None else index.last
        if facts.wants_first:
            file = self.disk.open(segment.path(files.LOG))
            try:
                found = next(scan.headers(file, 0, facts.size, _HEADER_CHUNK), None)
            finally:
                file.close()
            facts.first = NO_TIMESTAMP if found is None else found[1].max_timestamp
        if facts.wants_aborted:
            try:
                facts.aborted = txn_index.decode(
                    self.disk.read_file(segment.path(files.TXN_INDEX)), segment.base_offset
                )
            except FileNotFoundError:
                facts.aborted = []

    def tell(self) -> None:
        for log, cuts, all_facts in self._facts:
            if log.cuts != cuts or log.offline:
                continue
            present = set(log._segments)
            for facts in all_facts:
                if facts.segment in present:
                    _tell(log, facts)


def _tell(log: Log, facts: _Facts) -> None:
    segment = facts.segment
    if facts.last is not None and segment.max_timestamp == UNKNOWN_TIMESTAMP:
        segment.max_timestamp = facts.last[0]
        segment.max_timestamp_offset = segment.base_offset + facts.last[1]
    if facts.first is not None and segment.first_timestamp is None:
        segment.first_timestamp = facts.first
    if facts.aborted is not None and segment.aborted is None:
        if facts.aborted:
            log._segments.cache.put_aborted(segment, facts.aborted)
        else:
            segment.aborted = facts.aborted


def lookup(disk: Disk, logs: Iterable[Log], *, of_transactions: bool = False) -> Lookup:
    """For `assess` of these logs; with `of_transactions` for `begin_pass` as well."""
    return Lookup(disk, [(log, log.cuts, _missing(log, of_transactions)) for log in logs])


def _missing(log: Log, of_transactions: bool) -> list[_Facts]:
    config, segments = log.config, log._segments
    dirty_from = segments.slot_of(first_dirty_offset(log))
    found: list[_Facts] = []
    for slot, segment in enumerate(segments):
        facts = _Facts(segment, segment.size)
        if slot >= dirty_from and segment.size:
            facts.wants_last = config.min_compaction_lag_ms > 0 and segment.max_timestamp == UNKNOWN_TIMESTAMP
            facts.wants_first = config.max_compaction_lag_ms < MAX_LONG and segment.first_timestamp is None
        if of_transactions:
            facts.wants_aborted = segment.aborted is None and not segments.cache.knows_aborted(segment)
        if facts.wants_last or facts.wants_first or facts.wants_aborted:
            found.append(facts)
    return found
