"""Reading records for the browser: pages of them, forwards or back from the end, filtered where they are read.

Over the blocking client, on any cluster, from a thread. A page costs no more than `SCAN_MAX` records and `SCAN_S`
seconds: whoever filters more than that is told how far it came, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.admin.offsets import bounds_of, list_offsets
from ottla.client.blocking import BlockingClient
from ottla.client.reading import fetch, seen_records
from ottla.model import NO_OFFSET, TopicPartition
from ottla.records.records import Record
from ottla.runtime.blocking import monotonic_s

SCAN_MAX = 50_000
SCAN_S = 5.0
FETCH_BYTES = 1024 * 1024
_BACK_STEP = 500


@dataclass(frozen=True, slots=True)
class SeenRecord:
    partition: int
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Oldest first."""

    records: list[SeenRecord]
    older: dict[int, int]
    """By partition: what is before this offset is on the page before."""
    newer: dict[int, int]
    """By partition: where the next page begins."""
    scanned: int
    """How many records were looked at."""
    cut_short: bool
    """Was there more to look at than a page may cost?"""


Matches = Callable[[SeenRecord], bool]


class _Budget:
    def __init__(self) -> None:
        self._ends_s = monotonic_s() + SCAN_S
        self.scanned = 0

    @property
    def spent(self) -> bool:
        return self.scanned >= SCAN_MAX or monotonic_s() > self._ends_s


def positions_at_time(client: BlockingClient, topic: str, partitions: Sequence[int], time_ms: int) -> dict[int, int]:
    """Where each partition's first record that is as young lies; its end, if none is."""
    keys = [TopicPartition(topic, each) for each in partitions]
    bounds = bounds_of(client, keys)
    found = list_offsets(client, dict.fromkeys(keys, time_ms))
    return {
        each.partition: bounds[each].end if found[each].offset == NO_OFFSET else found[each].offset for each in keys
    }


def read_forward(
    client: BlockingClient,
    topic: str,
    positions: Mapping[int, int],
    *,
    limit: int,
    matches: Matches | None = None,
    committed: bool = True,
) -> Page:
    """Up to `limit` records from these offsets on; an offset outside of the log is its nearest end."""
    bounds = bounds_of(client, [TopicPartition(topic, each) for each in positions], committed=committed)
    budget = _Budget()
    kept: list[SeenRecord] = []
    begins, reached = {}, {}
    for partition, wanted in positions.items():
        bound = bounds[TopicPartition(topic, partition)]
        at = begins[partition] = min(max(wanted, bound.start), bound.end)
        found = 0
        reached[partition] = bound.end
        for each, next_offset in _records(client, topic, partition, at, bound.end, committed):
            budget.scanned += 1
            if matches is None or matches(each):
                kept.append(each)
                found += 1
            if found == limit or budget.spent:
                reached[partition] = next_offset
                break
    kept.sort(key=_order)
    shown, left = kept[:limit], kept[limit:]
    newer = dict(reached)
    for each in left:
        newer[each.partition] = min(newer[each.partition], each.record.offset)
    cut_short = budget.spent and any(
        reached[partition] < bounds[TopicPartition(topic, partition)].end for partition in positions
    )
    return Page(records=shown, older=begins, newer=newer, scanned=budget.scanned, cut_short=cut_short)


def read_back(
    client: BlockingClient,
    topic: str,
    before: Mapping[int, int | None],
    *,
    limit: int,
    matches: Matches | None = None,
    committed: bool = True,
) -> Page:
    """The last `limit` records before these offsets, none standing for the end."""
    bounds = bounds_of(client, [TopicPartition(topic, each) for each in before], committed=committed)
    budget = _Budget()
    kept: list[SeenRecord] = []
    ends, reached = {}, {}
    for partition, wanted in before.items():
        bound = bounds[TopicPartition(topic, partition)]
        high = ends[partition] = bound.end if wanted is None else min(max(wanted, bound.start), bound.end)
        found: list[SeenRecord] = []
        step = max(limit, _BACK_STEP) if matches is not None else limit
        while high > bound.start and len(found) < limit and not budget.spent:
            low = max(bound.start, high - step)
            stretch = []
            for each, _ in _records(client, topic, partition, low, high, committed):
                budget.scanned += 1
                if matches is None or matches(each):
                    stretch.append(each)
            found = stretch + found
            high, step = low, 2 * step
        reached[partition] = high
        kept += found
    kept.sort(key=_order)
    shown, left = kept[-limit:], kept[:-limit]
    older = dict(reached)
    for each in left:
        older[each.partition] = max(older[each.partition], each.record.offset + 1)
    cut_short = budget.spent and any(
        reached[partition] > bounds[TopicPartition(topic, partition)].start for partition in before
    )
    return Page(records=shown, older=older, newer=ends, scanned=budget.scanned, cut_short=cut_short)


def read_one(client: BlockingClient, topic: str, partition: int, offset: int) -> Record | None:
    """The record at this offset, committed or not; none if there is none any more."""
    bound = bounds_of(client, [TopicPartition(topic, partition)])[TopicPartition(topic, partition)]
    if not bound.start <= offset < bound.end:
        return None
    for each, _ in _records(client, topic, partition, offset, offset + 1, False):
        return each.record
    return None


def _order(each: SeenRecord) -> tuple[int, int, int]:
    """By time across partitions. Within one, offsets rise though times may not, but that is how they were read."""
    return each.record.timestamp, each.partition, each.record.offset


def _records(
    client: BlockingClient, topic: str, partition: int, offset: int, end: int, committed: bool
) -> Iterator[tuple[SeenRecord, int]]:
    """Each record of `[offset, end)`, and where to go on behind it."""
    while offset < end:
        at = offset
        data = client.persist(
            lambda: fetch(client, topic, partition, at, bytes_max=FETCH_BYTES, committed=committed)  # noqa: B023
        )
        records, offset = seen_records(data, at)
        for record in records:
            if record.offset >= end:
                return
            yield SeenRecord(partition, record), record.offset + 1
        if offset == at:
            return  # The log has become shorter meanwhile.
