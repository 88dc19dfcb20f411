"""OAUTHBEARER: the tokens that count, and all those that do not."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.oauth import Keys, OauthServer, TokenRules, UnknownKey, read_keys, verified
from ottla.security.sasl import Authenticated, AuthenticationFailed, Challenge
from tests.tokens import Provider, packed

NOW_MS = 1_800_000_000_000


def now() -> float:
    return NOW_MS / 1000


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider(now)


@pytest.fixture(scope="module")
def keys(provider: Provider) -> Keys:
    return read_keys(provider.document())


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"])
def test_a_token_with_a_right_signature_counts(provider: Provider, keys: Keys, algorithm: str) -> None:
    user, expires_ms = verified(provider.token(algorithm), TokenRules(), keys, NOW_MS)
    assert user == "ann"
    assert expires_ms > NOW_MS


@pytest.mark.parametrize(
    ("rules", "claims"),
    [
        (TokenRules(issuer="us"), {"iss": "us"}),
        (TokenRules(audiences=("here", "there")), {"aud": "there"}),
        (TokenRules(audiences=("here",)), {"aud": ["elsewhere", "here"]}),
        (TokenRules(), {"exp": NOW_MS // 1000 - 20}),  # Clocks differ.
        (TokenRules(), {"nbf": NOW_MS // 1000 + 20}),
        (TokenRules(subject_claim="user"), {"sub": None, "user": "ann"}),
        (TokenRules(), {"scope": "read write"}),
    ],
)
def test_a_token_that_says_what_it_should_counts(
    provider: Provider, keys: Keys, rules: TokenRules, claims: dict[str, Any]
) -> None:
    assert verified(provider.token(**claims), rules, keys, NOW_MS)[0] == "ann"


@pytest.mark.parametrize(
    ("rules", "claims", "reason"),
    [
        (TokenRules(issuer="us"), {}, "issuer"),
        (TokenRules(issuer="us"), {"iss": "them"}, "issuer"),
        (TokenRules(audiences=("here",)), {}, "audience"),
        (TokenRules(audiences=("here",)), {"aud": "elsewhere"}, "audience"),
        (TokenRules(audiences=("here",)), {"aud": [["here"], None]}, "audience"),
        (TokenRules(), {"aud": "elsewhere"}, "audience"),
        (TokenRules(), {"aud": []}, "audience"),
        (TokenRules(), {"iat": None}, "when it was issued"),
        (TokenRules(), {"exp": NOW_MS // 1000 - 100}, "expired"),
        (TokenRules(), {"exp": None}, "does not say when"),
        (TokenRules(), {"exp": "tomorrow"}, "does not say when"),
        (TokenRules(), {"exp": True}, "does not say when"),
        (TokenRules(), {"exp": 1 << 60}, "does not say when"),
        (TokenRules(), {"nbf": NOW_MS // 1000 + 100}, "not valid yet"),
        (TokenRules(), {"iat": NOW_MS // 1000 + 100}, "not valid yet"),
        (TokenRules(), {"sub": None}, "no subject"),
        (TokenRules(), {"sub": " "}, "no subject"),
        (TokenRules(), {"sub": 7}, "no subject"),
        (TokenRules(), {"scope": 7}, "scope"),
    ],
)
def test_a_token_that_says_something_else_does_not(
    provider: Provider, keys: Keys, rules: TokenRules, claims: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        verified(provider.token(**claims), rules, keys, NOW_MS)


def test_nobody_signs_in_anothers_name(provider: Provider, keys: Keys) -> None:
    head, claims, signature = provider.token().split(".")
    for forged in (
        f"{head}.{packed(json.dumps({'sub': 'admin', 'exp': NOW_MS // 1000 + 60}).encode())}.{signature}",
        f"{head}.{claims}.",
        f"{head}.{claims}.{signature[:-4]}AAAA",
        Provider(now).token(),
        Provider(now).token("ES256"),
    ):
        with pytest.raises(AuthenticationFailed, match="signature"):
            verified(forged, TokenRules(), keys, NOW_MS)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS1", "ES256", "", None, 7])
def test_the_token_does_not_choose_how_it_is_checked(provider: Provider, keys: Keys, algorithm: object) -> None:
    """No signature at all, or the public key as if it were a secret that both know."""
    with pytest.raises(AuthenticationFailed, match="algorithm"):
        verified(provider.token(head={"alg": algorithm}), TokenRules(), keys, NOW_MS)
    secret = provider.document()
    signed = ".".join(packed(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "rsa"}, {"sub": "admin"}))
    forged = f"{signed}.{packed(hmac.digest(secret, signed.encode(), 'sha256'))}"
    with pytest.raises(AuthenticationFailed, match="algorithm"):
        verified(forged, TokenRules(), keys, NOW_MS)


def test_a_key_that_is_not_known_is_no_key(provider: Provider, keys: Keys) -> None:
    for head in ({"kid": "new"}, {"kid": "secret"}, {"kid": None}, {"kid": 7}):
        with pytest.raises(UnknownKey):
            verified(provider.token(head=head), TokenRules(), keys, NOW_MS)
    with pytest.raises(UnknownKey):
        verified(provider.token(), TokenRules(), {}, NOW_MS)
    only = {"": keys["rsa"]}
    assert verified(provider.token(head={"kid": None}), TokenRules(), only, NOW_MS)[0] == "ann"


@given(st.text(max_size=60) | st.text(alphabet="aeW0_-.", max_size=60))
@settings(derandomize=True, max_examples=300)
def test_text_of_any_kind_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationFailed):
        verified(text, TokenRules(), {}, NOW_MS)


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": 7}', b'{"keys": [{"kty": "RSA"}]}', b"[" * 100_000]
)
def test_a_document_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError):
        read_keys(document)


# The exchange.


def exchange(keys: Keys, first: bytes) -> tuple[OauthServer, Challenge | Authenticated, list[str]]:
    noticed: list[str] = []
    server = OauthServer(TokenRules(), lambda: keys, lambda: noticed.append("unknown key"))
    return server, server.evaluate(first, NOW_MS), noticed


@pytest.mark.parametrize("opening", ["n,,", "n,a=ann,"])
def test_a_good_token_lets_in(provider: Provider, keys: Keys, opening: str) -> None:
    _, outcome, _ = exchange(keys, f"{opening}\1auth=Bearer {provider.token()}\1\1".encode())
    assert isinstance(outcome, Authenticated)
    assert (outcome.user, outcome.token) == ("ann", b"")
    assert outcome.expires_ms is not None


def test_a_bad_token_is_refused_in_two_steps(provider: Provider, keys: Keys) -> None:
    server, outcome, noticed = exchange(keys, f"n,,\1auth=Bearer {provider.token(exp=1)}\1\1".encode())
    assert outcome == Challenge(token=b'{"status":"invalid_token"}')
    assert noticed == []
    with pytest.raises(AuthenticationFailed):
        server.evaluate(b"\1", NOW_MS)
    _, _, noticed = exchange(keys, f"n,,\1auth=Bearer {provider.token(head={'kid': 'new'})}\1\1".encode())
    assert noticed == ["unknown key"]


@pytest.mark.parametrize(
    "first", [b"", b"n,,", b"n,,\1\1", b"n,,\1auth=Basic abc\1\1", b"y,,\1auth=Bearer a.b.c\1\1", b"\xff"]
)
def test_a_message_that_is_none_is_refused(keys: Keys, first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange(keys, first)


def test_nobody_speaks_for_somebody_else(provider: Provider, keys: Keys) -> None:
    with pytest.raises(AuthenticationFailed, match="different from the token's principal name"):
        exchange(keys, f"n,a=bob,\1auth=Bearer {provider.token()}\1\1".encode())
