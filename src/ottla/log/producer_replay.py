"""Producer states as the batches of a log tell them: from a snapshot and what follows it. Used by whoever loads a log
or cuts its end off."""

from __future__ import annotations

from bisect import bisect_left

from ottla.log import scan
from ottla.log.markers import read_marker
from ottla.log.producers import ProducerStates
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
) -> None:
    """Fill `producers` as of `end_offset`: from the newest snapshot at or below it, and the batches after that.

    Those before the log start count while their files are there: without them a producer would be known by a batch that
    is not its last, and the one that follows be refused.
    """
    loaded = snapshots.load_latest(producers, end_offset, now_ms)
    start = segments.bases[0] if loaded is None else loaded
    if start >= end_offset:
        return
    for segment in segments.between(segments.slot_of(start), bisect_left(segments.bases, end_offset)):
        found = segment.locate(start, segments.cache, 1 << 16)
        if found is None:
            continue
        for position, header in scan.headers(segment.file, found[0], segment.size, 1 << 20):
            if header.base_offset >= end_offset:
                return
            if header.producer_id >= 0:
                batch = segment.file.read(position, header.size) if header.is_control else b""
                apply_to_producers(producers, header, memoryview(batch))


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
