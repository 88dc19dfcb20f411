"""The token that a node logs in with: had before it starts, renewed before it ends, and its secret kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import cast

import pytest

from ottla.broker.doors.mechanisms import jaas_key, token_source_of
from ottla.broker.doors.token_source import TokenSource
from ottla.broker.services import Services
from ottla.client.tokens import URL_KEY
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.runtime.clock import SystemClock
from tests.broker.test_jwks import Surroundings
from tests.broker.test_key_material import STATIC
from tests.tokens import Provider, token_endpoint

PREFIX = "sasl.oauthbearer.client.credentials.client"
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class Place(Surroundings):
    """As much of a node as a source needs."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SystemClock()
        self.random = Random(1)

    def source(self, url: str, **more: str) -> TokenSource:
        settings = {name.replace("_", "."): value for name, value in more.items()}
        config = NodeConfig(
            {
                **STATIC,
                URL_KEY: url,
                "sasl.login.retry.backoff.ms": "1",
                "sasl.login.retry.backoff.max.ms": "10",
                **settings,
            }
        )
        return token_source_of(config, "SSL", cast(Services, self))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.timers.close()
    made.offload.close()


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


def shown(source: TokenSource) -> str:
    return source.client().first().decode().partition("Bearer ")[2].partition("\x01")[0]


async def test_a_token_comes_from_a_file_and_is_read_again(place: Place, provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "token file"
    first, second = provider.token(jti=1), provider.token(jti=2)
    file.write_text(f"{first}\n")
    source = place.source(f"file://{str(file).replace(' ', '%20')}")
    await source.start()
    assert shown(source) == first
    file.write_text(second)
    source.renew()
    await place.settle()
    assert shown(source) == second
    file.write_text("half a to")
    source.renew()
    await place.settle()
    assert shown(source) == second  # What can be shown is shown until there is something better.


async def test_a_token_is_issued_for_the_nodes_name_and_secret(place: Place, provider: Provider) -> None:
    with token_endpoint(provider.token, "node", "s3cret:+") as endpoint:
        keys = {f"{PREFIX}.id": "node", f"{PREFIX}.secret": "s3cret:+", "sasl.oauthbearer.scope": "kafka all"}
        by_keys = place.source(endpoint.url, **keys)
        await by_keys.start()
        assert endpoint.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka all"]}]
        options = 'clientId="node" clientSecret="s3cret:+" extension_traceId="17"'
        by_jaas = place.source(endpoint.url, **{jaas_key("SSL", "OAUTHBEARER"): f"{JAAS} {options};"})
        await by_jaas.start()
        assert endpoint.asked[1:] == [{"grant_type": ["client_credentials"]}]
        assert by_jaas.client().first().endswith(b"\x01traceId=17\x01\x01")
        with pytest.raises(StartupError, match="401") as refused:
            await place.source(endpoint.url, **{**keys, f"{PREFIX}.secret": "wr0ng"}).start()
        assert endpoint.refused > 1  # It was tried again.
        assert "wr0ng" not in str(refused.value)


async def test_the_secret_follows_no_redirection(place: Place, provider: Provider) -> None:
    with token_endpoint(provider.token, "node", "secret") as endpoint:
        moved = endpoint.url.replace("/token", "/moved")
        with pytest.raises(StartupError, match="307"):
            await place.source(moved, **{f"{PREFIX}.id": "node", f"{PREFIX}.secret": "secret"}).start()
        assert not endpoint.asked


async def test_a_token_that_is_over_is_none(place: Place, provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(provider.token(exp=int(time.time()) - 5))
    with pytest.raises(StartupError, match="expired"):
        await place.source(f"file://{tmp_path / 'token'}").start()


@pytest.mark.parametrize(
    ("url", "more", "told"),
    [
        ("", {}, "nobody has signed"),
        ("ftp://example.org/token", {}, "neither a file"),
        ("http://example.org/token", {f"{PREFIX}.id": "a", f"{PREFIX}.secret": "b"}, "neither a file"),
        ("https://example.org/token", {}, "wants a name and a secret"),
        ("https://example.org/token", {f"{PREFIX}.id": "a"}, "wants a name and a secret"),
        ("file:///token", {"sasl.oauthbearer.jwt.retriever.class": "org.example.Own"}, "remove the key"),
    ],
)
def test_where_no_token_can_come_from_is_said_at_once(place: Place, url: str, more: dict[str, str], told: str) -> None:
    with pytest.raises(StartupError, match=told):
        place.source(url, **more)
