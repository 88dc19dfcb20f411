"""Access control entries in words: listing, adding and removing them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.admin.asking import ask_once, check
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import DescribeAclsResponse

# Each word stands at the number that the protocol gives it; the first is for what a newer cluster may say.
RESOURCES = ("unknown", "any", "topic", "group", "cluster", "transactional-id", "delegation-token", "user")
PATTERNS = ("unknown", "any", "match", "literal", "prefixed")
PERMISSIONS = ("unknown", "any", "deny", "allow")
OPERATIONS = (
    *("unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action"),
    *("describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens", "two-phase-commit"),
)

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource `cluster`."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    resource: str
    name: str
    pattern: str = "literal"
    principal: str
    """As in `User:ann`; `User:*` is everybody."""
    permission: str = "allow"
    operation: str
    host: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """What is left out matches everything. The pattern `match` finds all that apply to `name`."""

    resource: str = "any"
    name: str | None = None
    pattern: str = "any"
    principal: str | None = None
    permission: str = "any"
    operation: str = "any"
    host: str | None = None


def list_acls(client: BlockingClient, wanted: AclFilter | None = None) -> list[Acl]:
    """Sorted by resource, name and principal."""
    asked = wanted or AclFilter()
    request = DescribeAclsRequest(
        resource_type_filter=_number(RESOURCES, asked.resource),
        resource_name_filter=asked.name,
        pattern_type_filter=_number(PATTERNS, asked.pattern),
        principal_filter=asked.principal,
        host_filter=asked.host,
        operation=_number(OPERATIONS, asked.operation),
        permission_type=_number(PERMISSIONS, asked.permission),
    )
    answer = client.ask_any(request, DescribeAclsResponse)
    check(answer.error_code, answer.error_message, "The ACLs cannot be listed")
    return sorted(
        Acl(
            resource=_word(RESOURCES, resource.resource_type),
            name=resource.resource_name,
            pattern=_word(PATTERNS, resource.pattern_type),
            principal=each.principal,
            permission=_word(PERMISSIONS, each.permission_type),
            operation=_word(OPERATIONS, each.operation),
            host=each.host,
        )
        for resource in answer.resources
        for each in resource.acls
    )


def create_acls(client: BlockingClient, acls: Iterable[Acl]) -> None:
    """One that is there already is no error."""
    wanted = list(acls)
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=_number(RESOURCES, each.resource, exactly=True),
                resource_name=each.name,
                resource_pattern_type=_number(PATTERNS, each.pattern, exactly=True),
                principal=each.principal,
                host=each.host,
                operation=_number(OPERATIONS, each.operation, exactly=True),
                permission_type=_number(PERMISSIONS, each.permission, exactly=True),
            )
            for each in wanted
        ]
    )
    for acl, result in zip(wanted, ask_once(client, request, CreateAclsResponse).results, strict=False):
        check(result.error_code, result.error_message, f"The ACL for {acl.principal} cannot be added")


def delete_acls(client: BlockingClient, wanted: AclFilter) -> list[Acl]:
    """Removes all that match, and returns them."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=_number(RESOURCES, wanted.resource),
                resource_name_filter=wanted.name,
                pattern_type_filter=_number(PATTERNS, wanted.pattern),
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=_number(OPERATIONS, wanted.operation),
                permission_type=_number(PERMISSIONS, wanted.permission),
            )
        ]
    )
    removed = []
    for result in ask_once(client, request, DeleteAclsResponse).filter_results:
        check(result.error_code, result.error_message, "The ACLs cannot be removed")
        for each in result.matching_acls:
            check(each.error_code, each.error_message, f"The ACL for {each.principal} cannot be removed")
            removed.append(
                Acl(
                    resource=_word(RESOURCES, each.resource_type),
                    name=each.resource_name,
                    pattern=_word(PATTERNS, each.pattern_type),
                    principal=each.principal,
                    permission=_word(PERMISSIONS, each.permission_type),
                    operation=_word(OPERATIONS, each.operation),
                    host=each.host,
                )
            )
    return sorted(removed)


def _number(words: tuple[str, ...], word: str, *, exactly: bool = False) -> int:
    """With `exactly`, of an entry: what only filters can say is no choice."""
    lowered = word.lower().replace("_", "-")
    choices = [each for each in words[1:] if not exactly or each not in ("any", "match")]
    if lowered not in choices:
        message = f"{word!r} is none of {', '.join(choices)}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return words.index(lowered)


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 <= number < len(words) else words[0]
