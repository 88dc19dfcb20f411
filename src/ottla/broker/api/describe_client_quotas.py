"""DescribeClientQuotas (key 48): the quotas of the entities that a filter matches, from the metadata (KIP-546)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaFilter
from ottla.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.wire.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

_EXACT, _DEFAULT, _ANY = 0, 1, 2


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        EntryData(
            entity=[EntityData(part.type, part.name if part.named else None) for part in entity],
            values=[ValueData(key, value) for key, value in sorted(quotas.items())],
        )
        for entity, quotas in context.services.image.client_quotas.items()
        if wanted.matches(entity)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _filter(request: DescribeClientQuotasRequest) -> QuotaFilter:
    exact: dict[str, str | None] = {}
    any_of: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The type of an entity is empty.")
        if kind in exact or kind in any_of:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The filter names the entity type {kind} more than once.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no entity type {kind}.")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no match type {component.match_type}.")
        if (component.match is None) == (component.match_type == _EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A name goes with an exact match, and with nothing else.")
        if component.match_type == _ANY:
            any_of.add(kind)
        else:
            exact[kind] = component.match
    named = {*exact, *any_of}
    if IP in named and (USER in named or CLIENT_ID in named):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{IP} goes with neither {USER} nor {CLIENT_ID}.")
    return QuotaFilter(exact, frozenset(any_of), request.strict)
