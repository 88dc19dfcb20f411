"""Which SASL mechanisms a listener offers, and what stands behind each of them.

PLAIN's users are in the listener's login configuration, SCRAM's in the metadata, OAUTHBEARER's are whoever shows a
token that `Jwks` has the key for. A mechanism that is enabled and cannot be served keeps the node from starting.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.doors.credentials import Credentials
from ottla.broker.doors.jwks import Jwks
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.security.jaas import BadLoginConfig, LoginModule, parse_login_module
from ottla.security.oauth import OauthServer, TokenRules
from ottla.security.plain import PlainClient, PlainServer
from ottla.security.sasl import MECHANISMS, OAUTHBEARER, PLAIN, MakeClient, MakeServer
from ottla.security.sasl_session import SaslSession
from ottla.security.scram import NUMBERS, ScramClient, ScramServer, new_nonce

if TYPE_CHECKING:
    from ottla.broker.doors.token_source import TokenSource
    from ottla.broker.services import Services

_SECRET_BITS = 256


class Offered(NamedTuple):
    """What one listener offers."""

    servers: dict[str, MakeServer]
    max_reauth_ms: dict[str, int]

    def new_session(self) -> SaslSession:
        return SaslSession(self.servers, self.max_reauth_ms)


def offered_by(
    config: NodeConfig, listener: str, credentials: Credentials, jwks_of: Callable[[str], Jwks], secrets: Random
) -> Offered:
    """Raises `StartupError`. `secrets` is what nobody can predict."""
    enabled = config.listener_value(listener, "sasl.enabled.mechanisms")
    assert isinstance(enabled, tuple)
    servers: dict[str, MakeServer] = {}
    for mechanism in enabled:
        if mechanism not in MECHANISMS:
            raise StartupError(
                f"sasl.enabled.mechanisms of listener {listener} names {mechanism}, which is not served: choose from "
                f"{', '.join(MECHANISMS)}."
            )
        if mechanism == PLAIN:
            module = login_module(config, listener, PLAIN)
            if not module.users:
                raise StartupError(
                    f"Listener {listener} offers PLAIN but knows no users: add user_NAME=PASSWORD options to "
                    f"{jaas_key(listener, PLAIN)}."
                )
            servers[PLAIN] = partial(PlainServer, module.users)
        elif mechanism == OAUTHBEARER:
            jwks = jwks_of(listener)
            servers[OAUTHBEARER] = partial(OauthServer, _token_rules(config, listener), jwks.known, jwks.refresh_soon)
        else:
            servers[mechanism] = _scram(mechanism, credentials, secrets)
    if not servers:
        raise StartupError(f"Listener {listener} asks for SASL but offers no mechanism: set sasl.enabled.mechanisms.")
    max_reauth_ms: dict[str, int] = {}
    for mechanism in servers:
        value = config.mechanism_value(listener, mechanism, "connections.max.reauth.ms")
        assert isinstance(value, int)
        max_reauth_ms[mechanism] = value
    return Offered(servers, max_reauth_ms)


def _scram(mechanism: str, credentials: Credentials, secrets: Random) -> MakeServer:
    secret = secrets.randbytes(_SECRET_BITS // 8)
    number = NUMBERS[mechanism]

    def make() -> ScramServer:
        return ScramServer(
            mechanism,
            nonce=new_nonce(secrets),
            secret=secret,
            find=lambda user: credentials.find(user, number),
            find_token=lambda token_id: credentials.find_token(token_id, number),
        )

    return make


def _token_rules(config: NodeConfig, listener: str) -> TokenRules:
    def value(name: str) -> object:
        return config.mechanism_value(listener, OAUTHBEARER, f"sasl.oauthbearer.{name}")

    audiences, issuer, skew_s = value("expected.audience"), value("expected.issuer"), value("clock.skew.seconds")
    assert isinstance(skew_s, int)
    return TokenRules(
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=issuer if isinstance(issuer, str) else None,
        subject_claim=str(value("sub.claim.name")),
        scope_claim=str(value("scope.claim.name")),
        clock_skew_ms=1000 * skew_s,
    )


# The node's own name, as it logs in elsewhere.


def login_of(config: NodeConfig, listener: str, mechanism: str, secrets: Random) -> MakeClient:
    """How this node logs in at others on `listener`, by name and password. Raises `StartupError`."""
    if mechanism != PLAIN and mechanism not in NUMBERS:
        raise StartupError(
            f"Nodes log in at each other on listener {listener} with {mechanism}, which they cannot: use one of "
            f"{', '.join(MECHANISMS)}."
        )
    module = login_module(config, listener, mechanism)
    user, password = module.options.get("username", ""), module.options.get("password", "")
    if not user or not password:
        raise StartupError(
            f"{jaas_key(listener, mechanism)} needs username and password: with them this node logs in at the others."
        )
    if mechanism == PLAIN:
        return partial(PlainClient, user, password)
    keys: dict[tuple[bytes, int], bytes] = {}
    extensions = ",tokenauth=true" if module.options.get("tokenauth") == "true" else ""

    def make() -> ScramClient:
        return ScramClient(mechanism, user, password, nonce=new_nonce(secrets), extensions=extensions, keys=keys)

    return make


def token_source_of(config: NodeConfig, listener: str, services: Services) -> TokenSource:
    """The same, by OAUTHBEARER, whose login configuration may be missing where keys say it all. Raises
    `StartupError`."""
    from ottla.broker.doors.token_source import TokenSource

    is_there = jaas_key(listener, OAUTHBEARER) in config.properties
    return TokenSource(config, listener, login_module(config, listener, OAUTHBEARER) if is_there else None, services)


def jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def login_module(config: NodeConfig, listener: str, mechanism: str) -> LoginModule:
    """As in Kafka, a server's login configuration is always that of one mechanism of one listener."""
    key = jaas_key(listener, mechanism)
    text = config.properties.get(key)
    if text is None:
        raise StartupError(f"Listener {listener} uses {mechanism} and has no login configuration: set {key}.")
    try:
        return parse_login_module(text)
    except BadLoginConfig as error:
        raise StartupError(f"{key} cannot be read: {error}.") from None
