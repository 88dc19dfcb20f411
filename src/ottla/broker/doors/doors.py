"""All doors of a node: what stands behind each listener, and with what the node knocks at those of others.

    prepare     reads keys and certificates, before the first listener is opened; whatever is wrong is a `StartupError`
    network     the network that a listener listens on: the node's own, or that with TLS in front of it
    guard       puts the gate before a new connection, where its listener asks for a name
    peers_for   how this node reaches others on one of their listeners

Certificates are looked at every few seconds, and after each change of the configuration: a file that has changed is in
force for the next connection. Material that cannot be used leaves the old in force, and says so in the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.client.network_peer import NetworkPeers
from ottla.config.key import InvalidConfig
from ottla.config.listeners import Listener
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, StartupError
from ottla.runtime import ConnectionHandler, Network, Runtime
from ottla.security.sasl import OAUTHBEARER, USER, AuthenticationFailed

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.doors.authentication import StartOther
    from ottla.broker.doors.credentials import Credentials
    from ottla.broker.doors.jwks import Jwks
    from ottla.broker.doors.mechanisms import Offered
    from ottla.broker.doors.token_source import TokenSource
    from ottla.broker.services import Services
    from ottla.runtime.tls import Tls
    from ottla.security.certificates import MapName
    from ottla.security.sasl import MakeClient

_log = logging.getLogger(__name__)

RELOAD_MS = 5_000
"""How often the files of keys and certificates are looked at."""


def asks_for_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def asks_for_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


class Doors:
    """One instance a node that has any listener, of its own or of others, with TLS or SASL."""

    def __init__(self, services: Services, runtime: Runtime) -> None:
        from ottla.broker.doors.credentials import Credentials

        self._services = services
        self._runtime = runtime
        self.credentials: Credentials = Credentials(services, runtime.secrets)
        self._servers: dict[str, Tls] = {}
        self._clients: dict[str, Tls] = {}
        self._offered: dict[str, Offered] = {}
        self._jwks: dict[str, Jwks] = {}
        self._tokens: dict[str, TokenSource] = {}
        self._mappings: dict[str, MapName] = {}
        self._complaints: dict[tuple[str, bool], str] = {}
        """What was wrong with the newest keys and certificates of a listener, of its server's or its client's side."""

    # Starting.

    async def prepare(self) -> None:
        config = self._services.config
        for listener in config.listeners:
            if asks_for_tls(listener.security_protocol):
                self._servers[listener.name] = self._tls(config, listener.name, server_side=True)
                if listener.security_protocol == "SSL":
                    self._mappings[listener.name] = _mapping(config, listener.name)
            if asks_for_sasl(listener.security_protocol):
                from ottla.broker.doors.mechanisms import offered_by

                self._offered[listener.name] = offered_by(
                    config, listener.name, self.credentials, self._new_jwks, self._runtime.secrets
                )
        for jwks in self._jwks.values():
            await jwks.start()
        for name, mechanism_key in self._logins(config):
            if config.get_text(mechanism_key) == OAUTHBEARER:
                from ottla.broker.doors.mechanisms import token_source_of

                source = self._tokens[name] = token_source_of(config, name, self._services)
                await source.start()
        self._services.timers.every(RELOAD_MS, self._look_for_changes)

    @staticmethod
    def _logins(config: NodeConfig) -> list[tuple[str, str]]:
        """The listeners of others that this node logs in at, each with the key that says by which mechanism."""
        used = [(config.controller_listener_names[0], "sasl.mechanism.controller.protocol")]
        if config.is_broker:
            used.append((config.inter_broker_listener_name, "sasl.mechanism.inter.broker.protocol"))
        return [(listener, key) for listener, key in used if asks_for_sasl(config.security_protocols[listener])]

    def _new_jwks(self, listener: str) -> Jwks:
        from ottla.broker.doors.jwks import Jwks

        jwks = self._jwks[listener] = Jwks(self._services.config, listener, self._services)
        return jwks

    def _tls(self, config: NodeConfig, listener: str, *, server_side: bool) -> Tls:
        from ottla.broker.doors.key_material import material_of
        from ottla.runtime.tls import BadKeyMaterial, Tls

        material = material_of(config, listener, self._runtime.disk, server_side=server_side)
        try:
            return Tls(material, server_side=server_side)
        except BadKeyMaterial as error:
            raise StartupError(f"Listener {listener} cannot have TLS: {error}.") from None

    # Listening.

    def network(self, listener: Listener) -> Network:
        tls = self._servers.get(listener.name)
        if tls is None:
            return self._runtime.network
        from ottla.runtime.tls import TlsNetwork

        mapping = self._mappings.get(listener.name)
        if mapping is None:
            return TlsNetwork(self._runtime.network, tls)

        def on_peer(handler: ConnectionHandler, certificate: bytes | None) -> None:
            from ottla.broker.connection import ClientConnection

            assert isinstance(handler, ClientConnection)
            if certificate is not None:
                self._name_by_certificate(handler, certificate, mapping)

        return TlsNetwork(self._runtime.network, tls, on_peer)

    def _name_by_certificate(self, connection: ClientConnection, certificate: bytes, mapping: MapName) -> None:
        from ottla.security.certificates import distinguished_name

        try:
            connection.principal = f"{USER}:{mapping(distinguished_name(certificate))}"
        except AuthenticationFailed as error:
            reason = f"authentication by certificate failed: {error}"
            self._services.audit.login_failed(connection.peer[0], connection.listener, reason)
            connection.close(reason)

    def asks_for_name(self, listener: str) -> bool:
        return listener in self._offered

    def guard(self, connection: ClientConnection, start_other: StartOther) -> None:
        """Put the gate before a connection to a SASL listener."""
        from ottla.broker.doors.authentication import Authentication

        session = self._offered[connection.listener].new_session()
        authentication = Authentication(self._services, connection, session, start_other)
        connection.authentication = authentication
        connection.set_gate(authentication)

    # Knocking.

    def peers_for(self, listener: str, mechanism_key: str, client_id: str) -> NetworkPeers:
        """Peers on their listeners of this name; `mechanism_key` is the key that says by which mechanism."""
        config = self._services.config
        protocol = config.security_protocols[listener]
        network: Network = self._runtime.network
        if asks_for_tls(protocol):
            from ottla.runtime.tls import TlsNetwork

            tls = self._clients.get(listener)
            if tls is None:
                tls = self._clients[listener] = self._tls(config, listener, server_side=False)
            network = TlsNetwork(network, tls)
        if not asks_for_sasl(protocol):
            return NetworkPeers(network, self._services.timers, client_id)
        login: MakeClient
        if listener in self._tokens:
            login = self._tokens[listener].client
        else:
            from ottla.broker.doors.mechanisms import login_of

            login = login_of(config, listener, config.get_text(mechanism_key), self._runtime.secrets)
        return NetworkPeers(network, self._services.timers, client_id, login=login, offload=self._services.offload)

    # Changes.

    def check(self, config: NodeConfig) -> None:
        """Would these keys do? INVALID_REQUEST where they would not."""
        from ottla.broker.doors.key_material import check_replacement, material_of

        try:
            for listener, tls in self._servers.items():
                material = material_of(config, listener, self._runtime.disk, server_side=True)
                if material != tls.material:
                    check_replacement(config, listener, tls.material, material)
                    self._tls(config, listener, server_side=True)
        except StartupError as error:
            raise InvalidConfig(str(error), ErrorCode.INVALID_REQUEST) from None

    def on_config(self) -> None:
        self._look_for_changes()

    def _look_for_changes(self) -> None:
        if self._servers or self._clients:
            self._services.spawn(self._reload())

    async def _reload(self) -> None:
        for contexts, server_side in ((self._servers, True), (self._clients, False)):
            for listener, tls in list(contexts.items()):  # Others may be added meanwhile.
                await self._reload_one(listener, tls, server_side)

    async def _reload_one(self, listener: str, tls: Tls, server_side: bool) -> None:
        from ottla.broker.doors.key_material import check_replacement, material_of
        from ottla.runtime.tls import BadKeyMaterial

        config, disk = self._services.config, self._runtime.disk
        complaint = ""
        try:
            material = await self._services.offload.run(
                lambda: material_of(config, listener, disk, server_side=server_side)
            )
            if material != tls.material:
                check_replacement(config, listener, tls.material, material)
                tls.replace(material)
                _log.info("listener %s has new keys or certificates", listener)
        except (StartupError, BadKeyMaterial) as error:
            complaint = str(error)
        # What is wrong with a file is said once, and not whenever the file is looked at.
        if complaint and complaint != self._complaints.get((listener, server_side)):
            _log.error("new keys and certificates cannot be used, the old ones stay: %s", complaint)
        self._complaints[listener, server_side] = complaint


def _mapping(config: NodeConfig, listener: str) -> MapName:
    from ottla.security.certificates import BadMappingRules, parse_mapping_rules

    rules = config.listener_value(listener, "ssl.principal.mapping.rules")
    try:
        return parse_mapping_rules(str(rules or "DEFAULT"))
    except BadMappingRules as error:
        raise StartupError(f"{error}.") from None
