"""Topics with their configs, their records as batches, and groups' positions, out of a cluster and into another.

What is saved are committed records: of transactions that were aborted, and of markers, nothing. What is restored has
the offsets that it had, as far as the protocol lets a client choose them: before the first record placeholders are
written and deleted again, and a hole in the middle (compaction, markers) closes. `Restored.shift` then says where an
old offset went, and groups' positions go with their records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.admin.asking import refusal
from ottla.admin.offsets import bounds_of
from ottla.admin.topics import delete_records
from ottla.client.blocking import BlockingClient
from ottla.client.reading import fetch, seen_batches
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import TopicPartition
from ottla.records.batch import CompressionType
from ottla.records.builder import BatchBuilder
from ottla.records.records import Record, iterate
from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.produce_response import ProduceResponse

_FETCH_BYTES = 8 << 20
_BATCH_BYTES = 512 << 10
_PRODUCE_MAX = 12
"""The last version that names topics by name."""
_PLACEHOLDERS = 10_000
"""In one batch."""
PLACEHOLDERS_MAX = 20_000_000
"""A log that began later than this begins at zero when it is restored, and its offsets are shifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPartition:
    start_offset: int
    end_offset: int


def read_batches(client: BlockingClient, partition: TopicPartition) -> Iterator[bytes]:
    """The batches of committed records that a partition has now, as they lie in its log."""
    (bounds,) = bounds_of(client, [partition], committed=True).values()
    offset = bounds.start
    while offset < bounds.end:
        data = client.persist(
            lambda at=offset: fetch(client, *partition, at, bytes_max=_FETCH_BYTES, committed=True)  # type: ignore[misc]
        )
        next_offset = offset
        for header, batch, is_seen in seen_batches(data):
            if is_seen and header.base_offset < bounds.end:
                yield bytes(batch)
            next_offset = max(next_offset, header.next_offset)
        if next_offset == offset:
            break  # The log was trimmed meanwhile, or nothing is left that can be read.
        offset = next_offset


@dataclass(slots=True)
class Restored:
    """Where the records of one partition went: stretches of old offsets, each with where it begins now."""

    old: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    end: int = 0
    records: int = 0

    def add(self, old: int, new: int) -> None:
        if not self.old or new - self.new[-1] != old - self.old[-1]:
            self.old.append(old)
            self.new.append(new)

    @property
    def is_exact(self) -> bool:
        return all(old == new for old, new in zip(self.old, self.new, strict=True))

    def position(self, old: int) -> int:
        """Where a reader that was at `old` goes on: at the first record that it had not read."""
        at = bisect_left(self.old, old + 1) - 1
        if at < 0:
            return self.new[0] if self.new else self.end
        moved = self.new[at] + (old - self.old[at])
        return min(moved, self.new[at + 1] if at + 1 < len(self.new) else self.end)


def write_batches(
    client: BlockingClient, partition: TopicPartition, saved: SavedPartition, data: Iterator[bytes]
) -> Restored:
    """Writes saved batches into an empty partition. Raises `KafkaError`, also where it is not empty."""
    (bounds,) = client.persist(lambda: bounds_of(client, [partition])).values()  # It may have been made just now.
    if bounds.end:
        message = f"{partition} has records already: restore into topics that do not exist."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    restored = Restored()
    at = 0
    if 0 < saved.start_offset <= PLACEHOLDERS_MAX:
        at = _write_placeholders(client, partition, saved.start_offset)
    for batch in data:
        found = [each for each in _records(batch) if each.offset >= saved.start_offset]
        for piece in _pieces(found):
            for index, record in enumerate(piece):
                restored.add(record.offset, at + index)
            _produce(client, partition, piece)
            at += len(piece)
            restored.records += len(piece)
    restored.end = at
    return restored


def _write_placeholders(client: BlockingClient, partition: TopicPartition, count: int) -> int:
    written = 0
    while written < count:
        size = min(_PLACEHOLDERS, count - written)
        _produce(client, partition, [Record(0, 0, b"", b"")] * size, compression=CompressionType.ZSTD)
        written += size
    delete_records(client, {partition: count})
    return count


def _records(batch: bytes) -> Iterator[Record]:
    try:
        yield from iterate(batch)
    except Malformed as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The snapshot holds a batch that is none: {error}.") from None


def _pieces(records: list[Record]) -> Iterator[list[Record]]:
    """Batches of a size that every broker takes."""
    piece: list[Record] = []
    size = 0
    for record in records:
        length = len(record.key or b"") + len(record.value or b"") + 50
        if piece and size + length > _BATCH_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += length
    if piece:
        yield piece


def _produce(
    client: BlockingClient,
    partition: TopicPartition,
    records: list[Record],
    *,
    compression: CompressionType = CompressionType.NONE,
) -> None:
    builder = BatchBuilder(compression=compression)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=partition.topic,
                partition_data=[PartitionProduceData(index=partition.partition, records=bytes(builder.build()))],
            )
        ],
    )
    # Not tried again where no answer came: a record must not be there twice.
    answer = client.ask(client.leader_of(*partition), request, ProduceResponse, max_version=_PRODUCE_MAX)
    (result,) = answer.responses[0].partition_responses
    if result.error_code:
        raise refusal(result.error_code, result.error_message, f"{partition} cannot be written")
