"""Produce (key 0): appends batches, and answers when they are as safe as `acks` asks.

Tuned by hand: the request is read where the socket put it, a batch is patched in place and written to its log from
there, and a plain success is packed without a response object. Anything unusual goes through the generated response.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.hosted import HostedPartition, HostedTopic
from ottla.broker.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX, ELEMENTS_MAX
from ottla.broker.purgatory import DelayedProduce, Unsafe
from ottla.broker.reply import CloseConnection, Deferred, Ready, Reply
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.model import Uuid
from ottla.records import InvalidRecords
from ottla.records.validate import DecompressionBudget
from ottla.wire.frames import response_frame
from ottla.wire.primitives import read_unsigned_varint, skip_tagged_fields, unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.wire.messages.produce_response import ProduceResponse

VERSION_MIN = 3
"""Older ones carry message formats that Kafka 4 refuses; they are advertised only for the sake of old librdkafka."""

_I16 = Struct(">h").unpack_from
_I32 = Struct(">i").unpack_from
_ACKS_TIMEOUT = Struct(">hi").unpack_from
_INDEX_SIZE = Struct(">ii").unpack_from
_HEAD = Struct(">ii").pack
_V3 = Struct(">ihqq").pack
_V5 = Struct(">ihqqq").pack
_V8 = Struct(">ihqqqih").pack
_V9 = Struct(">ihqqqBBB").pack
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Refusals with which Kafka does not tell where the log starts; with all others of a partition that is here it does."""

_NO_THROTTLE = bytes(4)
_NO_THROTTLE_FLEXIBLE = bytes(5)


class Outcome:
    """What became of one partition's batch."""

    __slots__ = ("append_time", "base_offset", "error", "index", "log_start", "message", "record_errors")

    def __init__(self, index: int, error: int, base_offset: int, append_time: int, log_start: int) -> None:
        self.index = index
        self.error = error
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start = log_start
        self.message: str | None = None
        self.record_errors: list[tuple[int, str | None]] = []


class Topic:
    """One topic of the request and of its answer; `head` is its name or id and its partition count, as on the wire."""

    __slots__ = ("batches", "head", "key", "outcomes")

    def __init__(self, head: bytes, key: str | Uuid, batches: list[tuple[int, memoryview]]) -> None:
        self.head = head
        self.key = key
        self.batches = batches
        self.outcomes: list[Outcome] = []


class Parsed(NamedTuple):
    transactional: bool
    acks: int
    timeout_ms: int
    topics: list[Topic]


def start(
    services: Services,
    buffer: bytearray,
    view: memoryview,
    version: int,
    correlation_id: int,
    position: int,
    end: int,
) -> Reply:
    """Phase one: append everything. `position` is where the body begins; bytes at and after `end` are not ours."""
    try:
        request = _parse(buffer, view, version, position, end)
    except (StructError, IndexError):
        raise Malformed("a produce request ends too early") from None
    transactional, acks, timeout_ms, topics = request
    replicas = services.replicas
    hosts: Mapping[str | Uuid, HostedTopic] = replicas.by_id if version >= 13 else replicas.by_name  # type: ignore[assignment]
    plain = True
    waits: list[tuple[HostedPartition, Outcome, int]] = []
    budget: DecompressionBudget | None = None
    if len(topics) != 1 or len(topics[0].batches) != 1:
        budget = DecompressionBudget(max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * (end - position)))
    for topic in topics:
        hosted = hosts.get(topic.key)
        for index, batch in topic.batches:
            partition = hosted.partitions.get(index) if hosted is not None else None
            try:
                if not -1 <= acks <= 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if partition is None:
                    raise KafkaError(services.missing_partition(topic.key))
                if transactional:
                    # Without a coordinator no transaction is open, and no batch may enter outside of one.
                    raise KafkaError(ErrorCode.INVALID_TXN_STATE, "This cluster does not serve transactions.")
                appended = replicas.produce(partition, batch, acks, version, budget)
            except KafkaError as error:
                plain = False
                if partition is not None:
                    partition.meters.produce_failed(error.code, len(batch))
                topic.outcomes.append(_refused(index, partition, error))
                continue
            log = partition.log
            outcome = Outcome(index, 0, appended.first_offset, appended.log_append_time_ms, log.log_start_offset)
            topic.outcomes.append(outcome)
            required = appended.last_offset + 1
            if required > (log.high_watermark if acks == -1 else partition.durable_offset):
                waits.append((partition, outcome, required))
    if acks == 0:
        if not plain:
            # There is no response to say it with; closing makes the producer refresh its metadata.
            raise CloseConnection("a produce request with acks=0 failed")
        return None
    if not waits:
        return _encode(services, topics, version, correlation_id, plain)
    deferred = Deferred()

    def finish(unsafe: Unsafe) -> None:
        for partition, outcome, required in waits:
            code = unsafe.get((partition, required))
            if code is not None:
                partition.meters.produce_failed(code, 0)
                outcome.error = code
                outcome.base_offset = -1
        deferred.resolve(_encode(services, topics, version, correlation_id, plain and not unsafe))

    delayed = DelayedProduce(finish, services.metrics.expired_produces)
    for partition, _, required in waits:
        delayed.wait_for(partition, required, committed=acks == -1)
    delayed.start(services.timers, timeout_ms)
    return deferred


def _parse(buffer: bytearray, view: memoryview, version: int, p: int, end: int) -> Parsed:
    """Lengths and tags are nearly always one byte, so that case is read in line: a request has a dozen of them."""
    flexible = version >= 9
    if flexible:
        size = buffer[p]
        if size < 0x80:
            p += 1
        else:
            size, p = read_unsigned_varint(buffer, p)
        size -= 1
    else:
        size = _I16(buffer, p)[0]
        p += 2
    transactional = size >= 0
    if transactional:
        p += size
    acks, timeout_ms = _ACKS_TIMEOUT(buffer, p)
    p += 6
    count, p = _count(buffer, p, end, flexible)
    elements = count
    if count > ELEMENTS_MAX:
        raise Malformed("a produce request names too many topics")
    topics: list[Topic] = []
    for _ in range(count):
        topic_start = p
        if version >= 13:
            key: str | Uuid = Uuid(bytes(view[p : p + 16]))
            p += 16
        else:
            if flexible:
                size, p = read_unsigned_varint(buffer, p)
                size -= 1
            else:
                size = _I16(buffer, p)[0]
                p += 2
            if size < 0:
                raise Malformed("a topic without a name")
            try:
                key = str(view[p : p + size], "utf-8")
            except UnicodeDecodeError:
                raise Malformed("a topic name is not UTF-8") from None
            p += size
        partitions, p = _count(buffer, p, end, flexible)
        elements += partitions
        if elements > ELEMENTS_MAX:
            raise Malformed("a produce request names too many partitions")
        batches: list[tuple[int, memoryview]] = []
        topics.append(Topic(bytes(view[topic_start:p]), key, batches))
        for _ in range(partitions):
            if flexible:
                index = _I32(buffer, p)[0]
                size, p = read_unsigned_varint(buffer, p + 4)
                size -= 1
            else:
                index, size = _INDEX_SIZE(buffer, p)
                p += 8
            batch_end = p + size if size > 0 else p
            if batch_end > end:
                raise Malformed("a produce request ends inside a batch")
            batches.append((index, view[p:batch_end]))
            p = batch_end
            if flexible:
                p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
        if flexible:
            p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
    if flexible:
        p = p + 1 if buffer[p] == 0 else skip_tagged_fields(buffer, p)
    if p > end:
        raise Malformed("a produce request ends too early")
    return Parsed(transactional, acks, timeout_ms, topics)


def _refused(index: int, partition: HostedPartition | None, error: KafkaError) -> Outcome:
    outcome = Outcome(index, error.code, -1, -1, -1)
    outcome.message = error.message
    if isinstance(error, InvalidRecords):
        outcome.record_errors = error.record_errors
    if partition is not None and error.code not in _WITHOUT_LOG_START:
        outcome.log_start = partition.log.log_start_offset
    return outcome


def _encode(services: Services, topics: list[Topic], version: int, correlation_id: int, plain: bool) -> Ready:
    if not plain:
        return _encode_with_errors(services, topics, version, correlation_id)
    parts: list[bytes] = []
    if version >= 9:
        for topic in topics:
            parts.append(topic.head)
            parts.extend(_V9(o.index, 0, o.base_offset, o.append_time, o.log_start, 1, 0, 0) for o in topic.outcomes)
            parts.append(b"\0")
        body = b"".join(parts)
        count = unsigned_varint(len(topics) + 1)
        return _HEAD(10 + len(body) + len(count), correlation_id) + b"\0" + count + body + _NO_THROTTLE_FLEXIBLE
    for topic in topics:
        parts.append(topic.head)
        if version >= 8:
            parts.extend(_V8(o.index, 0, o.base_offset, o.append_time, o.log_start, 0, -1) for o in topic.outcomes)
        elif version >= 5:
            parts.extend(_V5(o.index, 0, o.base_offset, o.append_time, o.log_start) for o in topic.outcomes)
        else:
            parts.extend(_V3(o.index, 0, o.base_offset, o.append_time) for o in topic.outcomes)
    body = b"".join(parts)
    return _HEAD(12 + len(body), correlation_id) + len(topics).to_bytes(4, "big") + body + _NO_THROTTLE


def _encode_with_errors(services: Services, topics: list[Topic], version: int, correlation_id: int) -> bytes:
    from ottla.wire.messages import produce_response as wire

    response: ProduceResponse = wire.ProduceResponse()
    for topic in topics:
        answered = wire.TopicProduceResponse()
        if isinstance(topic.key, str):
            answered.name = topic.key
        else:
            answered.topic_id = topic.key
        for outcome in topic.outcomes:
            answered.partition_responses.append(
                wire.PartitionProduceResponse(
                    index=outcome.index,
                    error_code=outcome.error,
                    base_offset=outcome.base_offset,
                    log_append_time_ms=outcome.append_time,
                    log_start_offset=outcome.log_start,
                    record_errors=[
                        wire.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                        for index, message in outcome.record_errors
                    ],
                    error_message=outcome.message,
                )
            )
        response.responses.append(answered)
    if version >= 10:
        services.tell_new_leaders(response)
    return response_frame(correlation_id, response.encode(version), flexible=version >= 9)


def _count(buffer: bytearray, p: int, end: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count = buffer[p]
        if count < 0x80:
            p += 1
        else:
            count, p = read_unsigned_varint(buffer, p)
        count -= 1
    else:
        count = _I32(buffer, p)[0]
        p += 4
    if not 0 <= count <= end - p:
        raise Malformed("a produce request lies about its length")
    return count, p
