"""DescribeAcls (key 29): the access control entries that a filter matches, from the metadata."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.acls import Acl, AclFilter
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import AclDescription, DescribeAclsResource, DescribeAclsResponse


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    services = context.services
    if not services.config.has_authorizer:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No authorizer is configured on the broker."
        )
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if wanted.is_unknown:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="The filter names something that is not known."
        )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in sorted(Acl.of(record) for record in services.image.acls.values()):
        if wanted.matches(acl):
            resource = resources.get(acl[:3])
            if resource is None:
                resource = resources[acl[:3]] = DescribeAclsResource(*acl[:3])
            resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
