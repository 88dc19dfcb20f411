"""ListTransactions (key 66): the transactions that this node coordinates (KIP-664)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.coordinator.transaction.list_filter import ListFilter, unknown_titles
from ottla.errors import KafkaError
from ottla.metadata.acls import Operation
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse, TransactionState


def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    try:
        wanted = ListFilter.from_request(request)
        found = context.services.transactions.read_all(lambda shard, now_ms: shard.list_transactions(wanted, now_ms))
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=unknown_titles(request),
        transaction_states=[
            TransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for listed in found
            for transactional_id, transaction in listed
            if context.silently.may_transactional(Operation.DESCRIBE, transactional_id)
        ],
    )
