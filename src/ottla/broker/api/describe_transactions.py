"""DescribeTransactions (key 65): where the transactions of some ids stand (KIP-664).

An id is described once, however often it is named: its transaction may have very many partitions.
"""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, name) for name in dict.fromkeys(request.transactional_ids)]
    )


def _describe(context: Context, transactional_id: str) -> TransactionState:
    try:
        if not context.may_transactional(Operation.DESCRIBE, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = context.services.transactions.read(
            transactional_id, lambda shard, now_ms: shard.describe(transactional_id)
        )
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    topics: dict[str, TopicData] = {}
    for topic, index in sorted(transaction.partitions):
        if not context.may_topic(Operation.DESCRIBE, topic):
            continue
        topics.setdefault(topic, TopicData(topic=topic)).partitions.append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=list(topics.values()),
    )
