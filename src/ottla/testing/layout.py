"""Where the nodes of one test have their places: directories, ports, and the properties that follow.

A node's ports are held for as long as its cluster lives, also while it is down, by sockets that are bound and never
listen: nobody else is given them, who connects to a node that is down is refused, and a node that starts again finds
them free. Clients come by one listener, which may be secured (`securing`), the other nodes and the test's own
conveniences by another.
"""

from __future__ import annotations

import random
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.config.development import development_settings
from ottla.errors import StartupError
from ottla.metadata.ids import random_uuid
from ottla.model import uuid_to_text
from ottla.testing.securing import Certificates, Security

HOST = "127.0.0.1"
CLIENTS = "CLIENTS"
INTERNAL = "INTERNAL"
CONTROLLER = "CONTROLLER"

NODES_MAX = 9

_OWN_KEYS = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
    }
)
"""What follows from a node's place."""

_QUICK = {
    # Time that is moved on shows at once.
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # A node that is killed is missed within seconds.
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.backoff.max.ms": "300",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
}


class Ports:
    """Held until `close`."""

    def __init__(self, count: int) -> None:
        self._held: list[socket.socket] = []
        try:
            for _ in range(count):
                held = socket.socket()
                self._held.append(held)
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((HOST, 0))
        except OSError:
            self.close()
            raise
        self.numbers: list[int] = [held.getsockname()[1] for held in self._held]

    def close(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node is."""

    node_id: int
    client_port: int
    internal_port: int
    controller_port: int
    directory: str
    directory_id: str

    @property
    def voter(self) -> str:
        """As `--initial-controllers` takes it."""
        return f"{self.node_id}@{HOST}:{self.controller_port}:{self.directory_id}"


class Layout:
    """The places of all nodes, numbered from 1. Owns the directory and the ports, until `close`."""

    def __init__(self, nodes: int, settings: Mapping[str, str], security: Security) -> None:
        if not 1 <= nodes <= NODES_MAX:
            raise StartupError(f"A cluster of {nodes} nodes is not between 1 and {NODES_MAX}.")
        for key in settings:
            if key in _OWN_KEYS:
                raise StartupError(f"{key} cannot be set: each node of a test has its own.")
        chance = random.SystemRandom()
        self._settings = dict(settings)
        self._security = security
        self._cluster_id = uuid_to_text(random_uuid(chance))
        self._ports = Ports(3 * nodes)
        self.directory = tempfile.mkdtemp(prefix="ottla-test-")
        try:
            self._certificates = Certificates(f"{self.directory}/certificates") if security.has_tls else None
        except BaseException:
            self.close()
            raise
        numbers = iter(self._ports.numbers)
        self.places = {
            node_id: Place(
                node_id=node_id,
                client_port=next(numbers),
                internal_port=next(numbers),
                controller_port=next(numbers),
                directory=f"{self.directory}/node-{node_id}",
                directory_id=uuid_to_text(random_uuid(chance)),
            )
            for node_id in range(1, nodes + 1)
        }

    def close(self) -> None:
        self._ports.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def address(self, node_id: int) -> str:
        """Where clients find a node: by a name, where a certificate has to name it."""
        return f"{'localhost' if self._security.has_tls else HOST}:{self.places[node_id].client_port}"

    @property
    def makes_topics(self) -> bool:
        """Do topics come to be when they are first used?"""
        return self._settings.get("auto.create.topics.enable", "true").strip().lower() == "true"

    def client_config(self, user: str | None, mechanism: str) -> dict[str, str]:
        return self._security.client_config(user, mechanism, self._certificates)

    def log(self, node_id: int) -> str:
        """The file that a node's log is written to."""
        return f"{self.directory}/node-{node_id}.log"

    def order(self, node_id: int, ahead_ms: int) -> dict[str, object]:
        """What `node_process.live` needs to know."""
        return {
            "cluster_id": self._cluster_id,
            "voters": ",".join(place.voter for place in self.places.values()),
            "scram": self._security.scram,
            "directory": self.directory,
            "properties": self._properties(self.places[node_id]),
            "log": self.log(node_id),
            "ahead_ms": ahead_ms,
        }

    def _properties(self, place: Place) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(place.node_id),
            "listeners": ",".join(
                (
                    f"{CLIENTS}://{HOST}:{place.client_port}",
                    f"{INTERNAL}://{HOST}:{place.internal_port}",
                    f"{CONTROLLER}://{HOST}:{place.controller_port}",
                )
            ),
            "advertised.listeners": ",".join(
                (f"{CLIENTS}://{self.address(place.node_id)}", f"{INTERNAL}://{HOST}:{place.internal_port}")
            ),
            "listener.security.protocol.map": ",".join(
                (f"{CLIENTS}:{self._security.protocol}", f"{INTERNAL}:PLAINTEXT", f"{CONTROLLER}:PLAINTEXT")
            ),
            "inter.broker.listener.name": INTERNAL,
            "controller.listener.names": CONTROLLER,
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{each.controller_port}" for each in self.places.values()
            ),
            "log.dirs": place.directory,
            **development_settings(len(self.places)),
            **_QUICK,
            **self._settings,
            **self._security.properties(CLIENTS, self._certificates, self._settings),
        }
