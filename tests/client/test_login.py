"""Who a client is: the mechanism that its credentials ask for, and a bearer token from its provider."""

from __future__ import annotations

import pytest

from ottla.client.login import Credentials, login_of
from ottla.errors import KafkaError
from ottla.security.sasl import AuthenticationFailed

NONCE = "rOprNGfwEbeRWgbNEkqO"


def a_token() -> str:
    return "header.claims.signature"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_mechanism_has_its_machine(mechanism: str) -> None:
    machine = login_of(Credentials(mechanism=mechanism, username="u", password="p"), NONCE)
    assert machine.name == mechanism


def test_plain() -> None:
    machine = login_of(Credentials(mechanism="PLAIN", username="u", password="pä"), NONCE)
    assert machine.first() == "\0u\0pä".encode()
    assert machine.on_challenge(b"") is None


def test_a_delegation_token_is_said_to_be_one() -> None:
    odd = Credentials(mechanism="SCRAM-SHA-512", username="a=b,c", password="p", by_delegation_token=True)
    assert login_of(odd, "N").first() == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"


def test_a_bearer_token_is_fetched_from_its_provider() -> None:
    machine = login_of(Credentials(mechanism="OAUTHBEARER", token_provider=f"{__name__}:a_token"), NONCE)
    assert machine.first() == b"n,,\x01auth=Bearer header.claims.signature\x01\x01"
    assert machine.on_challenge(b"") is None
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        machine.on_challenge(b'{"status":"invalid_token"}')


def test_a_provider_that_is_not_there_is_said() -> None:
    missing = Credentials(mechanism="OAUTHBEARER", token_provider="no.such:thing")
    with pytest.raises(KafkaError, match="name it as module:function"):
        login_of(missing, NONCE)
