"""Client quotas as metadata (KIP-546): set and removed. Whoever enforces them reads the image."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ottla.config.key import Scope, Type
from ottla.config.table import keys
from ottla.controller.generated import Generated, check_size
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import QuotaEntity
from ottla.metadata.quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, entity_of
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest, OpData
    from ottla.wire.messages.alter_client_quotas_request import EntityData as AskedPart
    from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse

_FRACTION_MAX = 1e-6
"""Doubles that are this near a whole number are one."""

_WHOLE_MAX = {Type.LONG: (1 << 63) - 1, Type.INT: (1 << 31) - 1}

_HOST = re.compile(r"(?=.{1,253}\Z)(?!(?:\d+\.)*\d+\.?\Z)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.|\Z))+")


class QuotaControl:
    def __init__(self, state: Speculation) -> None:
        self._state = state

    def alter(self, request: AlterClientQuotasRequest) -> Generated[AlterClientQuotasResponse]:
        """Each entity succeeds or fails by itself, and may be named once."""
        from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData

        records: list[MetadataRecord] = []
        response = AlterClientQuotasResponse()
        altered: set[QuotaEntity] = set()
        for asked in request.entries:
            result = EntryData(
                error_message=None,
                entity=[EntityData(entity_type=p.entity_type, entity_name=p.entity_name) for p in asked.entity],
            )
            response.entries.append(result)
            try:
                entity, scope = _check_entity(asked.entity)
                if entity in altered:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names the entity more than once.")
                altered.add(entity)
                records += self._alter(entity, scope, asked.ops)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            check_size(records)
        return Generated([] if request.validate_only else records, response)

    def _alter(self, entity: QuotaEntity, scope: Scope, ops: list[OpData]) -> list[MetadataRecord]:
        from ottla.wire.messages.client_quota_record import ClientQuotaRecord, EntityData

        current = self._state.image.client_quotas.get(entity) or {}
        seen: set[str] = set()
        records: list[MetadataRecord] = []
        for op in ops:
            if op.key in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names the quota key {op.key} more than once.")
            seen.add(op.key)
            if op.remove:
                if op.key not in current:
                    continue
            else:
                _check_value(scope, op.key, op.value)
                if current.get(op.key) == op.value:
                    continue
            record = ClientQuotaRecord(
                entity=[EntityData(entity_type=p.type, entity_name=p.name if p.named else None) for p in entity],
                key=op.key,
                value=0.0 if op.remove else op.value,
                remove=op.remove,
            )
            records.append(MetadataRecord(record, 0))
        return records


def _check_entity(asked: list[AskedPart]) -> tuple[QuotaEntity, Scope]:
    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"There is no such client quota entity: {reason}.")

    parts: dict[str, str | None] = {}
    for part in asked:
        if part.entity_type in parts:
            raise refuse(f"it has two parts of type {part.entity_type}")
        if part.entity_type not in ENTITY_TYPES:
            raise refuse(f"it has a part of type {part.entity_type}")
        if part.entity_name == "":
            raise refuse(f"the name of its {part.entity_type} is empty")
        parts[part.entity_type] = part.entity_name
    if not parts:
        raise refuse("it has no parts")
    if IP not in parts:
        return entity_of(parts), Scope.USER_QUOTA
    if USER in parts or CLIENT_ID in parts:
        raise refuse(f"{IP} goes with neither {USER} nor {CLIENT_ID}")
    address = parts[IP]
    if address is not None and not _is_address(address):
        raise refuse(f"{address} is neither an address nor the name of a host")
    return entity_of(parts), Scope.IP_QUOTA


def _is_address(text: str) -> bool:
    """Whether a name can be resolved is found out by whoever enforces the quota."""
    try:
        ip_address(text)
    except ValueError:
        return _HOST.match(text) is not None
    return True


def _check_value(scope: Scope, name: str, value: float) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"The quota {name} {reason}.")

    key = keys(scope).get(name)
    if key is None or key.type not in (Type.DOUBLE, *_WHOLE_MAX):
        raise refuse("does not exist for this entity")
    if not value > 0:
        raise refuse("must be greater than 0")
    most = _WHOLE_MAX.get(key.type)
    if most is not None:
        if value > most:
            raise refuse(f"must be at most {most}")
        if abs(value % 1.0) > _FRACTION_MAX:
            raise refuse("must be a whole number")
