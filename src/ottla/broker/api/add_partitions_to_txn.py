"""AddPartitionsToTxn (key 24): the partitions that a transaction is going to write to.

Clients ask for one transaction (up to version 3). Brokers ask for many at once, and may only want to know whether the
partitions are part of the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.broker.promise import Promise, kept
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.model import INTERNAL_TOPICS, TRANSACTION_TOPIC, TopicPartition
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.services import Services

BATCHED_FROM = 4
_KNOWS_FENCED_FROM = 2
"""The version from which clients know PRODUCER_FENCED."""

_V1, _V2 = 0, 2
"""The rules that clients follow for whom the one form or the other is used (`transaction.version`)."""

Codes = dict[TopicPartition, ErrorCode]


def handle(
    context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    services, version = context.services, context.api_version
    if version >= BATCHED_FROM:
        if not context.may_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return add_partitions(services, request.transactions)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    forbidden = _forbidden(context, transaction)
    if forbidden:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(forbidden))

    def answer(codes: Codes) -> AddPartitionsToTxnResponse:
        if version < _KNOWS_FENCED_FROM:
            fenced = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
            codes = {partition: fenced[1] if code is fenced[0] else code for partition, code in codes.items()}
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(codes))

    return _add(services, transaction, _V1).then(answer, _impossible)


def _forbidden(context: Context, transaction: AddPartitionsToTxnTransaction) -> Codes:
    """What a client is told who may not add all that it names: all of it is added, or nothing."""
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    if not context.may_transactional(Operation.WRITE, transaction.transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes: Codes = {}
    for partition in partitions:
        # As Kafka has it, nobody writes to an internal topic in a transaction but by TxnOffsetCommit.
        if partition.topic in INTERNAL_TOPICS or not context.may_topic(Operation.WRITE, partition.topic):
            codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif context.services.image.partition(*partition) is None:
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            codes[partition] = ErrorCode.OPERATION_NOT_ATTEMPTED
    return codes if ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes.values() else {}


async def add_partitions(
    services: Services, transactions: Sequence[AddPartitionsToTxnTransaction]
) -> AddPartitionsToTxnResponse:
    """The batched form, for whoever asks: over the wire, or in this very node."""
    pending = [_add(services, transaction, _V2) for transaction in transactions]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_by_topic(await codes)
            )
            for transaction, codes in zip(transactions, pending, strict=True)
        ]
    )


def _add(services: Services, transaction: AddPartitionsToTxnTransaction, client_version: int) -> Promise[Codes]:
    """What is said of each partition. The promise is always kept."""
    partitions = list(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )
    unknown = [partition for partition in partitions if services.image.partition(*partition) is None]
    if unknown:
        # All of them, or none.
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return kept(codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if any(partition.topic == TRANSACTION_TOPIC for partition in partitions):
        # A coordinator that ends such a transaction would write into its own log behind its own back, again and again.
        return kept(dict.fromkeys(partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    name, producer_id, epoch = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    runtime = services.transactions
    if transaction.verify_only:
        return runtime.write(
            name, lambda shard, now_ms: shard.verify_partitions(name, producer_id, epoch, partitions)
        ).otherwise(lambda error: dict.fromkeys(partitions, error.code))
    return runtime.write(
        name, lambda shard, now_ms: shard.add_partitions(name, producer_id, epoch, partitions, client_version, now_ms)
    ).then(lambda code: dict.fromkeys(partitions, code), lambda error: dict.fromkeys(partitions, error.code))


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, index), code in codes.items():
        result = topics.setdefault(topic, AddPartitionsToTxnTopicResult(name=topic))
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())


def _impossible(error: Exception) -> AddPartitionsToTxnResponse:
    raise AssertionError("errors are told of each partition") from error
