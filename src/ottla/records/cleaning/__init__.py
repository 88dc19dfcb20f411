"""What compaction does to records: the map from keys to their last offsets, and batches with what stays of them.

A map is built over the part of a log that was not compacted yet (`OffsetMap`, `add_batch`), and then every batch is put
through it (`clean_batch`). Runs of plain batches, which most are, go through one compiled call (`OffsetMap.add_batches`
and `clean_batches`); what is compressed or belongs to a transaction comes here one by one. Driven by `log/cleaner`,
which decides what may be compacted at all. Bytes that cannot be what they claim raise `ValueError`.
"""

from __future__ import annotations

from ottla.errors import Malformed
from ottla.records.batch import LOG_APPEND_TIME_FLAG, BatchHeader, CompressionType, crc_is_valid
from ottla.records.builder import BatchBuilder
from ottla.records.cleaning._hot import SLOT_BYTES, OffsetMap
from ottla.records.cleaning.rewriting import emptied, rebuilt
from ottla.records.compression import compress
from ottla.records.records import body_of, decode


def map_within(memory_bytes: int, load_factor: float, record_count_max: int, secret: bytes) -> OffsetMap:
    """A map that takes no more than `memory_bytes`, nor more than `record_count_max` records can need."""
    slots = max(3, memory_bytes // SLOT_BYTES)
    entries_max = min(max(1, int(slots * load_factor)), slots - 1)
    if record_count_max < entries_max:
        entries_max = max(1, record_count_max)
        slots = min(slots, 2 * entries_max + 1)
    return OffsetMap(slots, entries_max, secret)


def add_batch(offsets: OffsetMap, batch: memoryview, header: BatchHeader, from_offset: int) -> bool:
    """Note the keys of one batch; False when the map was full before its last record."""
    if header.last_offset < from_offset:
        return True
    body = _checked_body(batch, header)
    if not offsets.add(body, header.record_count, header.base_offset, from_offset):
        return False
    offsets.latest_offset = header.last_offset
    return True


def clean_batch(
    offsets: OffsetMap, batch: memoryview, header: BatchHeader, now_ms: int, new_horizon: int
) -> memoryview | bytes | None:
    """What stays of one batch of data; None if no record does."""
    body = _checked_body(batch, header)
    kept, base_timestamp, max_timestamp, survivors, stamped = offsets.survivors(
        body,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None,
        header.has_delete_horizon,
        now_ms,
        new_horizon,
    )
    if not kept:
        return None
    if survivors is None:
        return batch
    if header.compression:
        survivors = compress(header.compression, survivors)
    return rebuilt(header, kept, base_timestamp, max_timestamp, survivors, stamped=stamped)


def stamp_marker(batch: memoryview, header: BatchHeader, horizon: int) -> bytes:
    """The control batch with a delete horizon: all of its transaction's records are gone."""
    builder = BatchBuilder(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        compression=CompressionType(header.compression),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=True,
        log_append_time_ms=header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None,
        delete_horizon_ms=horizon,
    )
    try:
        for record in decode(_checked_body(batch, header), header):
            builder.append(record.timestamp, record.key, record.value, record.headers, offset=record.offset)
    except Malformed as error:
        raise ValueError(f"the marker at offset {header.base_offset} cannot be read: {error}") from None
    return bytes(builder.build(last_offset=header.last_offset))


def _checked_body(batch: memoryview, header: BatchHeader) -> memoryview:
    if not crc_is_valid(batch, 0, len(batch)):
        raise ValueError(f"the batch at offset {header.base_offset} is corrupt")
    try:
        return body_of(batch, header)
    except Malformed as error:
        raise ValueError(f"the batch at offset {header.base_offset} is corrupt: {error}") from None


__all__ = ["SLOT_BYTES", "OffsetMap", "add_batch", "clean_batch", "emptied", "map_within", "rebuilt", "stamp_marker"]
