"""TxnOffsetCommit (key 28): offsets of a group that come into force when a transaction commits (KIP-98, KIP-447).

The records go to the group's partition as part of the transaction, so that whether that partition belongs to it is
asked of the transaction's coordinator first, as for any other (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.broker.coordinators.refusals import as_told
from ottla.broker.transactions.verification import Claim
from ottla.broker.transactions.verification import Operation as Verified
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.model import GROUP_TOPIC
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_LOADING = 2
"""Clients before that fail on COORDINATOR_LOAD_IN_PROGRESS."""


def handle(
    context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not context.may_transactional(Operation.WRITE, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TxnOffsetCommitResponse(topics=_refuse_all(context, request, code))
    if not context.may_group(Operation.READ, request.group_id):
        return TxnOffsetCommitResponse(topics=_refuse_all(context, request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    refused, request.topics = _sort_out(context, request.topics)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    if not request.group_id:
        return _merged(refused, _refuse_all(context, request, ErrorCode.INVALID_GROUP_ID))
    return _commit(context, request, refused)


async def _commit(
    context: Context, request: TxnOffsetCommitRequest, refused: list[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    services, version = context.services, context.api_version
    claim = Claim(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        Verified.of_txn_offset_commit(version),
    )
    try:
        partition = services.replicas.partition(GROUP_TOPIC, services.groups.partition_for(request.group_id))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        services.group_cap.check(request.group_id)
        guard = await services.verification.verify_partition(partition, claim)
        response: TxnOffsetCommitResponse = await services.groups.write_transactional(
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            lambda shard, now_ms: shard.offsets.commit_transactional(request, version, now_ms),
            guard,
        )
    except KafkaError as error:
        return _merged(refused, _refuse_all(context, request, as_told(error).code))
    return _merged(refused, response.topics)


def _sort_out(
    context: Context, topics: list[TxnOffsetCommitRequestTopic]
) -> tuple[list[TxnOffsetCommitResponseTopic], list[TxnOffsetCommitRequestTopic]]:
    """The answers about what does not exist, and what does."""
    refused: list[TxnOffsetCommitResponseTopic] = []
    existing: list[TxnOffsetCommitRequestTopic] = []
    for topic in topics:
        if not context.may_topic(Operation.READ, topic.name):
            refused.append(_answer(topic.name, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        known = context.services.image.topic(topic.name)
        there: list[TxnOffsetCommitRequestPartition] = []
        missing: list[TxnOffsetCommitRequestPartition] = []
        for each in topic.partitions:
            is_there = known is not None and each.partition_index in known.partitions
            (there if is_there else missing).append(each)
        if missing:
            refused.append(_answer(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            topic.partitions = there
            existing.append(topic)
    return refused, existing


def _answer(
    name: str, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


def _refuse_all(
    context: Context, request: TxnOffsetCommitRequest, code: ErrorCode
) -> list[TxnOffsetCommitResponseTopic]:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < FIRST_VERSION_WITH_LOADING:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [_answer(topic.name, topic.partitions, code) for topic in request.topics]


def _merged(
    refused: list[TxnOffsetCommitResponseTopic], others: list[TxnOffsetCommitResponseTopic]
) -> TxnOffsetCommitResponse:
    """One answer a topic, also for one of which some partitions exist and some do not."""
    by_name = {topic.name: topic for topic in refused}
    for topic in others:
        found = by_name.get(topic.name)
        if found is None:
            refused.append(topic)
        else:
            found.partitions += topic.partitions
    return TxnOffsetCommitResponse(topics=refused)
