"""Batches of a shard's records on their way into the log, and what waits for each of them to be committed.

Values without a will of their own: `served.py` fills them, has them appended, and tells who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.promise import Promise
from ottla.coordinator.outcome import AnyEffect
from ottla.coordinator.stored import AnyRecord, EncodedRecord, StoredRecord
from ottla.errors import Malformed
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.records import BatchBuilder, CompressionType, TimestampType, read_header
from ottla.records.records import keys_and_values
from ottla.runtime.timers import Timer

RECORD_OVERHEAD_MAX = 32
"""What a record needs beside its key and value: lengths, offset, timestamp."""

TimerKey = tuple[str, ...]
KeyValue = tuple[bytes, bytes | None]


class Wait:
    """What happens when a batch is committed, or is not: one outcome's promise, answers, effects and tag."""

    __slots__ = ("effects", "promise", "retry", "tag", "token")

    def __init__(
        self,
        promise: Promise[object] | None,
        effects: list[AnyEffect],
        tag: object = None,
        token: int | None = None,
        retry: TimerKey | None = None,
    ) -> None:
        self.promise = promise
        self.effects = effects
        self.tag = tag
        self.token = token
        """Of the request that made the outcome, if it is one that waits."""
        self.retry = retry
        """The timer that made it, if it was one."""


Waiting = Wait | Promise[object]


class Batch:
    """Records that are appended together, and those who wait for them. It may be of no records: then it stands for the
    end of the batch before."""

    __slots__ = ("end_offset", "first_offset", "timer", "waits")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = self.end_offset = first_offset
        self.waits: list[Waiting] = []
        """A promise by itself is an outcome that has nothing else to it, as most have."""
        self.timer: Timer | None = None


class GrowingBatch(Batch):
    """One that more records may be added to, until it is appended."""

    __slots__ = ("now_ms", "records", "size")

    def __init__(self, first_offset: int, now_ms: int) -> None:
        super().__init__(first_offset)
        self.now_ms = now_ms
        self.records: list[KeyValue] = []
        self.size = 0
        """Of the records in the batch, at most."""

    def build(
        self,
        timestamps: TimestampType,
        compression: CompressionType,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> bytearray:
        """The bytes for the log; a producer is named where the records are of his transaction."""
        builder = BatchBuilder(
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id != NO_PRODUCER_ID,
            log_append_time_ms=self.now_ms if timestamps is TimestampType.LOG_APPEND_TIME else None,
        )
        builder.append_all(self.now_ms, self.records)
        return builder.build()


def split(
    records: Sequence[AnyRecord], encode: Callable[[AnyRecord], KeyValue], size_max: int
) -> list[list[AnyRecord]] | None:
    """Parts that each fit into a batch; None if a single record does not."""
    parts: list[list[AnyRecord]] = []
    size = size_max
    for record in records:
        key, value = encode(record)
        needed = len(key) + RECORD_OVERHEAD_MAX + (0 if value is None else len(value))
        if needed > size_max:
            return None
        if size + needed > size_max:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += needed
    return parts


def read_outsider(
    batch: memoryview, decode: Callable[[bytes, bytes | None], AnyRecord | None], partition: TopicPartition
) -> list[tuple[int, EncodedRecord]] | None:
    """What a stranger appended: each record's distance from the first offset, and the record; None if they are more
    than `replay` can do."""
    header = read_header(batch)
    if header.is_transactional or header.is_control:
        return None
    found: list[tuple[int, EncodedRecord]] = []
    for offset_delta, key, value in keys_and_values(batch, header):
        if key is None:
            raise Malformed(f"a record of {partition} has no key")
        record = decode(key, value)
        if isinstance(record, StoredRecord):
            return None
        if record is not None:  # Otherwise it is of a release that knows more than this one.
            found.append((offset_delta, record))
    return found
