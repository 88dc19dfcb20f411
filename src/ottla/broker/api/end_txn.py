"""EndTxn (key 26): commit or abort. Answered when the decision is committed; the markers follow."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.coordinator.transaction.shard import Identity
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse

_BUMPS_EPOCH_FROM = 5
"""The version of clients that take a new epoch after each transaction (KIP-890)."""
_KNOWS_FENCED_FROM = 2
"""The version from which clients know PRODUCER_FENCED."""


def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    version = context.api_version
    if not context.may_transactional(Operation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def answer(identity: Identity) -> EndTxnResponse:
        error, producer_id, producer_epoch = identity
        if error is ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)

    return context.services.transactions.write(
        request.transactional_id,
        lambda shard, now_ms: shard.end_transaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            2 if version >= _BUMPS_EPOCH_FROM else 0,
            now_ms,
        ),
    ).then(answer, lambda error: EndTxnResponse(error_code=error.code))
