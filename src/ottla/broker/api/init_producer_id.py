"""InitProducerId (key 22): an identity for an idempotent producer, or for the producer of a transactional id.

The first comes from a block that the controller gave this node, the second from the coordinator of the id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.broker.context import Context
from ottla.coordinator.transaction.shard import Expected, Identity
from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, ResourceType
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.services import Services

_KNOWS_FENCED_FROM = 4
"""The version from which clients know PRODUCER_FENCED."""


def handle(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if (forbidden := _forbidden(context, request)) is not None:
        return _refused(forbidden)
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if not context.services.producer_ids.has_spare and _needs_producer_id(context.services, request.transactional_id):
        return _with_next_block(context, request)
    return _identify(context, request)


def _forbidden(context: Context, request: InitProducerIdRequest) -> ErrorCode | None:
    transactional_id = request.transactional_id
    if transactional_id is None:
        # Whoever may write to any topic at all may do so once only; that is no denial.
        if context.may_for_some(Operation.WRITE, ResourceType.TOPIC) or context.may_cluster(Operation.IDEMPOTENT_WRITE):
            return None
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    needed = [Operation.WRITE]
    if request.enable2_pc:
        needed.append(Operation.TWO_PHASE_COMMIT)
    if all(context.may_transactional(operation, transactional_id) for operation in needed):
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _with_next_block(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    await context.services.producer_ids.refill()
    answer = _identify(context, request)
    return answer if isinstance(answer, InitProducerIdResponse) else await answer


def _identify(
    context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    services = context.services
    transactional_id = request.transactional_id
    if transactional_id is None:
        producer_id = services.producer_ids.take()
        if producer_id is None:
            return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if not _has_room_for(services, transactional_id):
        return _refused(ErrorCode.POLICY_VIOLATION)
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = Expected(request.producer_id, request.producer_epoch)

    def answer(identity: Identity) -> InitProducerIdResponse:
        error, producer_id, producer_epoch = identity
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _KNOWS_FENCED_FROM:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=producer_epoch)

    return services.transactions.write(
        transactional_id,
        lambda shard, now_ms: shard.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            expected,
            now_ms,
            two_phase_commit=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        ),
    ).then(answer, lambda error: _refused(error.code))


def _needs_producer_id(services: Services, transactional_id: str | None) -> bool:
    """Whoever has one goes on with it in the next epoch, while there is a next."""
    if transactional_id is None:
        return True
    served = services.transactions.find(transactional_id)
    if served is None:
        return False  # It is another's, and refused.
    known = served.shard.transactions.get(transactional_id)
    return known is None or known.is_exhausted


def _has_room_for(services: Services, transactional_id: str) -> bool:
    """Whoever may name transactional ids could name any number of them (`ottla.transactional.ids.max`)."""
    served = services.transactions.find(transactional_id)
    if served is None or transactional_id in served.shard.transactions:
        return True  # It is another's, or here already.
    count = sum(len(shard.transactions) for shard in services.transactions.shards())
    return count < services.config.get_int("ottla.transactional.ids.max")


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)
