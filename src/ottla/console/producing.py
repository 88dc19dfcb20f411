"""One record, written by a person into a form, appended with acks=all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import BatchBuilder
from ottla.records.partitioner import partition_of_key

TIMEOUT_MS = 30_000
_VERSION_MAX = 12
"""The last that names topics by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    topic: str
    partition: int | None
    """None: where Kafka's clients would send the key, and without a key the first partition."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    partition: int
    offset: int


def produce(client: BlockingClient, draft: Draft) -> Appended:
    """Raises `KafkaError`."""
    from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
    from ottla.wire.messages.produce_response import ProduceResponse

    count = len(client.topics([draft.topic]).get(draft.topic, client.topic(draft.topic)).partitions)
    partition = draft.partition
    if partition is None:
        partition = 0 if draft.key is None else partition_of_key(draft.key, count)
    builder = BatchBuilder()
    builder.append(time.time_ns() // 1_000_000, draft.key, draft.value, draft.headers)
    wanted = PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=draft.topic, partition_data=[wanted])]
    )
    answer = client.ask(client.leader_of(draft.topic, partition), request, ProduceResponse, max_version=_VERSION_MAX)
    (result,) = answer.responses[0].partition_responses
    if result.error_code:
        code = ErrorCode(result.error_code)
        reason = (result.error_message or code.name.lower().replace("_", " ")).rstrip(".")
        raise KafkaError(code, f"The record was refused: {reason}.")
    return Appended(partition=partition, offset=result.base_offset)


def parse_headers(lines: str) -> Sequence[tuple[str, bytes]]:
    """`name: value`, one a line. Raises `ValueError` with one sentence."""
    found = []
    for line in filter(None, (line.strip() for line in lines.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"The header {line} is not of the form name: value.")
        found.append((name.strip(), value.strip().encode()))
    return found
