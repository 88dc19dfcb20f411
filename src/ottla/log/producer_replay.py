"""Producer states as the batches of a log tell them: from a snapshot and what follows it. Used by whoever loads a log
or cuts its end off."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ottla.log import scan
from ottla.log.markers import read_marker
from ottla.log.producers import ProducerStates
from ottla.log.segment import Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import SnapshotFiles
from ottla.log.txn_index import AbortedTxn
from ottla.records import BatchHeader


def replay_producers(
    segments: Segments,
    producers: ProducerStates,
    snapshots: SnapshotFiles,
    end_offset: int,
    now_ms: int,
    snapshots_until: int | None = None,
) -> int:
    """Fill `producers` as of `end_offset`: from the newest snapshot at or below it (or at or below `snapshots_until`),
    and the batches after that. Returns from where on batches were looked at.

    Those before the log start count while their files are there: without them a producer would be known by a batch that
    is not its last, and the one that follows be refused.
    """
    until = end_offset if snapshots_until is None else min(end_offset, snapshots_until)
    loaded = snapshots.load_latest(producers, until, now_ms)
    start = segments.bases[0] if loaded is None else loaded
    for segment, position, header in _headers(segments, start, end_offset):
        if header.producer_id >= 0:
            batch = segment.file.read(position, header.size) if header.is_control else b""
            apply_to_producers(producers, header, memoryview(batch))
    return start


def replay_unreplicated(
    segments: Segments,
    producers: ProducerStates,
    snapshots: SnapshotFiles,
    high_watermark: int,
    looked_at_from: int,
    now_ms: int,
) -> None:
    """Transactions that were decided at or after the high watermark count as open until it has passed their markers,
    and snapshots do not tell of them (D10). Those of the markers from `looked_at_from` on are known already.

    Mostly there is no such marker, and to see that only what lies between is looked at; nothing at all if the log knows
    of no producer.
    """
    if not producers.entries:
        return
    start = max(high_watermark, segments.bases[0])
    between = _headers(segments, start, looked_at_from)
    if not any(header.is_control and header.producer_id >= 0 for _, _, header in between):
        return
    then = ProducerStates()
    replay_producers(segments, then, snapshots, looked_at_from, now_ms, snapshots_until=high_watermark)
    producers.restore_unreplicated(then.unreplicated)


def _headers(segments: Segments, start: int, end: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Of the batches from `start` to `end`, each with its place."""
    if start >= end:
        return
    for segment in segments.between(segments.slot_of(start), bisect_left(segments.bases, end)):
        found = segment.locate(start, segments.cache, 1 << 16)
        if found is None:
            continue
        for position, header in scan.headers(segment.file, found[0], segment.size, 1 << 20):
            if header.base_offset >= end:
                return
            yield segment, position, header


def apply_to_producers(producers: ProducerStates, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
    """Replay one batch; the entry for the transaction index if it is the marker of an abort."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.record(header, header.base_offset, header.last_offset)
        return None
    marker = read_marker(batch)
    if marker is None:
        return None
    ended = producers.complete(header, marker[0], header.base_offset, marker[1])
    if ended is None or not ended[0].aborted:
        return None
    completed, last_stable_offset = ended
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)
