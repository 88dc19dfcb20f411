"""AddOffsetsToTxn (key 25): a transaction is going to commit offsets of a group (KIP-98)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.model import GROUP_TOPIC, TopicPartition
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse

_KNOWS_FENCED_FROM = 2
"""The version from which clients know PRODUCER_FENCED."""


def handle(
    context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    services = context.services
    if not context.may_transactional(Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.may_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partitions = [TopicPartition(GROUP_TOPIC, services.groups.partition_for(request.group_id))]

    def answer(code: ErrorCode) -> AddOffsetsToTxnResponse:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)

    # Clients of version 2 do not ask: their offsets' partition is added when it is first written to.
    return services.transactions.write(
        request.transactional_id,
        lambda shard, now_ms: shard.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, partitions, 0, now_ms
        ),
    ).then(answer, lambda error: AddOffsetsToTxnResponse(error_code=error.code))
