"""Reading a range of one partition, in a Spark task: fetch the next window while this one is decoded.

The next fetch leaves as soon as the headers of this one's answer have been looked at; the broker reads and sends while
Arrow batches are made and handed to Spark. Leaders that move and brokers that restart are waited for. What cannot be
read any more, because it was deleted or truncated, is data loss: an error, or left out with a line in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client.blocking import Pending
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import ZERO_UUID
from ottla.records.arrow import Aborted, FetchedBatches
from ottla.runtime.blocking import monotonic_s, pause
from ottla.runtime.memory import keep_freed_memory
from ottla.spark.source.cluster import Cluster
from ottla.spark.source.offsets import EARLIEST, LATEST, OffsetRange, SourceError
from ottla.spark.source.options import SourceOptions
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_WAIT_MS = 500
_LAST_VERSION_BY_NAME = 12
"""From Fetch 13 on topics are named by their ids (KIP-516)."""
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of `wanted` that are there; offsets may have gaps, where compaction or transactions left them."""
    keep_freed_memory()
    return _RangeReader(Cluster(options), wanted).read()


class _RangeReader:
    def __init__(self, cluster: Cluster, wanted: OffsetRange) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._options = cluster.options
        self._wanted = wanted
        self._name = str(wanted.partition)
        self._position = wanted.start
        self._pending: Pending[FetchResponse] | None = None
        self._progress_at_s = monotonic_s()
        self._backoff_ms = self._options.client.retry_backoff_ms

    def read(self) -> Iterator[pa.RecordBatch]:
        partition = self._wanted.partition
        try:
            while self._position < self._wanted.end:
                answer = self._fetch()
                if answer is None:
                    continue
                fetched = self._batches(answer)
                position, next_offset = self._position, fetched.next_offset
                if next_offset is None or next_offset <= position:
                    self._wait_for("no record came")
                    continue
                self._position = next_offset
                self._on_progress()
                if next_offset < self._wanted.end:
                    self._start()
                aborted = answer.aborted_transactions or [] if self._options.read_committed else []
                yield from fetched.record_batches(
                    partition.topic,
                    partition.partition,
                    first_offset=position,
                    end_offset=self._wanted.end,
                    aborted=[Aborted(each.producer_id, each.first_offset) for each in aborted],
                    with_headers=self._options.include_headers,
                )
        finally:
            if self._pending is not None:
                # Nobody will read the answer, and the connection cannot be used before it is read.
                self._pending.connection.close()

    def _batches(self, answer: PartitionData) -> FetchedBatches:
        try:
            return FetchedBatches(answer.records or b"")
        except Malformed as error:
            raise SourceError(
                f"What {self._name} has at offset {self._position} is no record batch: {error}."
            ) from error

    def _start(self) -> None:
        """Sends the next fetch if it can be sent; if not, `_fetch` will hear why."""
        partition = self._wanted.partition
        topic_id = self._wanted.topic_id
        asked = FetchPartition(
            partition=partition.partition,
            fetch_offset=self._position,
            partition_max_bytes=self._options.fetch_bytes_max,
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._options.fetch_bytes_max,
            isolation_level=int(self._options.read_committed),
            topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[asked])],
        )
        max_version = _LAST_VERSION_BY_NAME if topic_id == ZERO_UUID else 1000
        try:
            leader = self._client.leader_of(*partition)
            self._pending = self._client.start(leader, request, FetchResponse, max_version=max_version)
        except KafkaError as error:
            self._on_refusal(error)

    def _fetch(self) -> PartitionData | None:
        """The answer, or None if the fetch has to be sent again."""
        if self._pending is None:
            self._start()
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        try:
            response = self._client.finish(pending)
            answer = next((each for topic in response.responses for each in topic.partitions), None)
            code = ErrorCode(response.error_code or (0 if answer is None else answer.error_code))
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_out_of_range()
                return None
            if code:
                raise KafkaError(code, f"{self._name} cannot be read.")
        except KafkaError as error:
            self._on_refusal(error)
            return None
        return answer

    def _on_progress(self) -> None:
        self._progress_at_s = monotonic_s()
        self._backoff_ms = self._options.client.retry_backoff_ms

    def _on_refusal(self, error: KafkaError) -> None:
        if error.code in _GONE and self._is_gone():
            self._cluster.on_data_loss(
                f"The topic {self._wanted.partition.topic} was deleted while offsets {self._position} to "
                f"{self._wanted.end} of partition {self._wanted.partition.partition} were to be read."
            )
            self._position = self._wanted.end
            return
        if not error.code.retriable and not isinstance(error, PeerLost):
            raise SourceError(f"{self._name} cannot be read at offset {self._position}: {error}.") from error
        self._client.forget(self._wanted.partition.topic)
        self._wait_for(str(error))
        pause(self._backoff_ms / 1000)
        self._backoff_ms = min(2 * self._backoff_ms, self._options.client.retry_backoff_ms_max)

    def _is_gone(self) -> bool:
        """Is there no such topic any more, or another one of its name?"""
        topic, topic_id = self._wanted.partition.topic, self._wanted.topic_id
        found = self._cluster.topics(must_exist=False).get(topic)
        if found is None:
            return True
        return ZERO_UUID not in (topic_id, found.topic_id) and found.topic_id != topic_id

    def _wait_for(self, reason: str) -> None:
        if monotonic_s() - self._progress_at_s > self._options.poll_timeout_ms / 1000:
            raise SourceError(
                f"{self._name} gave nothing from offset {self._position} on for {self._options.poll_timeout_ms} ms "
                f"({reason}): see to the cluster, or raise kafkaConsumer.pollTimeoutMs."
            )

    def _on_out_of_range(self) -> None:
        partition = self._wanted.partition
        start = self._cluster.list_offsets({partition: EARLIEST})[partition]
        end = self._cluster.list_offsets({partition: LATEST})[partition]
        if start <= self._position <= end:
            self._wait_for("its offsets are not settled")
            pause(self._backoff_ms / 1000)
            return
        if self._position < start:
            self._cluster.on_data_loss(
                f"Offsets {self._position} to {min(start, self._wanted.end) - 1} of {self._name} are gone: it begins "
                f"at {start} now, since retention or a deletion of records was quicker than the query."
            )
            self._position = min(start, self._wanted.end)
        else:
            self._cluster.on_data_loss(
                f"Offsets {self._position} to {self._wanted.end - 1} of {self._name} are gone: it ends at {end} now, "
                "so it was truncated, or deleted and made again."
            )
            self._position = self._wanted.end
