"""Produce (key 0): appends batches, and answers when they are as safe as `acks` asks.

Started by the dispatcher with the bytes where the socket put them: a batch is patched in place and written to its log
from there (`wire/produce_codec`). Anything but plain success goes through the generated response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.access.authorisation import Asker, asker_of
from ottla.broker.bounds.limits import DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX, ELEMENTS_MAX
from ottla.broker.hosted import HostedPartition, HostedTopic
from ottla.broker.purgatory import DelayedProduce, Unsafe
from ottla.broker.reply import CloseConnection, Deferred, Ready, Reply
from ottla.broker.transactions.verification import Claim, Operation, Verdict, for_producer
from ottla.errors import ErrorCode, KafkaError, Malformed
from ottla.log import AppendInfo
from ottla.log.producers import KNOWN_OPEN
from ottla.metadata.acls import Operation as Rights
from ottla.metadata.acls import ResourceType
from ottla.model import INTERNAL_TOPICS, TopicKey, Uuid
from ottla.records import BatchHeader, InvalidRecords, read_header
from ottla.records.validate import DecompressionBudget
from ottla.wire.apis import PRODUCE
from ottla.wire.frames import response_frame
from ottla.wire.produce_codec import Opening, Request, pack, pack_one, read_request

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services

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

_ADMIN_CLIENT = b"\0\x0e__admin_client"
"""The client id, as headers have it, that may write to internal topics."""


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


class Answer:
    """What a request will be answered: its topics in order, each with the outcome of every batch."""

    __slots__ = (
        "_acks",
        "_correlation_id",
        "_listener",
        "_services",
        "_timeout_ms",
        "_version",
        "_waits",
        "plain",
        "topics",
    )

    def __init__(
        self, services: Services, listener: str, version: int, correlation_id: int, acks: int, timeout_ms: int
    ) -> None:
        self._services = services
        self._listener = listener
        self._version = version
        self._correlation_id = correlation_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._waits: list[tuple[HostedPartition, Outcome, int]] = []
        self.topics: list[tuple[bytes, TopicKey, list[Outcome]]] = []
        self.plain = True
        """Nothing but successes so far."""

    def topic(self, head: bytes, key: TopicKey) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self.topics.append((head, key, outcomes))
        return outcomes

    def refused(self, index: int, partition: HostedPartition | None, error: KafkaError, size: int) -> Outcome:
        self.plain = False
        outcome = Outcome(index, error.code, -1, -1, -1)
        outcome.message = error.message
        if isinstance(error, InvalidRecords):
            outcome.record_errors = error.record_errors
        if partition is not None:
            partition.meters.produce_failed(error.code, size)
            if error.code not in _WITHOUT_LOG_START:
                outcome.log_start = partition.log.log_start_offset
        return outcome

    def appended(self, index: int, partition: HostedPartition, info: AppendInfo) -> Outcome:
        log = partition.log
        outcome = Outcome(index, 0, info.first_offset, info.log_append_time_ms, log.log_start_offset)
        required = info.last_offset + 1
        if required > (log.high_watermark if self._acks == -1 else partition.durable_offset):
            self._waits.append((partition, outcome, required))
        return outcome

    def reply(self) -> Reply:
        """Now, or when what was appended is safe."""
        if self._acks == 0:
            if not self.plain:
                # There is no response to say it with; closing makes the producer refresh its metadata.
                raise CloseConnection("a produce request with acks=0 failed")
            return None
        if not self._waits:
            return self._encode()
        deferred = Deferred()

        def finish(unsafe: Unsafe) -> None:
            for partition, outcome, required in self._waits:
                code = unsafe.get((partition, required))
                if code is not None:
                    self.plain = False
                    partition.meters.produce_failed(code, 0)
                    outcome.error = code
                    outcome.base_offset = -1
            deferred.resolve(self._encode())

        delayed = DelayedProduce(finish, self._services.metrics.expired_produces)
        for partition, _, required in self._waits:
            delayed.wait_for(partition, required, committed=self._acks == -1)
        delayed.start(self._services.timers, self._timeout_ms)
        return deferred

    def _encode(self) -> Ready:
        if not self.plain:
            return self._encode_with_errors()
        return pack(
            self._version,
            self._correlation_id,
            [
                (head, ((each.index, each.base_offset, each.append_time, each.log_start) for each in outcomes))
                for head, _, outcomes in self.topics
            ],
        )

    def _encode_with_errors(self) -> bytes:
        from ottla.wire.messages import produce_response as wire

        response = wire.ProduceResponse()
        for _, key, outcomes in self.topics:
            answered = wire.TopicProduceResponse()
            if isinstance(key, str):
                answered.name = key
            else:
                answered.topic_id = key
            response.responses.append(answered)
            answered.partition_responses = [
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
                for outcome in outcomes
            ]
        if self._version >= 10:
            self._services.tell_new_leaders(response, self._listener)
        return response_frame(self._correlation_id, response.encode(self._version), flexible=self._version >= 9)


def start(
    services: Services,
    connection: ClientConnection,
    buffer: bytearray,
    view: memoryview,
    version: int,
    correlation_id: int,
    position: int,
    end: int,
) -> Reply:
    """Phase one: append everything. `position` is where the body begins; bytes at and after `end` are not ours."""
    replicas = services.replicas
    hosts: Mapping[str | Uuid, HostedTopic] = replicas.by_id if version >= 13 else replicas.by_name  # type: ignore[assignment]
    request = read_request(buffer, view, version, position, end, ELEMENTS_MAX)
    asker = asker_of(services, connection, PRODUCE)
    if request.transactional_id is not None:
        connection.opening_size = 0
        may_write_internal = _is_admin_client(view, version, position)
        return _TransactionalProduce(
            services, connection, version, correlation_id, request, end - position, may_write_internal, asker
        ).start()
    # Refused acks, and what else cannot succeed, are not worth a shorter way; and that way asks nobody's rights.
    worth_learning = -1 <= request.acks <= 1 and asker is None
    answer = Answer(services, connection.listener, version, correlation_id, request.acks, request.timeout_ms)
    budget: DecompressionBudget | None = None
    if len(request.topics) != 1 or len(request.topics[0].batches) != 1:
        budget = DecompressionBudget(max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * (end - position)))
    denied = _denied(services, asker, request) if asker is not None else None
    for topic in request.topics:
        outcomes = answer.topic(topic.head, topic.key)
        if denied and topic.key in denied:
            outcomes += [answer.refused(index, None, KafkaError(denied[topic.key]), 0) for index, _ in topic.batches]
            continue
        hosted = hosts.get(topic.key)
        may_write = True
        append = replicas.produce
        if hosted is None or hosted.internal:
            append = replicas.produce_internally
            worth_learning = False
            may_write = hosted is None or _is_admin_client(view, version, position)
        for index, batch in topic.batches:
            partition = hosted.partitions.get(index) if hosted is not None else None
            try:
                if not -1 <= request.acks <= 1:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if partition is None:
                    raise KafkaError(services.missing_partition(topic.key, index))
                if not may_write:
                    raise _internal_topic()
                info = append(partition, batch, request.acks, version, budget)
            except KafkaError as error:
                outcomes.append(answer.refused(index, partition, error, len(batch)))
            else:
                outcomes.append(answer.appended(index, partition, info))
    connection.opening_size = services.openings.learn(view, version, position, request) if worth_learning else 0
    return answer.reply()


def _denied(services: Services, asker: Asker, request: Request) -> dict[TopicKey, ErrorCode]:
    """The topics that a producer without a transactional id may not write to."""
    if _has_transactional_records(request):
        # It writes in a transaction, and does not say in whose.
        return {topic.key: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for topic in request.topics}
    return {
        topic.key: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in request.topics
        if not asker.may_topic(services, Rights.WRITE, topic.key)
    }


def _internal_topic() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Only brokers write to an internal topic.")


def _is_admin_client(view: memoryview, version: int, position: int) -> bool:
    """Does the request whose body is at `position` come from Kafka's own tools, by the client id in its header?"""
    end = position - 1 if version >= 9 else position
    return view[max(0, end - len(_ADMIN_CLIENT)) : end] == _ADMIN_CLIENT


def start_known(
    services: Services, listener: str, version: int, correlation_id: int, opening: Opening, batch: memoryview
) -> Reply:
    """Phase one of the request that producers send most: one batch for one partition, which begins like one seen
    before (`Services.openings`)."""
    acks, timeout_ms, key, index, head = opening
    replicas = services.replicas
    hosted = replicas.by_id.get(key) if version >= 13 else replicas.by_name.get(key)  # type: ignore[arg-type]
    partition = hosted.partitions.get(index) if hosted is not None else None
    try:
        if partition is None:
            raise KafkaError(services.missing_partition(key, index))
        info = replicas.produce(partition, batch, acks, version)
    except KafkaError as error:
        answer = Answer(services, listener, version, correlation_id, acks, timeout_ms)
        answer.topic(head, key).append(answer.refused(index, partition, error, len(batch)))
        return answer.reply()
    log = partition.log
    if acks and info.last_offset < (log.high_watermark if acks == -1 else partition.durable_offset):
        return pack_one(
            version, correlation_id, head, index, info.first_offset, info.log_append_time_ms, log.log_start_offset
        )
    answer = Answer(services, listener, version, correlation_id, acks, timeout_ms)
    answer.topic(head, key).append(answer.appended(index, partition, info))
    return answer.reply()


class _TransactionalProduce:
    """A request with a transactional id. States: started → (the coordinator is asked) → appended.

    The first batch of a transaction in a partition may have to wait for the coordinator
    (`broker/transactions/verification`). The connection is held back meanwhile: what comes behind may be the batch
    after it.
    """

    __slots__ = (
        "_answer",
        "_asker",
        "_connection",
        "_may_write_internal",
        "_operation",
        "_request",
        "_services",
        "_size",
        "_version",
    )

    def __init__(
        self,
        services: Services,
        connection: ClientConnection,
        version: int,
        correlation_id: int,
        request: Request,
        size: int,
        may_write_internal: bool,
        asker: Asker | None,
    ) -> None:
        self._services = services
        self._connection = connection
        self._version = version
        self._request = request
        self._size = size
        self._may_write_internal = may_write_internal
        self._asker = asker
        self._operation = Operation.of_produce(version)
        self._answer = Answer(services, connection.listener, version, correlation_id, request.acks, request.timeout_ms)

    def start(self) -> Reply:
        batches: list[tuple[HostedPartition, int]] = []
        producers: dict[tuple[int, int], None] = {}
        asker, transactional_id = self._asker, self._request.transactional_id
        assert transactional_id is not None
        if (
            asker is not None
            and not asker.may(Rights.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            and _has_transactional_records(self._request)
        ):
            return self._refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        for topic in self._request.topics:
            if not self._may_write(topic.key):
                continue
            for index, batch in topic.batches:
                header = _transactional_header(batch)
                if header is not None:
                    producers[header.producer_id, header.producer_epoch] = None
                    partition = self._find(topic.key, index)
                    # What will be refused must not become part of the transaction, either.
                    if partition is not None and (self._may_write_internal or partition.topic not in INTERNAL_TOPICS):
                        batches.append((partition, header.base_sequence))
        if not -1 <= self._request.acks <= 1:
            return self._refuse_all(ErrorCode.INVALID_REQUIRED_ACKS)
        if len(producers) > 1:
            return self._refuse_all(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not batches:
            return self._append(Verdict())
        claim = Claim(transactional_id, *next(iter(producers)), self._operation)
        deferred = Deferred()
        verdict = self._services.verification.verify(claim, batches, lambda verdict: self._finish(verdict, deferred))
        if verdict is not None:
            return self._append(verdict)
        self._connection.hold()
        for topic in self._request.topics:
            # The bytes where they lie are the connection's again when this returns.
            topic.batches = [(index, memoryview(bytearray(batch))) for index, batch in topic.batches]
        return deferred

    def _may_write(self, key: TopicKey) -> bool:
        asker = self._asker
        return asker is None or asker.may_topic(self._services, Rights.WRITE, key)

    def _find(self, key: TopicKey, index: int) -> HostedPartition | None:
        replicas = self._services.replicas
        hosted = replicas.by_name.get(key) if isinstance(key, str) else replicas.by_id.get(key)
        return hosted.partitions.get(index) if hosted is not None else None

    def _finish(self, verdict: Verdict, deferred: Deferred) -> None:
        """The coordinator has answered."""
        try:
            reply = self._append(verdict)
        except CloseConnection as error:
            self._connection.close(str(error))
            return
        finally:
            self._services.replicas.wake_fetches()
        if isinstance(reply, Deferred):
            later = reply
            later.when_done(lambda: deferred.resolve(later.reply))
        else:
            deferred.resolve(reply)
        self._connection.release()

    def _append(self, verdict: Verdict) -> Reply:
        services, answer, request = self._services, self._answer, self._request
        budget = DecompressionBudget(max(DECOMPRESSED_BYTES_MAX, DECOMPRESSED_RATIO_MAX * self._size))
        for topic in request.topics:
            outcomes = answer.topic(topic.head, topic.key)
            may_write = self._may_write(topic.key)
            for index, batch in topic.batches:
                partition = self._find(topic.key, index) if may_write else None
                try:
                    if not may_write:
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if partition is None:
                        raise KafkaError(services.missing_partition(topic.key, index))
                    if (refusal := verdict.refusals.get(partition)) is not None:
                        raise for_producer(refusal, self._operation)
                    is_internal = partition.topic in INTERNAL_TOPICS
                    if is_internal and not self._may_write_internal:
                        raise _internal_topic()
                    guard = verdict.guards.get(partition, KNOWN_OPEN)
                    append = services.replicas.produce_internally if is_internal else services.replicas.produce
                    info = append(partition, batch, request.acks, self._version, budget, guard)
                except KafkaError as error:
                    outcomes.append(answer.refused(index, partition, error, len(batch)))
                else:
                    outcomes.append(answer.appended(index, partition, info))
        return answer.reply()

    def _refuse_all(self, code: ErrorCode) -> Reply:
        answer = self._answer
        for topic in self._request.topics:
            outcomes = answer.topic(topic.head, topic.key)
            outcomes += [answer.refused(index, None, KafkaError(code), len(batch)) for index, batch in topic.batches]
        return answer.reply()


def _has_transactional_records(request: Request) -> bool:
    return any(_transactional_header(batch) is not None for topic in request.topics for _, batch in topic.batches)


def _transactional_header(batch: memoryview) -> BatchHeader | None:
    """None for a batch that is not transactional, or none at all: the append says what is wrong with it."""
    try:
        header = read_header(batch)
    except Malformed:
        return None
    return header if header.is_transactional and header.has_producer_id else None
