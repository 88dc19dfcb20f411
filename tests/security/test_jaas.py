"""Login configurations, as administrators write them."""

from __future__ import annotations

import pytest

from ottla.security.jaas import BadLoginConfig, LoginModule, parse_login_module

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_module_has_options_and_users() -> None:
    module = parse_login_module(f'{PLAIN} required username="admin" password="a secret" user_ann="hers" user_bob=his;')
    assert module == LoginModule(
        PLAIN, {"username": "admin", "password": "a secret", "user_ann": "hers", "user_bob": "his"}
    )
    assert module.users == {"ann": "hers", "bob": "his"}


def test_values_may_hold_what_the_syntax_uses() -> None:
    module = parse_login_module(rf'{PLAIN} required password="a\"b\\c;d=e" other=";" ;')
    assert module.options == {"password": r'a"b\c;d=e', "other": ";"}


def test_lines_and_spaces_do_not_matter() -> None:
    assert parse_login_module(f"{PLAIN}\n  Required\n  a = b\n;\n").options == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin"),
        (";", "must begin"),
        (f"{PLAIN} sometimes;", "control flag"),
        (f'{PLAIN} required password="top secret"', "semicolon"),
        (f"{PLAIN} required password;", "key=value"),
        (f"{PLAIN} required password=;", "key=value"),
        (f"{PLAIN} required password= =;", "key=value"),
        (f'{PLAIN} required password="top secret;', "quotation mark"),
        (f"{PLAIN} required; {PLAIN} required;", "one login module"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_secret_with_it(text: str, reason: str) -> None:
    with pytest.raises(BadLoginConfig, match=reason) as refused:
        parse_login_module(text)
    assert "top secret" not in str(refused.value)
