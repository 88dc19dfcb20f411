"""Records of a partition over the blocking client: one fetch, and what of its answer a reader may see.

Whoever reads committed records does so here: a batch is checked before it is believed, and records of transactions that
were taken back are left out, as Kafka's consumers do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BatchHeader, batches, crc_is_valid
from ottla.records.records import Record, iterate

if TYPE_CHECKING:
    from ottla.client.blocking import BlockingClient
    from ottla.wire.messages.fetch_response import PartitionData

WAIT_MS = 500


def fetch(
    client: BlockingClient, topic: str, partition: int, offset: int, *, bytes_max: int, committed: bool
) -> PartitionData:
    """What the leader has from `offset` on, asked once. Raises `KafkaError`; then the leader is looked for anew."""
    from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
    from ottla.wire.messages.fetch_response import FetchResponse

    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, topic_id=client.topic(topic).topic_id, partitions=[wanted])],
    )
    answer = client.ask(client.leader_of(topic, partition), request, FetchResponse)
    code = answer.error_code or answer.responses[0].partitions[0].error_code
    if code:
        client.forget(topic)
        raise KafkaError(ErrorCode(code), f"Partition {partition} of {topic} cannot be read.")
    return answer.responses[0].partitions[0]


def seen_batches(data: PartitionData) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """Each batch that came, and whether its records are for readers: not those of control batches, nor of transactions
    that the answer says were aborted. Raises `KafkaError` for one that is damaged."""
    aborted = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
    taken_back: set[int] = set()
    for header, batch in batches(memoryview(data.records or b"")):
        if not crc_is_valid(batch, 0, len(batch)):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} arrived damaged.")
        while aborted and aborted[0].first_offset <= header.last_offset:
            taken_back.add(aborted.pop(0).producer_id)
        if header.is_control:
            taken_back.discard(header.producer_id)
        hidden = header.is_control or (header.is_transactional and header.producer_id in taken_back)
        yield header, batch, not hidden


def seen_records(data: PartitionData, offset: int) -> tuple[list[Record], int]:
    """The records from `offset` on that readers see, and the offset behind all that came."""
    records: list[Record] = []
    for header, batch, is_seen in seen_batches(data):
        if is_seen:
            records += [each for each in iterate(batch) if each.offset >= offset]
        offset = max(offset, header.next_offset)
    return records, offset
