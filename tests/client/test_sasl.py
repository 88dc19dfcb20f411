"""SASL from the client's side, by the examples of the RFCs."""

from __future__ import annotations

import pytest

from ottla.client.sasl import Credentials, sasl_client
from ottla.errors import ErrorCode, KafkaError

PENCIL = Credentials(mechanism="SCRAM-SHA-256", username="user", password="pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def a_token() -> str:
    return "header.claims.signature"


def test_the_example_of_rfc_7677() -> None:
    machine = sasl_client(PENCIL, NONCE)
    assert machine.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert machine.on_challenge(SERVER_FIRST) == CLIENT_FINAL
    assert machine.on_challenge(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def refused(*challenges: bytes, credentials: Credentials = PENCIL) -> str:
    machine = sasl_client(credentials, NONCE)
    machine.first()
    for challenge in challenges[:-1]:
        machine.on_challenge(challenge)
    with pytest.raises(KafkaError) as raised:
        machine.on_challenge(challenges[-1])
    assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    return str(raised.value)


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    assert "does not know the password" in refused(SERVER_FIRST, b"v=AAAA")


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"e=unknown-user", "refuses the credentials: unknown-user"),
        (SERVER_FIRST.replace(b"r=rOpr", b"r=else"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"1"), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"999999999"), "iterations"),
        (b"nonsense", "makes no sense"),
        (SERVER_FIRST.replace(b"W22", b"?"), "makes no sense"),
    ],
)
def test_a_server_that_misbehaves_is_refused(challenge: bytes, reason: str) -> None:
    assert reason in refused(challenge)


def test_names_are_escaped() -> None:
    odd = Credentials(mechanism="SCRAM-SHA-512", username="a=b,c", password="p", by_delegation_token=True)
    assert sasl_client(odd, "N").first() == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"


def test_plain() -> None:
    machine = sasl_client(Credentials(mechanism="PLAIN", username="u", password="pä"), NONCE)
    assert machine.first() == "\0u\0pä".encode()
    assert machine.on_challenge(b"") is None


def test_a_bearer_token_is_fetched_from_its_provider() -> None:
    bearer = Credentials(mechanism="OAUTHBEARER", token_provider=f"{__name__}:a_token")
    machine = sasl_client(bearer, NONCE)
    assert machine.first() == b"n,,\x01auth=Bearer header.claims.signature\x01\x01"
    assert machine.on_challenge(b"") is None
    assert "invalid_token" in refused(b'{"status":"invalid_token"}', credentials=bearer)


def test_a_provider_that_is_not_there_is_said() -> None:
    missing = Credentials(mechanism="OAUTHBEARER", token_provider="no.such:thing")
    with pytest.raises(KafkaError, match="name it as module:function"):
        sasl_client(missing, NONCE)
