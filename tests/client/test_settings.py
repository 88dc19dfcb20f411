"""A client's settings, in the words of Kafka's clients."""

from __future__ import annotations

import pytest

from ottla.client.settings import ClientSettings, InvalidClientConfig, parse_addresses
from ottla.client.tokens import TokenEndpoint

SERVERS = {"bootstrap.servers": "one:9092"}


def test_addresses_are_hosts_and_ports() -> None:
    assert parse_addresses("one:9092, two:9093,[::1]:9094,PLAINTEXT://three:1") == (
        ("one", 9092),
        ("two", 9093),
        ("::1", 9094),
        ("three", 1),
    )


@pytest.mark.parametrize("text", ["", "one", "one:", "one:0", "one:70000", "a b:1", ":9092"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidClientConfig, match=r"bootstrap\.servers"):
        parse_addresses(text)


def test_times_have_kafkas_names_and_defaults() -> None:
    assert ClientSettings.parse(SERVERS).request_timeout_ms == 30_000
    assert ClientSettings.parse(SERVERS | {"default.api.timeout.ms": "5"}).api_timeout_ms == 5
    with pytest.raises(InvalidClientConfig, match=r"retry\.backoff\.ms is 'soon'"):
        ClientSettings.parse(SERVERS | {"retry.backoff.ms": "soon"})


def test_tls_is_verified_unless_it_is_said_otherwise() -> None:
    secure = SERVERS | {"security.protocol": "ssl", "ssl.ca.location": "ca.pem"}
    settings = ClientSettings.parse(secure).tls
    assert settings is not None
    assert (settings.trusted_file, settings.verify_certificate, settings.verify_host) == ("ca.pem", True, True)
    loose = ClientSettings.parse(secure | {"ssl.endpoint.identification.algorithm": ""}).tls
    assert loose is not None
    assert (loose.verify_certificate, loose.verify_host) == (True, False)


def test_java_key_stores_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidClientConfig, match="openssl pkcs12"):
        ClientSettings.parse(SERVERS | {"security.protocol": "SSL", "ssl.truststore.location": "trust.jks"})


def test_scram_by_delegation_token() -> None:
    login = 'ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "scram-sha-512", "sasl.jaas.config": login}
    sasl = ClientSettings.parse(SERVERS | options).sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.username, sasl.by_delegation_token) == ("SCRAM-SHA-512", "id", True)
    assert "hmac" not in repr(sasl)  # Settings are printed; secrets are not.


@pytest.mark.parametrize(
    "options",
    [
        {
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="app" clientSecret="hush" scope="kafka";'
        },
        {
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
        },
    ],
    ids=["kafka", "jaas", "librdkafka"],
)
def test_an_identity_provider_is_named_as_clients_name_it(options: dict[str, str]) -> None:
    url = "https://id.example/token"
    common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    sasl = ClientSettings.parse(SERVERS | common | {"sasl.oauthbearer.token.endpoint.url": url} | options).sasl
    assert sasl is not None
    assert sasl.token_endpoint == TokenEndpoint(url=url, client_id="app", client_secret="hush", scope="kafka")
    assert "hush" not in repr(sasl)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; choose one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is 'GSSAPI'; choose one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs a name and a password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "ftp://x",
            },
            "neither a file: nor an https: URL",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
            },
            "set sasl.oauthbearer.client.credentials.client.id and",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X required a="b'},
            "sasl.jaas.config cannot be read: a quotation mark is not closed",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "a.ScramLoginModule required;",
            },
            "names ScramLoginModule, which does not do PLAIN",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_said_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidClientConfig) as raised:
        ClientSettings.parse(SERVERS | options)
    assert sentence in str(raised.value)
