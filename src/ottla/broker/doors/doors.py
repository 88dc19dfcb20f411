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
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.network_peer import NetworkPeers
from ottla.config.key import InvalidConfig
from ottla.config.listeners import Listener
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, StartupError
from ottla.runtime import ConnectionHandler, Network, Runtime
from ottla.security.sasl import USER, AuthenticationFailed

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.doors.authentication import StartOther
    from ottla.broker.doors.credentials import Credentials
    from ottla.broker.doors.jwks import Jwks
    from ottla.broker.doors.mechanisms import Offered
    from ottla.broker.services import Services
    from ottla.runtime.tls import Tls, TlsMaterial
    from ottla.security.certificates import MapName

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
        self._mappings: dict[str, MapName] = {}

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
        if self._servers:
            self._services.timers.every(RELOAD_MS, self._look_for_changes)

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
                _name_by_certificate(handler, certificate, mapping)

        return TlsNetwork(self._runtime.network, tls, on_peer)

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
        from ottla.broker.doors.mechanisms import login_of

        login = login_of(config, listener, config.get_text(mechanism_key), self._runtime.secrets)
        return NetworkPeers(network, self._services.timers, client_id, login=login, offload=self._services.offload)

    # Changes.

    def check(self, config: NodeConfig) -> None:
        """Would these keys do? INVALID_REQUEST where they would not."""
        try:
            for listener, material in self._materials(config, self._servers, server_side=True).items():
                if material != self._servers[listener].material:
                    self._tls(config, listener, server_side=True)
        except StartupError as error:
            raise InvalidConfig(str(error), ErrorCode.INVALID_REQUEST) from None

    def on_config(self) -> None:
        self._look_for_changes()

    def _look_for_changes(self) -> None:
        self._services.spawn(self._reload())

    async def _reload(self) -> None:
        from ottla.runtime.tls import BadKeyMaterial

        config = self._services.config
        for contexts, server_side in ((self._servers, True), (self._clients, False)):
            try:
                found = await self._services.offload.run(
                    lambda contexts=contexts, server_side=server_side: self._materials(  # type: ignore[misc]
                        config, contexts, server_side=server_side
                    )
                )
                for listener, material in found.items():
                    if material != contexts[listener].material:
                        contexts[listener].replace(material)
                        _log.info("listener %s has new keys or certificates", listener)
            except (StartupError, BadKeyMaterial) as error:
                _log.error("new keys and certificates cannot be used, the old ones stay: %s", error)

    def _materials(
        self, config: NodeConfig, contexts: Mapping[str, Tls], *, server_side: bool
    ) -> dict[str, TlsMaterial]:
        from ottla.broker.doors.key_material import material_of

        disk = self._runtime.disk
        return {listener: material_of(config, listener, disk, server_side=server_side) for listener in contexts}


def _mapping(config: NodeConfig, listener: str) -> MapName:
    from ottla.security.certificates import BadMappingRules, parse_mapping_rules

    rules = config.listener_value(listener, "ssl.principal.mapping.rules")
    try:
        return parse_mapping_rules(str(rules or "DEFAULT"))
    except BadMappingRules as error:
        raise StartupError(f"{error}.") from None


def _name_by_certificate(connection: ClientConnection, certificate: bytes, mapping: MapName) -> None:
    from ottla.security.certificates import distinguished_name

    try:
        connection.principal = f"{USER}:{mapping(distinguished_name(certificate))}"
    except AuthenticationFailed as error:
        connection.close(f"authentication by certificate failed: {error}")
