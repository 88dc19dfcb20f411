"""Authentication, request by request: which step is due, what a refusal looks like, and who one is afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import pack

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.runtime.system import free_ports
from ottla.security.plain import PlainClient
from ottla.security.sasl import Derive
from ottla.security.scram import ScramClient, salted_password
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.behaviour.conftest import StartNode
from tests.wire_client import WireClient

Address = tuple[str, int]

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_ann="ann-secret" user_bob="bob-secret";'
)
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
REAUTH_MS = 60_000
SOON_MS = 2_000
DELAY_MS = 200
INVALID_CREDENTIALS = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
WRONG_PASSWORD = "Authentication failed: Invalid username or password"


@pytest.fixture(scope="module")
def addresses(start_node: StartNode) -> dict[str, Address]:
    """A listener that asks for a name, one that asks again and again, and one that asks for nothing."""
    open_port, sasl_port, again_port, soon_port, controller_port = free_ports("127.0.0.1", 5)
    settings = {
        "listeners": f"OPEN://127.0.0.1:{open_port},SASL://127.0.0.1:{sasl_port},AGAIN://127.0.0.1:{again_port},"
        f"SOON://127.0.0.1:{soon_port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL:SASL_PLAINTEXT,AGAIN:SASL_PLAINTEXT,SOON:SASL_PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.again.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.soon.plain.connections.max.reauth.ms": str(SOON_MS),
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    for listener in ("sasl", "again", "soon"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = JAAS
        for mechanism in MECHANISMS[1:]:
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = SCRAM_JAAS
    start_node(settings)
    ports = {"open": open_port, "sasl": sasl_port, "again": again_port, "soon": soon_port}
    return {name: ("127.0.0.1", port) for name, port in ports.items()}


@pytest.fixture
def stranger(addresses: dict[str, Address]) -> Iterator[WireClient]:
    with WireClient(addresses["sasl"]) as client:
        yield client


def hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def shake_hands(client: WireClient, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    return client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


def show(client: WireClient, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)


def log_in(client: WireClient, user: str = "ann", password: str = "ann-secret") -> SaslAuthenticateResponse:
    assert shake_hands(client).error_code == 0
    return show(client, PlainClient(user, password).first())


def is_served(client: WireClient) -> bool:
    return bool(client.call(MetadataRequest(topics=None), MetadataResponse).brokers)


@pytest.mark.parametrize("version", range(3))
def test_a_client_that_proves_who_it_is_is_served(stranger: WireClient, version: int) -> None:
    offered = stranger.call(hello(), ApiVersionsResponse)
    assert {17, 18, 36} <= {api.api_key for api in offered.api_keys}
    handshake = shake_hands(stranger)
    assert (handshake.error_code, sorted(handshake.mechanisms)) == (0, MECHANISMS)
    shown = show(stranger, b"\0ann\0ann-secret", version)
    assert (shown.error_code, shown.auth_bytes, shown.session_lifetime_ms) == (0, b"", 0)
    assert is_served(stranger)


def test_the_greeting_may_be_left_out(stranger: WireClient) -> None:
    assert log_in(stranger).error_code == 0
    assert is_served(stranger)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
@pytest.mark.parametrize(("user", "password", "ok"), [("sue", "s", True), ("sue", "wrong", False), ("no", "s", False)])
def test_scram_proves_both_sides(
    addresses: dict[str, Address], mechanism: str, user: str, password: str, ok: bool
) -> None:
    algorithm = "sha256" if mechanism.endswith("256") else "sha512"
    salted = salted_password("s", b"salt" * 6, 4096, algorithm)
    number = MECHANISMS.index(mechanism)
    with WireClient(addresses["open"]) as admin:
        made = admin.call(
            AlterUserScramCredentialsRequest(
                upsertions=[ScramCredentialUpsertion("sue", number, 4096, b"salt" * 6, salted)]
            ),
            AlterUserScramCredentialsResponse,
        )
        assert [result.error_code for result in made.results] == [0]
    with WireClient(addresses["sasl"]) as client:
        scram = ScramClient(mechanism, user, password, nonce="fyko+d2lbbFgONRv9qkxdawL")
        assert shake_hands(client, mechanism).error_code == 0
        asked = show(client, scram.first())
        if asked.error_code == 0:
            derive = scram.on_challenge(asked.auth_bytes)
            assert isinstance(derive, Derive)
            final = scram.on_derived(salted_password(password, derive.salt, derive.iterations, algorithm))
            asked = show(client, final)
        else:
            assert user == "no"  # Apache Kafka says at once that it does not know her.
        if ok:
            assert asked.error_code == 0
            assert scram.on_challenge(asked.auth_bytes) is None
            assert is_served(client)
        else:
            assert asked.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert asked.error_message == f"{INVALID_CREDENTIALS} {mechanism}"
            assert client.is_hung_up()


# Refusals.


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0ann\0wrong", WRONG_PASSWORD),
        (b"\0nobody\0ann-secret", WRONG_PASSWORD),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (
            b"bob\0ann\0ann-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"nonsense", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_a_refusal_comes_late_and_is_the_end(stranger: WireClient, token: bytes, told: str) -> None:
    shake_hands(stranger)
    began = time.monotonic()
    refused = show(stranger, token)
    assert (refused.error_code, refused.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, told)
    assert stranger.is_hung_up()
    assert time.monotonic() - began >= DELAY_MS / 1000


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(stranger: WireClient) -> None:
    refused = shake_hands(stranger, "GSSAPI")
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sorted(refused.mechanisms) == MECHANISMS
    assert stranger.is_hung_up()


def test_nothing_else_is_served_before(stranger: WireClient) -> None:
    stranger.send(MetadataRequest(topics=None), 12)
    assert stranger.is_hung_up()


def test_the_token_does_not_come_before_the_handshake(stranger: WireClient) -> None:
    stranger.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-secret"), 2)
    assert stranger.is_hung_up()


def test_the_greeting_is_served_once(stranger: WireClient) -> None:
    stranger.call(hello(), ApiVersionsResponse)
    stranger.send(hello(), 3)
    assert stranger.is_hung_up()


def test_a_greeting_of_the_future_is_told_how_far_to_step_down(stranger: WireClient) -> None:
    frame = pack(">hhih", 18, 99, 7, -1) + b"\0"
    stranger.send_raw(pack(">i", len(frame)) + frame)
    assert stranger.receive_correlation_id() == 7
    assert stranger.call(hello(), ApiVersionsResponse).error_code == 0
    assert log_in(stranger).error_code == 0


def test_a_request_in_place_of_the_token_is_refused_in_its_own_form(stranger: WireClient) -> None:
    shake_hands(stranger)
    answer = stranger.call(DescribeClusterRequest(), DescribeClusterResponse, 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert stranger.is_hung_up()


def test_a_message_that_is_too_large_is_not_read(stranger: WireClient) -> None:
    stranger.send_raw(pack(">i", 524_289) + b"\0\x11\0\1")
    assert stranger.is_hung_up()


def test_bytes_that_are_no_request_are_the_end(stranger: WireClient) -> None:
    stranger.send_raw(pack(">i", 20) + b"\x7f" * 20)
    assert stranger.is_hung_up()


# Clients from before KIP-152.


def raw(client: WireClient, token: bytes) -> None:
    client.send_raw(pack(">i", len(token)) + token)


def test_an_old_client_sends_its_token_without_a_header(stranger: WireClient) -> None:
    assert shake_hands(stranger, version=0).error_code == 0
    raw(stranger, b"\0ann\0ann-secret")
    assert stranger.receive_frame() == b""
    assert is_served(stranger)


def test_an_old_client_that_fails_hears_nothing(stranger: WireClient) -> None:
    shake_hands(stranger, version=0)
    raw(stranger, b"\0a\0b")
    assert stranger.is_hung_up()


# Afterwards.


def test_requests_may_follow_before_the_answer_has_come(stranger: WireClient) -> None:
    shake_hands(stranger)
    first = stranger.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-secret"), 2)
    second = stranger.send(MetadataRequest(topics=None), 12)
    assert stranger.receive(SaslAuthenticateResponse, 2, first).error_code == 0
    assert stranger.receive(MetadataResponse, 12, second).brokers


def test_whoever_is_in_need_not_ask_again(stranger: WireClient) -> None:
    log_in(stranger)
    assert shake_hands(stranger).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = show(stranger, b"\0ann\0ann-secret")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert is_served(stranger)


def test_where_nobody_is_asked_there_is_nothing_to_answer(addresses: dict[str, Address]) -> None:
    with WireClient(addresses["open"]) as client:
        assert shake_hands(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert show(client, b"\0ann\0ann-secret").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert is_served(client)


@pytest.mark.parametrize(("user", "may"), [("admin", True), ("ann", False)])
def test_rights_are_those_of_whoever_logged_in(stranger: WireClient, user: str, may: bool) -> None:
    log_in(stranger, user, f"{user}-secret")
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    operations = stranger.call(request, DescribeClusterResponse).cluster_authorized_operations
    assert bool(operations & 1 << Operation.ALTER) == may


# Sessions that end (KIP-368).


def test_a_session_has_an_end_and_can_be_renewed(addresses: dict[str, Address]) -> None:
    with WireClient(addresses["again"]) as client:
        assert log_in(client).session_lifetime_ms == REAUTH_MS
        renewed = log_in(client)
        assert (renewed.error_code, renewed.session_lifetime_ms) == (0, REAUTH_MS)
        assert is_served(client)


def test_a_session_that_has_ended_lets_only_a_new_handshake_through(addresses: dict[str, Address]) -> None:
    with WireClient(addresses["soon"]) as late, WireClient(addresses["soon"]) as silent:
        log_in(late)
        log_in(silent)
        time.sleep(SOON_MS / 1000 + 0.1)
        assert log_in(late).error_code == 0
        silent.send(MetadataRequest(topics=None), 12)
        assert silent.is_hung_up()


def test_nobody_becomes_somebody_else_on_the_way(addresses: dict[str, Address]) -> None:
    with WireClient(addresses["again"]) as client:
        log_in(client)
        refused = log_in(client, "bob", "bob-secret")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message is not None
        assert refused.error_message.startswith("Cannot change principals during re-authentication from User.ann")
        assert client.is_hung_up()


def test_the_mechanism_stays_too(addresses: dict[str, Address], on_apache: bool) -> None:
    with WireClient(addresses["again"]) as client:
        log_in(client)
        assert shake_hands(client, "SCRAM-SHA-256").error_code == 0
        if on_apache:  # It means to refuse in words, and hangs up.
            client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=x"), 2)
            assert client.is_hung_up()
            return
        refused = show(client, b"n,,n=ann,r=x")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message == (
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism "
            "'PLAIN'"
        )
        assert client.is_hung_up()
