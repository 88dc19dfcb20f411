"""What of a fetched partition is committed: records of transactions that were taken back are left out."""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import batches, crc_is_valid
from ottla.records.records import Record, iterate
from ottla.wire.messages.fetch_response import PartitionData


def committed(data: PartitionData, offset: int) -> tuple[list[Record], int]:
    """The records from `offset` on that no transaction took back, and the offset behind all that was looked at."""
    aborted = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
    taken_back: set[int] = set()
    records: list[Record] = []
    for header, batch in batches(memoryview(data.records or b"")):
        if not crc_is_valid(batch, 0, len(batch)):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "A batch arrived damaged.")
        while aborted and aborted[0].first_offset <= header.last_offset:
            taken_back.add(aborted.pop(0).producer_id)
        if header.is_control:
            taken_back.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in taken_back):
            records += [each for each in iterate(batch) if each.offset >= offset]
        offset = max(offset, header.next_offset)
    return records, offset
