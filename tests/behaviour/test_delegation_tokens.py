"""Delegation tokens: made by somebody with a name, shown in place of a password, renewed, and taken back."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.runtime.system import free_ports
from ottla.security.plain import PlainClient
from ottla.security.sasl import ClientMechanism, Derive
from ottla.security.scram import ScramClient, salted_password
from ottla.wire.messages import create_delegation_token_request as create
from ottla.wire.messages import describe_delegation_token_request as describe
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribeDelegationTokenResponse,
)
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.behaviour.conftest import StartNode
from tests.wire_client import WireClient

Address = tuple[str, int]

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "user_admin=admin-secret user_ann=ann-secret user_bob=bob-secret user_eve=eve-secret;"
)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
DAY_MS = 86_400_000
UNKNOWN = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


@pytest.fixture(scope="module")
def addresses(start_node: StartNode) -> dict[str, Address]:
    open_port, sasl_port, controller_port = free_ports("127.0.0.1", 3)
    start_node(
        {
            "listeners": f"OPEN://127.0.0.1:{open_port},SASL://127.0.0.1:{sasl_port},"
            f"CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "inter.broker.listener.name": "OPEN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": JAAS,
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
            "delegation.token.secret.key": "the nodes' own secret",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }
    )
    return {"open": ("127.0.0.1", open_port), "sasl": ("127.0.0.1", sasl_port)}


def show(client: WireClient, token: bytes) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)


def log_in(client: WireClient, mechanism: ClientMechanism) -> SaslAuthenticateResponse:
    assert client.call(SaslHandshakeRequest(mechanism=mechanism.name), SaslHandshakeResponse).error_code == 0
    answer = show(client, mechanism.first())
    if mechanism.name == "PLAIN" or answer.error_code:
        return answer
    derive = mechanism.on_challenge(answer.auth_bytes)
    assert isinstance(derive, Derive)
    key = salted_password(derive.password, derive.salt, derive.iterations, derive.algorithm)
    return show(client, mechanism.on_derived(key))


@pytest.fixture
def ann(addresses: dict[str, Address]) -> Iterator[WireClient]:
    with WireClient(addresses["sasl"]) as client:
        assert log_in(client, PlainClient("ann", "ann-secret")).error_code == 0
        yield client


def new_token(
    client: WireClient, *renewers: str, lifetime_ms: int = -1, owner: str | None = None, kind: str = "User"
) -> CreateDelegationTokenResponse:
    request = create.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[create.CreatableRenewers(kind, name) for name in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    return client.call(request, CreateDelegationTokenResponse)


def tokens(client: WireClient, *owners: str) -> list[DescribedDelegationToken]:
    named = [describe.DescribeDelegationTokenOwner("User", owner) for owner in owners] if owners else None
    answer = client.call(describe.DescribeDelegationTokenRequest(owners=named), DescribeDelegationTokenResponse)
    assert answer.error_code == 0
    return answer.tokens


def by_token(
    token: CreateDelegationTokenResponse, mechanism: str = "SCRAM-SHA-256", secret: bytes | None = None
) -> ScramClient:
    password = b64encode(token.hmac if secret is None else secret).decode()
    return ScramClient(mechanism, token.token_id, password, nonce=NONCE, extensions=",tokenauth=true")


def log_in_by_token(
    address: Address, token: CreateDelegationTokenResponse, mechanism: str
) -> tuple[WireClient, SaslAuthenticateResponse]:
    """A moment after it was made a node may not know it yet."""
    until = time.monotonic() + 60
    while True:
        client = WireClient(address)
        answer = log_in(client, by_token(token, mechanism))
        if answer.error_code == 0 or time.monotonic() > until:
            return client, answer
        client.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_its_holder_in_as_its_owner(
    addresses: dict[str, Address], ann: WireClient, mechanism: str
) -> None:
    token = new_token(ann, "bob")
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "ann")
    assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
    assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
    assert len(token.hmac) == 64
    holder, answer = log_in_by_token(addresses["sasl"], token, mechanism)
    with holder:
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= DAY_MS
        assert holder.call(MetadataRequest(topics=None), MetadataResponse).brokers
        # Whoever came by a token gets no other.
        for refused in (
            new_token(holder),
            holder.call(RenewDelegationTokenRequest(hmac=token.hmac), RenewDelegationTokenResponse),
            holder.call(ExpireDelegationTokenRequest(hmac=token.hmac), ExpireDelegationTokenResponse),
            holder.call(describe.DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse),
        ):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_is_no_password_and_its_secret_no_guess(addresses: dict[str, Address], ann: WireClient) -> None:
    token = new_token(ann)
    log_in_by_token(addresses["sasl"], token, "SCRAM-SHA-256")[0].close()
    with WireClient(addresses["sasl"]) as client:
        assert log_in(client, by_token(token, secret=b"x" * 64)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with WireClient(addresses["sasl"]) as client:
        plain = ScramClient("SCRAM-SHA-256", token.token_id, b64encode(token.hmac).decode(), nonce=NONCE)
        assert log_in(client, plain).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_is_renewed_and_taken_back_by_those_who_may(addresses: dict[str, Address], ann: WireClient) -> None:
    token = new_token(ann, "bob", lifetime_ms=2 * DAY_MS)
    assert token.max_timestamp_ms == token.issue_timestamp_ms + 2 * DAY_MS
    with WireClient(addresses["sasl"]) as bob, WireClient(addresses["sasl"]) as eve:
        log_in(bob, PlainClient("bob", "bob-secret"))
        log_in(eve, PlainClient("eve", "eve-secret"))

        def renew(client: WireClient, period_ms: int, secret: bytes = token.hmac) -> RenewDelegationTokenResponse:
            request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
            return client.call(request, RenewDelegationTokenResponse)

        def expire(client: WireClient, period_ms: int) -> ExpireDelegationTokenResponse:
            request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
            return client.call(request, ExpireDelegationTokenResponse)

        log_in_by_token(addresses["sasl"], token, "SCRAM-SHA-256")[0].close()  # Then it is known.
        assert token.issue_timestamp_ms + 1_000 <= renew(bob, 3_600_000).expiry_timestamp_ms < token.expiry_timestamp_ms
        assert renew(bob, 99 * DAY_MS).expiry_timestamp_ms <= token.max_timestamp_ms
        for refused in (renew(eve, 1_000), expire(eve, -1)):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            assert refused.expiry_timestamp_ms == 0
        assert renew(bob, 1_000, b"x" * 64).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert expire(bob, 0).error_code == 0
        time.sleep(0.01)  # It has ended when the millisecond is over; who renews it within that gives it life.
        until = time.monotonic() + 60
        while renew(bob, 1_000).error_code != ErrorCode.DELEGATION_TOKEN_EXPIRED:
            assert expire(bob, 0).error_code in (0, ErrorCode.DELEGATION_TOKEN_EXPIRED)
            time.sleep(0.01)
            assert time.monotonic() < until
        assert expire(bob, 60_000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert expire(bob, -1).error_code == 0
        until = time.monotonic() + 60
        while expire(bob, -1).error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            assert time.monotonic() < until


def test_tokens_are_shown_to_those_whom_they_concern(addresses: dict[str, Address], ann: WireClient) -> None:
    token = new_token(ann, "bob")
    until = time.monotonic() + 60
    while not (mine := [each for each in tokens(ann) if each.token_id == token.token_id]):
        assert time.monotonic() < until
    (shown,) = mine
    assert (shown.hmac, shown.principal_name) == (token.hmac, "ann")
    assert shown.expiry_timestamp == token.expiry_timestamp_ms
    assert [(renewer.principal_type, renewer.principal_name) for renewer in shown.renewers] == [("User", "bob")]
    assert token.token_id in {each.token_id for each in tokens(ann, "bob")}  # Who may renew it counts as well.
    assert tokens(ann, "eve") == []
    of_nobody = describe.DescribeDelegationTokenRequest(owners=[])
    assert ann.call(of_nobody, DescribeDelegationTokenResponse).tokens == []
    for user, sees in (("bob", True), ("eve", False), ("admin", True)):
        with WireClient(addresses["sasl"]) as client:
            log_in(client, PlainClient(user, f"{user}-secret"))
            assert any(each.token_id == token.token_id for each in tokens(client, "ann")) == sees


def test_tokens_for_others_need_a_right(addresses: dict[str, Address], ann: WireClient) -> None:
    assert new_token(ann, owner="bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    with WireClient(addresses["sasl"]) as admin:
        log_in(admin, PlainClient("admin", "admin-secret"))
        token = new_token(admin, owner="bob")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "admin")
        # It is the owner's from then on.
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
        until = time.monotonic() + 60
        while (code := admin.call(request, RenewDelegationTokenResponse).error_code) == UNKNOWN:
            assert time.monotonic() < until
        assert code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_renewers_are_users(ann: WireClient) -> None:
    assert new_token(ann, "staff", kind="Group").error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_nobody_without_a_name_gets_a_token(addresses: dict[str, Address]) -> None:
    with WireClient(addresses["open"]) as client:
        refused = new_token(client)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (refused.principal_name, refused.hmac, refused.expiry_timestamp_ms) == ("ANONYMOUS", b"", -1)
