"""InitProducerId (key 22): an identity for an idempotent producer, from a block that the controller gave this node."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse


def handle(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        # An empty id is a mistake of the caller's; any other has no coordinator here to find it.
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.NOT_COORDINATOR
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    ids = context.services.producer_ids
    if (next_id := ids.take()) is not None:
        return InitProducerIdResponse(producer_id=next_id, producer_epoch=0)
    return _from_next_block(context)


async def _from_next_block(context: Context) -> InitProducerIdResponse:
    try:
        producer_id = await context.services.producer_ids.take_from_next_block()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
