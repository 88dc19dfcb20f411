"""A token from the client's side: shown, found in an answer, and renewed in time."""

from __future__ import annotations

import json

import pytest

from ottla.security.oauth import OauthServer, TokenRules, read_keys
from ottla.security.oauth_login import BearerClient, Renewal, read_answer, read_token
from ottla.security.sasl import Authenticated, AuthenticationFailed, Challenge
from tests.tokens import Provider, packed

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider(now=lambda: NOW_MS / 1000)


def signed(claims: bytes) -> str:
    return f"e.{packed(claims)}.s"


def server(provider: Provider) -> OauthServer:
    keys = read_keys(provider.document())
    return OauthServer(TokenRules(), lambda: keys, lambda: None)


def test_what_a_client_shows_a_server_takes(provider: Provider) -> None:
    client = BearerClient(provider.token(), {"traceId": "17"})
    assert client.first().endswith(b"\x01traceId=17\x01\x01")
    outcome = server(provider).evaluate(client.first(), NOW_MS)
    assert isinstance(outcome, Authenticated)
    assert (outcome.user, outcome.expires_ms) == ("ann", NOW_MS + HOUR_MS)
    client.on_challenge(outcome.token)


def test_a_refusal_is_heard(provider: Provider) -> None:
    client = BearerClient(Provider(now=lambda: NOW_MS / 1000).token())
    outcome = server(provider).evaluate(client.first(), NOW_MS)
    assert isinstance(outcome, Challenge)
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.on_challenge(outcome.token)


def test_a_token_is_read_with_its_end(provider: Provider) -> None:
    token = provider.token()
    assert read_token(f" {token}\n").text == token
    assert read_token(token).expires_ms == NOW_MS + HOUR_MS
    assert read_answer(json.dumps({"access_token": token}).encode()).text == token
    assert read_answer(json.dumps({"access_token": " ", "id_token": token}).encode()).text == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a token",
        "a.b",
        "a.b.c",
        signed(b"[]"),
        signed(b"{}"),
        signed(b'{"exp": true}'),
        signed(b'{"exp": 1}') + "\x01auth=Bearer x",
        "x" * 40_000,
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="token") as refused:
        read_token(text)
    assert len(str(refused.value)) < 80


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": "a b"}', b"\xff"])
def test_an_answer_without_a_token_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|token"):
        read_answer(document)


@pytest.mark.parametrize(
    ("life_ms", "chance", "delay_ms"),
    [
        (HOUR_MS, 0.0, 2_880_000),
        (HOUR_MS, 1.0, 3_060_000),
        # Five minutes before its end at the latest.
        (600_000, 1.0, 300_000),
        # A minute after it was issued at the earliest; and where there is no room for both, as if neither were asked.
        (370_000, 0.0, 70_000),
        (100_000, 0.0, 80_000),
        (0, 0.5, 0),
        (-5, 0.5, 0),
    ],
)
def test_a_token_is_renewed_when_kafka_would(life_ms: int, chance: float, delay_ms: int) -> None:
    assert Renewal().delay_ms(NOW_MS, NOW_MS + life_ms, chance) == delay_ms
