"""Users, access control entries and quotas: metadata like any other, with rules of their own."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation, PatternType, Permission, ResourceType
from ottla.metadata.quotas import entity_of
from ottla.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from tests.controller.acting import Acting

SHA_256, SHA_512 = 1, 2
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


# Users.


def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def delete(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter_users(acting: Acting, *alterations: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, str]:
    request = AlterUserScramCredentialsRequest(
        deletions=[a for a in alterations if isinstance(a, ScramCredentialDeletion)],
        upsertions=[a for a in alterations if isinstance(a, ScramCredentialUpsertion)],
    )
    answer = acting.ask(lambda c, now: c.alter_user_scram_credentials(request, now))
    return {result.user: ErrorCode(result.error_code).name for result in answer.results}


def test_a_user_comes_changes_and_goes() -> None:
    acting = Acting()
    assert alter_users(acting, upsert("alice"), upsert("bob", SHA_512, 16_384)) == {"alice": "NONE", "bob": "NONE"}
    assert list(acting.image.scram_credentials) == [("alice", SHA_256), ("bob", SHA_512)]
    assert alter_users(acting, upsert("alice", iterations=8192)) == {"alice": "NONE"}
    assert acting.image.scram_credentials["alice", SHA_256].iterations == 8192
    assert alter_users(acting, delete("alice"), upsert("carol")) == {"alice": "NONE", "carol": "NONE"}
    assert list(acting.image.scram_credentials) == [("bob", SHA_512), ("carol", SHA_256)]


def test_what_is_kept_is_what_a_login_needs() -> None:
    """The exchange of RFC 7677."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    acting = Acting()
    alter_users(
        acting,
        ScramCredentialUpsertion(name="user", mechanism=SHA_256, iterations=4096, salt=salt, salted_password=salted),
    )
    credential = acting.image.scram_credentials["user", SHA_256]
    assert (credential.salt, credential.iterations) == (salt, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(credential.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    verifier = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert hmac.digest(credential.server_key, message, "sha256") == verifier


def test_credentials_that_are_refused() -> None:
    acting = Acting()
    alter_users(acting, upsert("alice"))
    before = len(acting.log)
    assert alter_users(
        acting,
        delete("nobody"),
        delete("alice", SHA_512),
        delete("odd", 7),
        upsert("", SHA_256),
        upsert("few", iterations=4095),
        upsert("many", iterations=16_385),
        upsert("strange", 0),
        upsert("twice"),
        upsert("twice", SHA_512),
        delete("both"),
        upsert("both"),
    ) == {
        "nobody": "RESOURCE_NOT_FOUND",
        "alice": "RESOURCE_NOT_FOUND",
        "odd": "UNSUPPORTED_SASL_MECHANISM",
        "": "UNACCEPTABLE_CREDENTIAL",
        "few": "UNACCEPTABLE_CREDENTIAL",
        "many": "UNACCEPTABLE_CREDENTIAL",
        "strange": "UNSUPPORTED_SASL_MECHANISM",
        "twice": "DUPLICATE_RESOURCE",
        "both": "DUPLICATE_RESOURCE",
    }
    assert len(acting.log) == before


def test_before_3_5_there_are_no_users() -> None:
    assert alter_users(Acting(metadata_version=10), upsert("alice")) == {"alice": "UNSUPPORTED_VERSION"}


# Access control entries.


def entry(
    name: str,
    *,
    kind: int = ResourceType.TOPIC,
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = Operation.READ,
    permission: int = Permission.ALLOW,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(acting: Acting, *entries: AclCreation) -> list[str]:
    answer = acting.ask(lambda c, now: c.create_acls(CreateAclsRequest(creations=list(entries)), now))
    return [ErrorCode(result.error_code).name for result in answer.results]


def remove(
    acting: Acting,
    name: str | None = None,
    *,
    kind: int = ResourceType.ANY,
    pattern: int = PatternType.ANY,
    principal: str | None = None,
    operation: int = Operation.ANY,
) -> tuple[str, list[str]]:
    wanted = DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=None,
        operation=operation,
        permission_type=Permission.ANY,
    )
    answer = acting.ask(lambda c, now: c.delete_acls(DeleteAclsRequest(filters=[wanted]), now))
    (result,) = answer.filter_results
    return ErrorCode(result.error_code).name, sorted(acl.resource_name for acl in result.matching_acls)


def secured() -> Acting:
    return Acting(authorizer_class_name=AUTHORIZER)


def names(acting: Acting) -> list[str]:
    return sorted(record.resource_name for record in acting.image.acls.values())


def test_entries_are_created_once_however_often_they_are_asked_for() -> None:
    acting = secured()
    assert create(acting, entry("orders"), entry("orders"), entry("bills", operation=Operation.WRITE)) == ["NONE"] * 3
    assert names(acting) == ["bills", "orders"]
    before = len(acting.log)
    assert create(acting, entry("orders")) == ["NONE"]
    assert len(acting.log) == before
    assert create(acting, entry("orders", permission=Permission.DENY)) == ["NONE"]
    assert names(acting) == ["bills", "orders", "orders"]


@pytest.mark.parametrize(
    "wrong",
    [
        entry("x", kind=ResourceType.ANY),
        entry("x", kind=ResourceType.UNKNOWN),
        entry("x", kind=99),
        entry("x", kind=-1),
        entry("x", pattern=PatternType.MATCH),
        entry("x", pattern=PatternType.ANY),
        entry("x", operation=Operation.ANY),
        entry("x", operation=16),
        entry("x", permission=Permission.ANY),
        entry("x", principal="alice"),
        entry("x", kind=ResourceType.CLUSTER),
        entry(""),
    ],
)
def test_entries_that_cannot_be(wrong: AclCreation) -> None:
    acting = secured()
    assert create(acting, wrong, entry("right")) == ["INVALID_REQUEST", "NONE"]
    assert names(acting) == ["right"]


def test_filters_find_what_is_to_be_deleted() -> None:
    acting = secured()
    create(
        acting,
        entry("orders"),
        entry("ord", pattern=PatternType.PREFIXED),
        entry("*"),
        entry("bills", principal="User:bob"),
        entry("orders", kind=ResourceType.GROUP, operation=Operation.DESCRIBE),
        entry("kafka-cluster", kind=ResourceType.CLUSTER, operation=Operation.ALTER),
    )
    assert remove(acting, "nothing") == ("NONE", [])
    assert remove(acting, kind=ResourceType.UNKNOWN) == ("INVALID_REQUEST", [])
    assert remove(acting, operation=77) == ("INVALID_REQUEST", [])
    assert remove(acting, "orders", kind=ResourceType.GROUP) == ("NONE", ["orders"])
    assert remove(acting, "ord", pattern=PatternType.LITERAL) == ("NONE", [])
    assert remove(acting, "orders", kind=ResourceType.TOPIC, pattern=PatternType.MATCH) == (
        "NONE",
        ["*", "ord", "orders"],
    )
    assert remove(acting, principal="User:bob") == ("NONE", ["bills"])
    assert remove(acting) == ("NONE", ["kafka-cluster"])
    assert names(acting) == []


def test_an_entry_that_two_filters_match_is_deleted_once() -> None:
    acting = secured()
    create(acting, entry("orders"))
    every = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = acting.ask(lambda c, now: c.delete_acls(DeleteAclsRequest(filters=[every, every]), now))
    assert [len(result.matching_acls) for result in answer.filter_results] == [1, 1]
    assert acting.last_records == ["RemoveAccessControlEntryRecord"]


def test_without_an_authorizer_nobody_would_obey_them() -> None:
    acting = Acting()
    assert create(acting, entry("orders")) == ["SECURITY_DISABLED"]
    assert remove(acting) == ("SECURITY_DISABLED", [])


# Quotas.


def quota(
    parts: dict[str, str | None], set_to: dict[str, float] | None = None, removed: list[str] | None = None
) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
        ops=[OpData(key=key, value=value, remove=False) for key, value in (set_to or {}).items()]
        + [OpData(key=key, value=0, remove=True) for key in removed or []],
    )


def alter_quotas(acting: Acting, *entries: EntryData, validate_only: bool = False) -> list[str]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = acting.ask(lambda c, now: c.alter_client_quotas(request, now))
    return [ErrorCode(result.error_code).name for result in answer.entries]


def test_quotas_are_set_changed_and_removed() -> None:
    acting = Acting()
    alice = {"user": "alice", "client-id": None}
    rates = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert alter_quotas(acting, quota(alice, rates), validate_only=True) == ["NONE"]
    assert len(acting.image.client_quotas) == 0
    assert alter_quotas(acting, quota(alice, rates), quota({"ip": "10.0.0.1"}, {"connection_creation_rate": 5})) == [
        "NONE",
        "NONE",
    ]
    assert acting.image.client_quotas[entity_of(alice)] == rates
    before = len(acting.log)
    assert alter_quotas(acting, quota(alice, rates), quota({"user": None}, removed=["producer_byte_rate"])) == [
        "NONE",
        "NONE",
    ]
    assert len(acting.log) == before, "what is so already, and what is not there, is no news"
    assert alter_quotas(acting, quota(alice, {"producer_byte_rate": 7.0}, removed=["request_percentage"])) == ["NONE"]
    assert acting.image.client_quotas[entity_of(alice)] == {"producer_byte_rate": 7.0}
    assert alter_quotas(acting, quota(alice, removed=["producer_byte_rate"])) == ["NONE"]
    assert entity_of(alice) not in acting.image.client_quotas


@pytest.mark.parametrize(
    "wrong",
    [
        quota({}, {"producer_byte_rate": 1}),
        quota({"group": "x"}, {"producer_byte_rate": 1}),
        quota({"user": ""}, {"producer_byte_rate": 1}),
        quota({"user": "x", "ip": "10.0.0.1"}, {"connection_creation_rate": 1}),
        quota({"ip": "10.0.0.1.5"}, {"connection_creation_rate": 1}),
        quota({"ip": "not a host"}, {"connection_creation_rate": 1}),
        quota({"ip": "10.0.0.1"}, {"producer_byte_rate": 1}),
        quota({"user": "x"}, {"connection_creation_rate": 1}),
        quota({"user": "x"}, {"SCRAM-SHA-256": 1}),
        quota({"user": "x"}, {"no_such_rate": 1}),
        quota({"user": "x"}, {"producer_byte_rate": 0}),
        quota({"user": "x"}, {"producer_byte_rate": -1}),
        quota({"user": "x"}, {"producer_byte_rate": 1.5}),
        quota({"user": "x"}, {"producer_byte_rate": 1e30}),
        quota({"user": "x"}, {"producer_byte_rate": float("inf")}),
        quota({"user": "x"}, {"request_percentage": float("nan")}),
        quota({"ip": "10.0.0.1"}, {"connection_creation_rate": float(1 << 31)}),
        quota({"user": "x"}, {"producer_byte_rate": 1}, removed=["producer_byte_rate"]),
    ],
)
def test_quotas_that_cannot_be(wrong: EntryData) -> None:
    acting = Acting()
    assert alter_quotas(acting, wrong, quota({"user": "right"}, {"consumer_byte_rate": 1})) == [
        "INVALID_REQUEST",
        "NONE",
    ]
    assert len(acting.image.client_quotas) == 1


def test_an_entity_is_named_once_a_request() -> None:
    acting = Acting()
    first, second = quota({"user": "x"}, {"producer_byte_rate": 1}), quota({"user": "x"}, {"consumer_byte_rate": 1})
    assert alter_quotas(acting, first, second) == ["NONE", "INVALID_REQUEST"]
    doubled = EntryData(entity=[EntityData(entity_type="user", entity_name=n) for n in ("a", "b")], ops=[])
    assert alter_quotas(acting, doubled) == ["INVALID_REQUEST"]


@pytest.mark.parametrize("address", ["::1", "fe80::1", "127.0.0.1", "localhost", "host-7.example.com", None])
def test_addresses_may_be_names(address: str | None) -> None:
    assert alter_quotas(Acting(), quota({"ip": address}, {"connection_creation_rate": 3})) == ["NONE"]
