"""Which tokens count: OAUTHBEARER with the keys of an identity provider, token by token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.acls import Operation
from ottla.runtime.system import free_ports
from ottla.security.oauth_login import BearerClient
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.behaviour.conftest import StartNode
from tests.tokens import Provider
from tests.wire_client import WireClient

_BEARER = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
AUDIENCE, ISSUER = "ours", "us"


class Site(NamedTuple):
    provider: Provider
    ports: dict[str, int]


@pytest.fixture(scope="module")
def site(start_node: StartNode, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A listener that expects no audience and no issuer, one that expects one of each, and one whose mechanism does."""
    provider = Provider()
    keys: Path = tmp_path_factory.mktemp("provider") / "keys.json"
    keys.write_bytes(provider.document())
    names = ("any", "strict", "stricter")
    open_port, controller_port, *ports = free_ports("127.0.0.1", 5)
    listeners = {"OPEN": open_port, **{name.upper(): port for name, port in zip(names, ports, strict=True)}}
    settings = {
        "listeners": ",".join(
            f"{name}://127.0.0.1:{port}" for name, port in {**listeners, "CONTROLLER": controller_port}.items()
        ),
        "listener.security.protocol.map": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in names),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "OPEN",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
        "listener.name.strict.sasl.oauthbearer.expected.audience": f"{AUDIENCE},other",
        "listener.name.strict.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.stricter.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    }
    for name in names:
        prefix = f"listener.name.{name}.oauthbearer"
        settings[f"{prefix}.sasl.jaas.config"] = f"{_BEARER}.OAuthBearerLoginModule required;"
        settings[f"{prefix}.sasl.server.callback.handler.class"] = f"{_BEARER}.OAuthBearerValidatorCallbackHandler"
    start_node(settings, jvm=(f"{_ALLOWED}.urls=file://{keys}", f"{_ALLOWED}.files={keys}"))
    return Site(provider, {name: listeners[name.upper()] for name in names})


def show(client: WireClient, token: bytes) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)


def is_let_in(site: Site, listener: str, token: str) -> bool:
    """Whoever is not gets a word about it first, and the refusal when it has said that it heard."""
    with WireClient(("127.0.0.1", site.ports[listener])) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)
        answer = show(client, BearerClient(token, {}).first())
        assert answer.error_code == ErrorCode.NONE
        if answer.auth_bytes:
            assert show(client, b"\1").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_hung_up()
            return False
        described = DescribeClusterRequest(include_cluster_authorized_operations=True)
        operations = client.call(described, DescribeClusterResponse).cluster_authorized_operations
        assert operations & 1 << Operation.ALTER, "ann is who the token says"
        return True


HOUR_S = 3600


@pytest.mark.parametrize(
    ("listener", "claims", "counts"),
    [
        ("any", {}, True),
        ("any", {"iss": "whoever"}, True),
        ("any", {"scope": ["read", "write"]}, True),
        ("any", {"exp": -HOUR_S}, False),
        ("any", {"exp": None}, False),
        ("any", {"nbf": HOUR_S}, False),
        ("any", {"iat": None}, False),
        ("any", {"sub": None}, False),
        ("any", {"sub": " "}, False),
        # Somebody else's, who does not know that we listen.
        ("any", {"aud": "elsewhere"}, False),
        ("any", {"aud": ["elsewhere", "anywhere"]}, False),
        ("strict", {"aud": AUDIENCE, "iss": ISSUER}, True),
        ("strict", {"aud": ["elsewhere", "other"], "iss": ISSUER}, True),
        ("strict", {"aud": AUDIENCE}, False),
        ("strict", {"aud": AUDIENCE, "iss": "them"}, False),
        ("strict", {"iss": ISSUER}, False),
        ("strict", {"aud": "elsewhere", "iss": ISSUER}, False),
        ("stricter", {"iss": ISSUER}, True),
        ("stricter", {"iss": "them"}, False),
        ("stricter", {}, False),
    ],
)
def test_a_token_counts_by_what_it_claims(site: Site, listener: str, claims: dict[str, Any], counts: bool) -> None:
    now_s = int(time.time())
    made = {
        name: now_s + value if name in ("exp", "nbf") and value is not None else value for name, value in claims.items()
    }
    assert is_let_in(site, listener, site.provider.token(**made)) == counts


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "ES384"])
def test_a_token_counts_by_who_signed_it(site: Site, algorithm: str) -> None:
    assert is_let_in(site, "any", site.provider.token(algorithm))
    assert not is_let_in(site, "any", Provider().token(algorithm))


def test_a_token_without_a_signature_does_not_count(site: Site) -> None:
    head, claims, _ = site.provider.token(head={"alg": "none"}).split(".")
    assert not is_let_in(site, "any", f"{head}.{claims}.")
