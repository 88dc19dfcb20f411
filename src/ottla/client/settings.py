"""A client's settings under the names that Kafka's clients give them, checked once and plain enough to be sent along.

Java's names count; where librdkafka has another for the same thing, that is understood too. Keys that are none of this
client's business are left alone, since one set of options often serves several libraries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.login import Credentials
from ottla.runtime.blocking import TlsSettings
from ottla.security.jaas import BadLoginConfig, parse_login_module
from ottla.security.sasl import MECHANISMS

if TYPE_CHECKING:
    from ottla.client.tokens import TokenEndpoint

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>\d{1,5})")
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


class InvalidClientConfig(ValueError):
    """A setting that cannot be obeyed; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Times in milliseconds, with the defaults of Kafka's clients."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "ottla"
    request_timeout_ms: int = 30_000
    """For one answer."""
    api_timeout_ms: int = 60_000
    """For all attempts together."""
    connect_timeout_ms: int = 10_000
    """For a connection, its TLS handshake, its greeting and its authentication together."""
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    idle_ms_max: int = 540_000
    """A connection that was idle for longer is opened anew: the other side may have given it up."""
    tls: TlsSettings | None = None
    sasl: Credentials | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClientSettings:
        """Raises `InvalidClientConfig`."""
        protocol = options.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise InvalidClientConfig(f"security.protocol is {protocol!r}; choose one of {', '.join(PROTOCOLS)}.")
        return cls(
            bootstrap=parse_addresses(options.get("bootstrap.servers") or options.get("metadata.broker.list") or ""),
            client_id=options.get("client.id", "ottla"),
            request_timeout_ms=_milliseconds(options, "request.timeout.ms", 30_000),
            api_timeout_ms=_milliseconds(options, "default.api.timeout.ms", 60_000),
            connect_timeout_ms=_milliseconds(options, "socket.connection.setup.timeout.ms", 10_000),
            retry_backoff_ms=_milliseconds(options, "retry.backoff.ms", 100),
            retry_backoff_ms_max=_milliseconds(options, "retry.backoff.max.ms", 1_000),
            idle_ms_max=_milliseconds(options, "connections.max.idle.ms", 540_000),
            tls=_tls(options) if protocol.endswith("SSL") else None,
            sasl=_sasl(options) if protocol.startswith("SASL_") else None,
        )


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`, as in `bootstrap.servers`. Raises `InvalidClientConfig`."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        address = _ADDRESS.fullmatch(part)
        if address is None or not 0 < int(address["port"]) < 65_536:
            raise InvalidClientConfig(f"bootstrap.servers names {part!r}; write host:port, separated by commas.")
        found.append((address["v6"] or address["host"], int(address["port"])))
    if not found:
        raise InvalidClientConfig("bootstrap.servers is missing: name at least one broker as host:port.")
    return tuple(found)


def _milliseconds(options: Mapping[str, str], key: str, default: int) -> int:
    text = options.get(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise InvalidClientConfig(f"{key} is {text!r}; it takes a number of milliseconds.")
    return value


def _tls(options: Mapping[str, str]) -> TlsSettings:
    for store in ("truststore", "keystore"):
        kind = options.get(f"ssl.{store}.type", "PEM").upper()
        location = options.get(f"ssl.{store}.location", "")
        if kind != "PEM" or location.lower().endswith((".jks", ".p12", ".pfx")):
            raise InvalidClientConfig(
                f"ssl.{store}.location must be a PEM file: convert it with `keytool -importkeystore … -deststoretype "
                f"PKCS12` and `openssl pkcs12 -in … -out {store}.pem`, and set ssl.{store}.type=PEM."
            )
    identification = options.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    verify = options.get("enable.ssl.certificate.verification", "true").strip().lower() != "false"
    enabled = [each.strip() for each in options.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")]
    known = sorted(each for each in enabled if each in ("TLSv1.2", "TLSv1.3"))
    if not known:
        raise InvalidClientConfig("ssl.enabled.protocols names neither TLSv1.2 nor TLSv1.3, and no other is spoken.")
    return TlsSettings(
        trusted_file=options.get("ssl.truststore.location") or options.get("ssl.ca.location"),
        trusted_text=options.get("ssl.truststore.certificates") or options.get("ssl.ca.pem"),
        certificate_file=options.get("ssl.keystore.location") or options.get("ssl.certificate.location"),
        key_file=options.get("ssl.key.location"),
        certificate_text=options.get("ssl.keystore.certificate.chain") or options.get("ssl.certificate.pem"),
        key_text=options.get("ssl.keystore.key") or options.get("ssl.key.pem"),
        key_password=options.get("ssl.key.password"),
        verify_certificate=verify,
        verify_host=identification == "https",
        ciphers=options.get("ssl.cipher.suites"),
        minimum=known[0],
        maximum=known[-1],
    )


def _sasl(options: Mapping[str, str]) -> Credentials:
    mechanism = (options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        raise InvalidClientConfig(f"sasl.mechanism is {mechanism!r}; choose one of {', '.join(MECHANISMS)}.")
    username, password = options.get("sasl.username", ""), options.get("sasl.password", "")
    by_token = False
    jaas_options: Mapping[str, str] = {}
    text = options.get("sasl.jaas.config")
    if text is not None:
        try:
            jaas = parse_login_module(text)
        except BadLoginConfig as error:
            raise InvalidClientConfig(f"sasl.jaas.config cannot be read: {error}.") from None
        module = jaas.name.rpartition(".")[2]
        if mechanism not in _MODULES.get(module, ()):
            raise InvalidClientConfig(f"sasl.jaas.config names {module}, which does not do {mechanism}.")
        jaas_options = jaas.options
        username, password = jaas.options.get("username", username), jaas.options.get("password", password)
        by_token = jaas.options.get("tokenauth", "").lower() == "true"
    provider, endpoint = options.get("sasl.login.callback.handler.class", ""), None
    if mechanism == "OAUTHBEARER":
        if ":" not in provider:
            provider, endpoint = "", _token_endpoint({**options, **jaas_options})
    elif not username:
        raise InvalidClientConfig(
            f"{mechanism} needs a name and a password: set sasl.jaas.config, or sasl.username and sasl.password."
        )
    return Credentials(
        mechanism=mechanism,
        username=username,
        password=password,
        by_delegation_token=by_token,
        token_provider=provider,
        token_endpoint=endpoint,
    )


def _token_endpoint(options: Mapping[str, str]) -> TokenEndpoint:
    """By the names that Kafka 4 gives its parts, or those of a login module, or librdkafka's."""
    from ottla.client.tokens import CLIENT_KEY, URL_KEY, TokenEndpoint

    def first(*names: str) -> str:
        return next((options[name] for name in names if options.get(name)), "")

    url = first(URL_KEY).strip()
    if not url:
        raise InvalidClientConfig(
            f"OAUTHBEARER needs a token: set {URL_KEY} to where tokens are (file: or https:), or "
            "sasl.login.callback.handler.class to module:function, a function without arguments that returns one."
        )
    endpoint = TokenEndpoint(
        url=url,
        client_id=first(f"{CLIENT_KEY}.id", "clientId", "sasl.oauthbearer.client.id"),
        client_secret=first(f"{CLIENT_KEY}.secret", "clientSecret", "sasl.oauthbearer.client.secret"),
        scope=first("sasl.oauthbearer.scope", "scope"),
    )
    if flaw := endpoint.flaw():
        raise InvalidClientConfig(flaw)
    return endpoint
