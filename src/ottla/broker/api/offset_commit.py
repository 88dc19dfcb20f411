"""OffsetCommit (key 8): how far a group has come in each partition.

Consumers commit the same partitions over and over. So `start` takes a request that begins like one seen before straight
from the socket's bytes to the record and to the answer (`wire/commit_codec`); everything else goes to `handle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.broker.promise import Promise
from ottla.broker.reply import Deferred
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.offsets.codec import encode_plain_value
from ottla.coordinator.outcome import Outcome
from ottla.coordinator.stored import AnyRecord, EncodedRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.commit_codec import (
    OFFSET_AND_EPOCH_BYTES,
    Opening,
    is_plain,
    pack_answer,
)
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.services import Services

FIRST_VERSION_WITH_IDS = 10


def start(
    services: Services,
    connection: ClientConnection,
    buffer: bytearray,
    view: memoryview,
    version: int,
    correlation_id: int,
    position: int,
    end: int,
) -> Deferred | bytes | None:
    """Commit, if the request is of the plain kind and nothing is to be refused. None: `handle` has to see it."""
    if services.authorizer is not None:
        return None
    known = services.known_commits.find(services, connection, view, version, position, end)
    if known is None:
        return None
    at = position + connection.commit_size
    if not is_plain(buffer, at, end):
        return None
    opening = known.opening
    served = known.served
    try:
        check, effects = served.shard.offsets.admit_commit(
            opening.group_id, opening.member_id, opening.group_instance_id, opening.generation, version
        )
    except KafkaError:
        return None
    if check is not None:
        return None
    served.shard.shared.tally.offset_commits.value += 1
    offset_and_epoch = view[at : at + OFFSET_AND_EPOCH_BYTES]

    def commit(shard: GroupShard, now_ms: int) -> Outcome[None]:
        value = encode_plain_value(offset_and_epoch, now_ms, known.tail)
        records: list[AnyRecord] = [EncodedRecord(known.key, value, known.place)]
        return Outcome(None, records, effects)

    reply = _CommitReply(opening, version, correlation_id)
    served.write(commit).when_done(reply.on_written)
    return reply


class _CommitReply(Deferred):
    """The answer to a plain commit."""

    __slots__ = ("_correlation_id", "_opening", "_version")

    def __init__(self, opening: Opening, version: int, correlation_id: int) -> None:
        super().__init__()
        self._opening = opening
        self._version = version
        self._correlation_id = correlation_id

    def on_written(self, promise: Promise[None]) -> None:
        error = promise.error
        self.resolve(
            pack_answer(self._correlation_id, self._opening.answer, ErrorCode.NONE if error is None else error.code)
        )


def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    if not context.may_group(Operation.READ, request.group_id):
        return OffsetCommitResponse(topics=_refuse_all(request, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    refused, request.topics = _sort_out(context, request.topics)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    version = context.api_version
    try:
        context.services.group_cap.check(request.group_id)
    except KafkaError as error:
        return _merged(refused, _refuse_all(request, error))
    written = context.services.groups.write(
        request.group_id, lambda shard, now_ms: shard.offsets.commit(request, version, now_ms)
    )
    if not refused:
        return written.otherwise(lambda error: OffsetCommitResponse(topics=_refuse_all(request, error)))
    return written.then(
        lambda response: _merged(refused, response.topics),
        lambda error: _merged(refused, _refuse_all(request, error)),
    )


def _sort_out(
    context: Context, topics: list[OffsetCommitRequestTopic]
) -> tuple[list[OffsetCommitResponseTopic], list[OffsetCommitRequestTopic]]:
    """The answers about what does not exist, and what does: each topic by name and by id."""
    image = context.services.image
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    refused: list[OffsetCommitResponseTopic] = []
    existing: list[OffsetCommitRequestTopic] = []
    for topic in topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        name = topic.name if known is None else known.name
        if (known is not None or not by_id) and not context.may_topic(Operation.READ, name):
            refused.append(_answer(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_answer(topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = known.name, known.topic_id
        missing = [each for each in topic.partitions if each.partition_index not in known.partitions]
        if missing:
            refused.append(_answer(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if each.partition_index in known.partitions]
        if topic.partitions:
            existing.append(topic)
    return refused, existing


def _answer(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in partitions
        ],
    )


def _refuse_all(request: OffsetCommitRequest, error: KafkaError) -> list[OffsetCommitResponseTopic]:
    return [_answer(topic, topic.partitions, error.code) for topic in request.topics]


def _merged(refused: list[OffsetCommitResponseTopic], others: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """One answer a topic, also for one of which some partitions exist and some do not."""
    if not refused:
        return OffsetCommitResponse(topics=others)
    by_key = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in others:
        found = by_key.get((topic.name, topic.topic_id))
        if found is None:
            refused.append(topic)
        else:
            found.partitions += topic.partitions
    return OffsetCommitResponse(topics=refused)
