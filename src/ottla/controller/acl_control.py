"""Access control entries as metadata: created and deleted. Whoever enforces them reads the image.

An entry has no identity but its parts: creating one that exists changes nothing. Without an authorizer there is nobody
who would obey them, and both requests are refused.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated, check_size
from ottla.controller.settings import ControllerSettings
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode
from ottla.metadata.acls import Acl, AclFilter
from ottla.metadata.ids import random_uuid
from ottla.metadata.records import MetadataRecord
from ottla.model import Uuid

if TYPE_CHECKING:
    from ottla.wire.messages.create_acls_request import CreateAclsRequest
    from ottla.wire.messages.create_acls_response import CreateAclsResponse
    from ottla.wire.messages.delete_acls_request import DeleteAclsRequest
    from ottla.wire.messages.delete_acls_response import DeleteAclsResponse

_NO_AUTHORIZER = "No authorizer is configured."


class AclControl:
    def __init__(self, state: Speculation, settings: ControllerSettings, random: Random) -> None:
        self._state = state
        self._settings = settings
        self._random = random

    def create(self, request: CreateAclsRequest) -> Generated[CreateAclsResponse]:
        from ottla.wire.messages.access_control_entry_record import AccessControlEntryRecord
        from ottla.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse

        records: list[MetadataRecord] = []
        results: list[AclCreationResult] = []
        existing = {Acl.of(record) for record in self._state.image.acls.values()} if request.creations else set()
        ids: set[Uuid] = set()
        for creation in request.creations:
            result = AclCreationResult(error_message=None)
            results.append(result)
            acl = Acl(
                creation.resource_type,
                creation.resource_name,
                creation.resource_pattern_type,
                creation.principal,
                creation.host,
                creation.operation,
                creation.permission_type,
            )
            if not self._settings.has_authorizer:
                result.error_code, result.error_message = ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER
                continue
            reason = acl.invalid_because()
            if reason is not None:
                result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, reason
                continue
            if acl not in existing:
                existing.add(acl)
                record = AccessControlEntryRecord(self._new_id(ids), *acl)
                records.append(MetadataRecord(record, 0))
        check_size(records)
        return Generated(records, CreateAclsResponse(results=results))

    def _new_id(self, taken: set[Uuid]) -> Uuid:
        while (acl_id := random_uuid(self._random)) in self._state.image.acls or acl_id in taken:
            pass
        taken.add(acl_id)
        return acl_id

    def delete(self, request: DeleteAclsRequest) -> Generated[DeleteAclsResponse]:
        """Two filters may match one entry: both say so, and it is deleted once."""
        from ottla.wire.messages.delete_acls_response import (
            DeleteAclsFilterResult,
            DeleteAclsMatchingAcl,
            DeleteAclsResponse,
        )
        from ottla.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord

        entries = [(acl_id, Acl.of(record)) for acl_id, record in self._state.image.acls.items()]
        deleted: dict[Uuid, None] = {}
        results: list[DeleteAclsFilterResult] = []
        for asked in request.filters:
            result = DeleteAclsFilterResult(error_message=None)
            results.append(result)
            acl_filter = AclFilter(
                asked.resource_type_filter,
                asked.resource_name_filter,
                asked.pattern_type_filter,
                asked.principal_filter,
                asked.host_filter,
                asked.operation,
                asked.permission_type,
            )
            if not self._settings.has_authorizer:
                result.error_code, result.error_message = ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER
            elif acl_filter.is_unknown:
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "The filter names something that is not known."
            else:
                for acl_id, acl in entries:
                    if acl_filter.matches(acl):
                        deleted[acl_id] = None
                        result.matching_acls.append(DeleteAclsMatchingAcl(0, None, *acl))
        records = [MetadataRecord(RemoveAccessControlEntryRecord(id=acl_id), 0) for acl_id in deleted]
        check_size(records)
        return Generated(records, DeleteAclsResponse(filter_results=results))
