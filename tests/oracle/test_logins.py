"""Kafka's own tools at every door of a locked node: each mechanism, encrypted and not, right and wrong credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.locked_site import LOGINS, WRONG, Login, Site, locked_site, shown

from .apache_kafka import TOOLS, KafkaTools, ToolResult, run_java

pytestmark = pytest.mark.oracle

_SECURITY = "org.apache.kafka.common.security"
_BEARER = f"{_SECURITY}.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
MODULES = {"PLAIN": f"{_SECURITY}.plain.PlainLoginModule", "OAUTHBEARER": f"{_BEARER}.OAuthBearerLoginModule"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with locked_site(tmp_path_factory.mktemp("site")) as site:
        yield site


def properties(site: Site, login: Login, directory: Path) -> dict[str, str]:
    """As a Java client has them."""
    found = {"security.protocol": login.protocol}
    if login.protocol.endswith("SSL"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(site.authority.certificate)}
    if login.protocol == "SSL":
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(site.certificate(login).store)}
    if not login.mechanism:
        return found
    module = MODULES.get(login.mechanism, f"{_SECURITY}.scram.ScramLoginModule")
    found["sasl.mechanism"] = login.mechanism
    if login.mechanism == "OAUTHBEARER":
        token = directory / "token"
        token.write_text(site.token(login))
        found["sasl.jaas.config"] = f"{module} required;"
        found["sasl.login.callback.handler.class"] = f"{_BEARER}.OAuthBearerLoginCallbackHandler"
        found["sasl.oauthbearer.token.endpoint.url"] = f"file://{token}"
    else:
        found["sasl.jaas.config"] = f'{module} required username="ann" password="{login.password}";'
    return found


def topics(site: Site, login: Login, tools: KafkaTools, directory: Path) -> ToolResult:
    found = properties(site, login, directory)
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
    arguments = ("--bootstrap-server", site.bootstrap(login), "--command-config", str(file), "--list")
    if login.mechanism != "OAUTHBEARER":
        return tools.run("kafka-topics", *arguments)
    # Where a token may come from is said to the virtual machine alone.
    url = found["sasl.oauthbearer.token.endpoint.url"]
    allowed = (f"{_ALLOWED}.urls={url}", f"{_ALLOWED}.files={url.removeprefix('file://')}")
    return run_java(TOOLS["kafka-topics"], *arguments, jvm=allowed, timeout=60)


@pytest.mark.parametrize("login", LOGINS, ids=shown)
def test_whoever_has_the_right_credentials_is_let_in(
    site: Site, login: Login, tools: KafkaTools, tmp_path: Path
) -> None:
    topics(site, login, tools, tmp_path).check()


@pytest.mark.parametrize("login", WRONG, ids=shown)
def test_whoever_has_wrong_ones_is_told_what_kafka_tells(
    site: Site, login: Login, tools: KafkaTools, tmp_path: Path
) -> None:
    refused = topics(site, login, tools, tmp_path)
    assert refused.status != 0
    assert (
        "SslAuthenticationException" if login.protocol == "SSL" else "SaslAuthenticationException"
    ) in refused.printed
