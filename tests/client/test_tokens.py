"""A client's bearer token: from a file whenever one is needed, or from an identity provider that asks who wants one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.login import Credentials, login_of
from ottla.client.tokens import TokenEndpoint
from ottla.errors import ErrorCode, KafkaError
from tests.tokens import Provider


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def credentials(url: str) -> Credentials:
    return Credentials(mechanism="OAUTHBEARER", token_endpoint=TokenEndpoint(url=url))


def test_a_file_is_read_whenever_a_token_is_needed(tmp_path: Path, provider: Provider) -> None:
    path = tmp_path / "to ken"
    for audience in ("first", "second"):
        token = provider.token(aud=audience)
        path.write_text(f"{token}\n")
        assert login_of(credentials(path.as_uri()), "").first() == f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize("content", [None, "", "two words"])
def test_a_file_without_a_token_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KafkaError, match="No token is to be had from") as refused:
        login_of(credentials(path.as_uri()), "")
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
