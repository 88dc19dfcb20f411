"""Records that cannot be decoded, put aside in a topic of their own, so that a stream goes on without them.

A dead letter is the record as it was, key, value and headers, with headers that say where it came from and why it is
here. `send` writes it before the rest of its batch goes on; a task that is tried again writes it again: letters with
the same topic, partition and offset are the same letter. `letters` makes rows of them instead, which go through the
sink with the rest of their batch, exactly once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.records.builder import BatchBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERROR = "dead.letter.error"
TOPIC = "dead.letter.topic"
PARTITION = "dead.letter.partition"
OFFSET = "dead.letter.offset"
TIMESTAMP = "dead.letter.timestamp"
SCHEMA_ID = "dead.letter.schema.id"
COLUMN = "dead.letter.column"

HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
BATCH_BYTES = 512 * 1024
PRODUCE_TIMEOUT_MS = 30_000


class DeadLetter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """None if nobody has kept it."""
    error: str
    schema_id: int
    column: str

    def all_headers(self) -> list[tuple[str, bytes | None]]:
        told = {
            ERROR: self.error,
            TOPIC: self.topic,
            PARTITION: str(self.partition),
            OFFSET: str(self.offset),
            TIMESTAMP: "" if self.timestamp_ms is None else str(self.timestamp_ms),
            SCHEMA_ID: str(self.schema_id) if self.schema_id >= 0 else "",
            COLUMN: self.column,
        }
        return [*self.headers, *((name, text.encode()) for name, text in told.items())]


def send(client: BlockingClient, topic: str, letters: Sequence[DeadLetter]) -> None:
    """All letters are in the topic when this returns: each in the partition that has the number of its source's, as far
    as the topic has so many, so that they keep their order. Raises `KafkaError`."""
    count = client.persist(lambda: client.partition_count(topic))
    by_partition: dict[int, list[DeadLetter]] = defaultdict(list)
    for letter in letters:
        by_partition[letter.partition % count].append(letter)
    for partition, found in by_partition.items():
        builder = BatchBuilder()
        for letter in found:
            builder.append(time.time_ns() // 1_000_000, letter.key, letter.value, letter.all_headers())
            if builder.size > BATCH_BYTES:
                _produce(client, topic, partition, bytes(builder.build()))
                builder = BatchBuilder()
        if len(builder):
            _produce(client, topic, partition, bytes(builder.build()))


def _produce(client: BlockingClient, topic: str, partition: int, batch: bytes) -> None:
    from ottla.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
    from ottla.wire.messages.produce_response import ProduceResponse

    def attempt() -> None:
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic, topic_id=client.topic(topic).topic_id, partition_data=[data]),
            ],
        )
        answer = client.ask(client.leader_of(topic, partition), request, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"The dead-letter topic {topic} takes no records.")

    client.persist(attempt)


def letters(frame: DataFrame, topic: str, *, failure_column: str, column: str = "value") -> DataFrame:
    """The rows of a decoded `frame` that have a failure, as records of `topic` for the sink. `column` is the one that
    could not be decoded; `frame` has the source's columns still, headers too if they are to be kept."""
    from pyspark.sql import functions as F

    failure = F.col(failure_column)
    told = {
        ERROR: failure["error"],
        TOPIC: F.col("topic"),
        PARTITION: F.col("partition"),
        OFFSET: F.col("offset"),
        TIMESTAMP: F.unix_millis("timestamp") if ("timestamp", "timestamp") in frame.dtypes else F.lit(""),
        SCHEMA_ID: F.coalesce(failure["schemaId"].cast("string"), F.lit("")),
        COLUMN: F.lit(column),
    }
    headers = F.array(
        *(
            F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
            for name, text in told.items()
        )
    )
    if "headers" in frame.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS)), headers)
    kept = [failure["bytes"].alias(name) if name == column else F.col(name) for name in ("key", "value")]
    return frame.where(failure.isNotNull()).select(F.lit(topic).alias("topic"), *kept, headers.alias("headers"))
