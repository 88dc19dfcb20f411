"""SASL PLAIN: who gets in, and what the others are told."""

from __future__ import annotations

import pytest

from ottla.security.plain import PlainClient, PlainServer
from ottla.security.sasl import Authenticated, AuthenticationFailed

WRONG = "Authentication failed: Invalid username or password"


def server() -> PlainServer:
    return PlainServer({"ann": "secret", "bob": "ünïcode"})


@pytest.mark.parametrize(("user", "password"), [("ann", "secret"), ("bob", "ünïcode")])
def test_the_right_password_lets_in(user: str, password: str) -> None:
    assert server().evaluate(PlainClient(user, password).first(), 0) == Authenticated(user=user)


def test_a_name_to_act_for_may_be_ones_own() -> None:
    assert server().evaluate(b"ann\0ann\0secret", 0).user == "ann"


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0ann\0wrong", WRONG),
        (b"\0nobody\0secret", WRONG),
        (b"\0nobody\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (
            b"bob\0ann\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"ann\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0ann\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0ann\0\xff", None),
    ],
)
def test_all_others_stay_out(token: bytes, told: str | None) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        server().evaluate(token, 0)
    assert refused.value.message == told
