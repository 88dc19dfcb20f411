"""A task's side of the sink: rows of Arrow batches become record batches of the right partitions, and are sent.

With exactly-once delivery they are written in a transaction that is begun at the first row and left open: to commit it
is the driver's to decide (`driver.py`). A task that fails aborts its own.

A transactional id belongs to one process, and no other ever uses it: nobody but the process itself can fence what it
has staged. It takes one of its ids again under a later claim: before a task sees that claim, all that was staged under
earlier ones is committed or will never be (`two_phase.Opening`). So there are as many ids as a batch has tasks, and not
more with every batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ottla.records.packing import batches_of, byte_strings, rows_by_partition
from ottla.records.partitioner import partitioner
from ottla.runtime.memory import keep_freed_memory
from ottla.spark.crash_points import reached
from ottla.spark.sink.connections import connections
from ottla.spark.sink.decision_log import task_prefix
from ottla.spark.sink.handover import OpenSink, SinkError, TaskResult
from ottla.spark.sink.options import DeliveryGuarantee, SinkOptions
from ottla.spark.sink.producing import Producer, ProducerSettings
from ottla.spark.sink.rows import Rows
from ottla.spark.sink.two_phase import Claim, Staged

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

GATHERED_BYTES_PER_PARTITION = 128 * 1024
GATHERED_BYTES_MAX = 4 * 1024 * 1024
"""Arrow batches that are too small to fill a record batch a partition are gathered, which copies them."""

CREATED_WITHIN_MS = 15_000
"""How long a topic that is not there is waited for: brokers may create it when it is asked for."""


class Task(NamedTuple):
    """Which task of Spark's this is."""

    partition: int
    query_id: str = ""
    batch_id: int | None = None
    """None for a batch write that nobody counts."""
    repeated: bool = False
    """May there have been another attempt at it?"""


def stage(options: SinkOptions, opened: OpenSink, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    """Writes the rows into an open transaction, all of them acknowledged by enough replicas."""
    batch_id = opened.next_batch_id if task.batch_id is None else task.batch_id
    result = TaskResult(opened, task.query_id, batch_id, False, None, task.repeated)
    if opened.has_written(task.query_id, batch_id):
        for _ in batches:
            pass  # Spark expects its rows to be taken.
        return result._replace(skipped=True)
    staged = _Staging(options, _take_id(opened), task.partition).write(batches)
    return result._replace(staged=staged)


class _OwnId(NamedTuple):
    name: str
    claim: Claim
    """Under which it was used last."""


_own_ids: dict[tuple[int, str], list[_OwnId]] = {}
"""By process (a forked one has its own) and sink."""


def _take_id(opened: OpenSink) -> str:
    """A transactional id of this process that it has not used under this claim, nor under a later one."""
    # A sink that nobody opens again has no later claim.
    own = [] if opened.forsaken else _own_ids.setdefault((os.getpid(), opened.sink), [])
    for index, (name, claim) in enumerate(own):
        if opened.claim.follows(claim):
            own[index] = _OwnId(name, opened.claim)
            return name
    name = f"{task_prefix(opened.sink)}{uuid4().hex}"
    own.append(_OwnId(name, opened.claim))
    return name


def send(options: SinkOptions, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
    """Writes the rows at least once: a task that is run again writes its rows again."""
    _Staging(options, None, partition).write(batches)


class _Staging:
    def __init__(self, options: SinkOptions, transactional_id: str | None, task_partition: int) -> None:
        assert (transactional_id is not None) == (options.guarantee is DeliveryGuarantee.EXACTLY_ONCE)
        keep_freed_memory()
        to = connections(options.client)
        self._options = options
        self._client = to.client
        self._coordination = to.coordination
        self._transactional_id = transactional_id
        self._partitioner = partitioner(options.partitioner, task_partition)
        self._identity: Claim | None = None
        self._producer: Producer | None = None
        self._counts: dict[str, int] = {}

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged | None:
        try:
            for gathered in self._gathered(batches):
                self._send(gathered)
                reached("rows-sent")
            if self._producer is None:
                return None
            self._producer.flush()
            reached("rows-acknowledged")
        except BaseException:
            # What failed may well be the cluster; then the transaction is left to those who sweep, and the clock.
            with suppress(KafkaError):
                staged = self._staged()
                if staged is not None:
                    self._coordination.end(staged, commit=False)
            raise
        return self._staged()

    def _staged(self) -> Staged | None:
        if self._transactional_id is None or self._identity is None:
            return None
        coordinator = self._coordination.coordinator(self._transactional_id)
        return Staged(self._transactional_id, *self._identity, coordinator)

    def _begin(self) -> Producer:
        options = self._options
        reached("before-begin")
        if self._transactional_id is None and options.acks != -1:
            self._identity = Claim(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        else:
            try:
                self._identity = self._coordination.init(self._transactional_id, options.transaction_timeout_ms)
            except KafkaError as error:
                if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    raise SinkError(
                        f"The brokers allow no transactions of {options.transaction_timeout_ms} ms: set "
                        f"kafka.transaction.timeout.ms to at most their transaction.max.timeout.ms, or raise that."
                    ) from error
                raise
        reached("after-begin")
        settings = ProducerSettings(
            acks=options.acks,
            compression=options.compression,
            request_bytes_max=options.request_bytes_max,
            delivery_timeout_ms=options.delivery_timeout_ms,
        )
        return Producer(self._client, self._coordination, self._identity, settings, self._transactional_id)

    def _gathered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(batch)
            size += batch.nbytes
            if size >= self._gathered_bytes():
                yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
                waiting, size = [], 0
        if waiting:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)

    def _gathered_bytes(self) -> int:
        """What is worth being sent. Which topics a column names, is not known before its rows are looked at."""
        topic = self._options.topic
        return (
            GATHERED_BYTES_MAX
            if topic is None
            else min(self._count(topic) * GATHERED_BYTES_PER_PARTITION, GATHERED_BYTES_MAX)
        )

    def _send(self, batch: pa.RecordBatch) -> None:
        rows = Rows.of(batch, self._options.topic)
        if self._producer is None:
            self._producer = self._begin()
        for topic, chosen in rows.by_topic():
            partitions, count = self._partitions(topic, rows, chosen)
            for partition, within in rows_by_partition(partitions, count):
                place = TopicPartition(topic, partition)
                members = within if chosen is None else chosen[within]
                for packed in batches_of(rows.columns, members, self._options.batch_bytes):
                    self._producer.add(place, packed)

    def _partitions(self, topic: str, rows: Rows, chosen: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], int]:
        """Where each of the chosen rows goes, and how many partitions there are."""
        import numpy as np

        count = self._count(topic)
        said = rows.partitions if rows.partitions is None or chosen is None else rows.partitions[chosen]
        if said is not None and (said >= 0).all():
            partitions = said
        else:
            if chosen is None:
                keys, number = rows.columns.key, len(rows.columns)
            else:
                keys = None if rows.key is None else byte_strings(rows.key.take(chosen))
                number = len(chosen)
            partitions = self._partitioner(topic, keys, number, count)
            if said is not None:
                partitions = np.where(said >= 0, said, partitions)
        highest = int(partitions.max())
        if highest >= count:
            count = self._count(topic, anew=True)  # It may have grown since the task began.
        if highest >= count:
            raise SinkError(
                f"The partition column says {highest}, but the topic {topic} has {count} partitions, from 0 on."
            )
        return partitions, count

    def _count(self, topic: str, *, anew: bool = False) -> int:
        """How many partitions the topic has: asked once a task, since a process outlives many and topics grow."""
        if anew or topic not in self._counts:
            self._client.forget(topic)
            self._counts[topic] = self._client.persist(lambda: partition_count(self._client, topic))
        return self._counts[topic]


def partition_count(client: BlockingClient, topic: str) -> int:
    """Of a topic which brokers may create when they are asked for it."""
    from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
    from ottla.wire.messages.metadata_response import MetadataResponse

    try:
        return client.partition_count(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    client.ask_any(request, MetadataResponse)
    try:
        return client.persist(lambda: client.partition_count(topic), timeout_ms=CREATED_WITHIN_MS)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SinkError(
                f"The topic {topic} does not exist, and the brokers do not create it: create it first."
            ) from error
        raise
