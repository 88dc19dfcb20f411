"""Names out of certificates, as Java writes them, and the rules that shorten them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.certificates import BadMappingRules, alternative_names, distinguished_name, parse_mapping_rules
from ottla.security.sasl import AuthenticationFailed
from tests.certificates import Authority, der


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=ann", "CN=ann"),
        ("/C=DE/ST=Berlin/L=Berlin/O=Ottla/OU=People/CN=ann", "CN=ann,OU=People,O=Ottla,L=Berlin,ST=Berlin,C=DE"),
        ("/DC=org/DC=ottla/UID=ann", "UID=ann,DC=ottla,DC=org"),
        ("/O=Ottla, Inc./CN=a;b", "CN=a\\;b,O=Ottla\\, Inc."),
        ("/CN= ann ", "CN=\\ ann\\ "),
        ("/CN=ä", "CN=ä"),
        ("/CN=ann+UID=7", "CN=ann+UID=7"),
        ("/CN=ann/emailAddress=a@b", "1.2.840.113549.1.9.1=#1603614062,CN=ann"),
    ],
)
def test_a_subject_is_named_as_java_names_it(authority: Authority, subject: str, name: str) -> None:
    issued = authority.issue("someone", subject=subject)
    assert distinguished_name(der(issued.certificate)) == name


@given(st.binary(max_size=200))
@settings(derandomize=True, max_examples=300)
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        distinguished_name(data)


def test_a_certificate_cut_anywhere_is_refused_or_named_alike(authority: Authority) -> None:
    whole = der(authority.issue("ann").certificate)
    for size in range(len(whole)):
        with pytest.raises(AuthenticationFailed):
            distinguished_name(whole[:size])
        with pytest.raises(AuthenticationFailed):
            alternative_names(whole[:size])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("DNS:localhost", {(0x82, b"localhost")}),
        ("DNS:a,DNS:b,IP:127.0.0.1", {(0x82, b"a"), (0x82, b"b"), (0x87, bytes((127, 0, 0, 1)))}),
        ("critical,email:a@b,URI:https://c", {(0x81, b"a@b"), (0x86, b"https://c")}),
    ],
)
def test_alternative_names_are_found(authority: Authority, names: str, found: set[tuple[int, bytes]]) -> None:
    assert alternative_names(der(authority.issue("someone", names=names).certificate)) == found
    assert alternative_names(der(authority.certificate)) == frozenset()


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=ann,O=Ottla", "CN=ann,O=Ottla"),
        ("RULE:^CN=([^,]+),O=Ottla$/$1/,DEFAULT", "CN=ann,O=Ottla", "ann"),
        ("RULE:^CN=([^,]+),O=Ottla$/$1/,DEFAULT", "CN=ann,O=Other", "CN=ann,O=Other"),
        ("RULE:CN=(.*?),.*/$1@here/U", "CN=ann,O=Ottla", "ANN@HERE"),
        (" RULE:CN=([A-Z]+).*/$1/L , DEFAULT", "CN=ANN", "ann"),
        ("RULE:^CN=(a)\\/(b)$/$2-$1/", "CN=a/b", "b-a"),
        # A rule is about the whole name: nobody gets in by having a part of it.
        ("RULE:CN=admin/admin/,DEFAULT", "CN=admin,O=Elsewhere", "CN=admin,O=Elsewhere"),
        ("RULE:CN=admin/admin/,DEFAULT", "O=x,CN=admin", "O=x,CN=admin"),
    ],
)
def test_rules_make_a_user_of_a_name(rules: str, subject: str, user: str) -> None:
    assert parse_mapping_rules(rules)(subject) == user


def test_a_name_that_no_rule_knows_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="no rule"):
        parse_mapping_rules("RULE:^CN=(.*),O=Ottla$/$1/")("CN=ann,O=Other")


@pytest.mark.parametrize("rules", ["RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "default", "RULE:a/b/X", "DEFAULT,,"])
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(BadMappingRules):
        parse_mapping_rules(rules)


def test_no_name_takes_long(tmp_path: Path) -> None:
    name_of = parse_mapping_rules("RULE:^(a+)+$/$1/,DEFAULT")
    assert name_of("a" * 5_000 + "b") == "a" * 5_000 + "b"
