"""Users, access control entries and quotas are described from the metadata image, and secrets are not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.broker.api import describe_acls, describe_client_quotas, describe_user_scram_credentials
from ottla.broker.context import Context
from ottla.errors import ErrorCode
from ottla.metadata.images import MetadataImage
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from ottla.wire.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest, UserName
from tests.controller.acting import Acting, node_config
from tests.controller.test_users_and_acls import (
    AUTHORIZER,
    SHA_512,
    alter_quotas,
    alter_users,
    create,
    entry,
    quota,
    secured,
    upsert,
)


def context(image: MetadataImage, authorizer: str = "") -> Context:
    services = SimpleNamespace(image=image, config=node_config(authorizer_class_name=authorizer))
    return cast("Context", SimpleNamespace(services=services))


def every_acl(name: str | None = None, kind: int = 1, pattern: int = 1) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def test_entries_are_described_by_resource() -> None:
    acting = secured()
    create(acting, entry("orders"), entry("orders", principal="User:bob"), entry("ord", pattern=4), entry("bills"))
    here = context(acting.image, AUTHORIZER)
    described = describe_acls.handle(here, every_acl())
    assert [(r.resource_name, r.pattern_type, [a.principal for a in r.acls]) for r in described.resources] == [
        ("bills", 3, ["User:alice"]),
        ("ord", 4, ["User:alice"]),
        ("orders", 3, ["User:alice", "User:bob"]),
    ]
    matched = describe_acls.handle(here, every_acl("orders", pattern=2))
    assert [r.resource_name for r in matched.resources] == ["ord", "orders"]
    assert describe_acls.handle(here, every_acl(kind=0)).error_code == ErrorCode.INVALID_REQUEST
    assert describe_acls.handle(context(acting.image), every_acl()).error_code == ErrorCode.SECURITY_DISABLED


def test_users_are_described_without_their_secrets() -> None:
    acting = Acting()
    alter_users(acting, upsert("alice"), upsert("bob", iterations=8192))
    alter_users(acting, upsert("alice", SHA_512))
    here = context(acting.image)
    answer = describe_user_scram_credentials.handle(here, DescribeUserScramCredentialsRequest(users=None))
    assert {r.user: [(i.mechanism, i.iterations) for i in r.credential_infos] for r in answer.results} == {
        "alice": [(1, 4096), (2, 4096)],
        "bob": [(1, 8192)],
    }
    wanted = [UserName(name=name) for name in ("bob", "nobody", "alice", "alice")]
    answer = describe_user_scram_credentials.handle(here, DescribeUserScramCredentialsRequest(users=wanted))
    assert {r.user: ErrorCode(r.error_code).name for r in answer.results} == {
        "bob": "NONE",
        "nobody": "RESOURCE_NOT_FOUND",
        "alice": "DUPLICATE_RESOURCE",
    }


def described(
    acting: Acting, *components: tuple[str, int, str | None], strict: bool = False
) -> list[dict[str, str | None]] | str:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=t, match_type=m, match=name) for t, m, name in components], strict=strict
    )
    answer = describe_client_quotas.handle(context(acting.image), request)
    if answer.error_code:
        assert answer.entries is None
        return ErrorCode(answer.error_code).name
    assert answer.entries is not None
    return [{part.entity_type: part.entity_name for part in item.entity} for item in answer.entries]


def test_quotas_are_found_by_filter() -> None:
    acting = Acting()
    rate = {"producer_byte_rate": 1.0}
    entities: list[dict[str, str | None]] = [
        {"client-id": None},
        {"client-id": "app", "user": "alice"},
        {"ip": "10.0.0.1"},
        {"user": None},
        {"user": "alice"},
    ]
    for parts in entities:
        alter_quotas(acting, quota(parts, {"connection_creation_rate": 1.0} if "ip" in parts else rate))
    assert described(acting) == entities
    assert described(acting, strict=True) == []
    assert described(acting, ("user", 0, "alice")) == [entities[1], entities[4]]
    assert described(acting, ("user", 0, "alice"), strict=True) == [entities[4]]
    assert described(acting, ("user", 1, None)) == [entities[3]]
    assert described(acting, ("user", 2, None), ("client-id", 2, None)) == [entities[1]]
    assert described(acting, ("ip", 2, None)) == [entities[2]]
    assert described(acting, ("ip", 2, None), ("user", 2, None)) == "INVALID_REQUEST"
    assert described(acting, ("user", 0, None)) == "INVALID_REQUEST"
    assert described(acting, ("user", 1, "x")) == "INVALID_REQUEST"
    assert described(acting, ("user", 7, None)) == "INVALID_REQUEST"
    assert described(acting, ("", 2, None)) == "INVALID_REQUEST"
    assert described(acting, ("user", 2, None), ("user", 2, None)) == "INVALID_REQUEST"
    assert described(acting, ("planet", 2, None)) == "UNSUPPORTED_VERSION"
