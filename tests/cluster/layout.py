"""Clusters that are not alike in all nodes: controllers by themselves, racks, a listener that is reached by a detour.

`LaidOut` is the harness's `Cluster` over nodes that the test describes one by one. Nothing is set but what is said, so
that what is not said is the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ottla.broker.control.format import FormatOptions, format_node
from ottla.cli.settings import build_config
from ottla.config.properties import format_properties
from ottla.metadata.ids import random_uuid
from ottla.model import uuid_to_text
from ottla.runtime.system import free_ports, system_runtime
from tests.cluster.harness import QUICK, Cluster, NodeProcess

HOST = "127.0.0.1"
BOTH = "broker,controller"
CONTROLLER = "controller"
BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node, before it exists."""

    node_id: int
    roles: str = BOTH
    settings: Mapping[str, str] = field(default_factory=dict)
    """Its own; they win over those of the cluster."""

    replication_port: int | None = None
    """The brokers' own listener, if it has one apart from the clients'."""
    replication_reached_at: int | None = None
    """Where other brokers are told to find that listener."""


class LaidOut(Cluster):
    def __init__(self, directory: Path, plans: Sequence[NodePlan], settings: Mapping[str, str]) -> None:
        runtime = system_runtime(durable=False)
        ports = iter(free_ports(HOST, 2 * len(plans)))
        client_port = {plan.node_id: next(ports) for plan in plans}
        controller_port = {plan.node_id: next(ports) for plan in plans}
        voters = [plan.node_id for plan in plans if CONTROLLER in plan.roles]
        directory_id = {node_id: uuid_to_text(random_uuid(runtime.random)) for node_id in voters}
        cluster_id = uuid_to_text(random_uuid(runtime.random))
        initial = ",".join(f"{each}@{HOST}:{controller_port[each]}:{directory_id[each]}" for each in voters)
        servers = ",".join(f"{HOST}:{controller_port[each]}" for each in voters)
        self.directory = directory
        self.nodes: dict[int, NodeProcess] = {}
        self.data: dict[int, Path] = {}
        self.brokers = [plan.node_id for plan in plans if BROKER in plan.roles]
        self.controllers = voters
        for plan in plans:
            node_id = plan.node_id
            self.data[node_id] = directory / f"node-{node_id}"
            properties = {
                **QUICK,
                "process.roles": plan.roles,
                "node.id": str(node_id),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": servers,
                "log.dirs": str(self.data[node_id]),
                **_listeners(plan, client_port[node_id], controller_port[node_id]),
                **settings,
                **plan.settings,
            }
            options = FormatOptions(
                cluster_id=cluster_id,
                initial_controllers=initial if node_id in directory_id else None,
                no_initial_controllers=False,
            )
            format_node(
                runtime.disk,
                build_config(properties),
                options,
                random=runtime.random,
                now_ms=runtime.clock.wall_ms(),
            )
            file = directory / f"node-{node_id}.properties"
            file.write_text(format_properties(properties))
            port = client_port[node_id] if node_id in self.brokers else controller_port[node_id]
            self.nodes[node_id] = NodeProcess(node_id, file, (HOST, port), directory / f"node-{node_id}.stderr")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.nodes[each].address[1]}" for each in self.brokers)

    @property
    def listening(self) -> list[int]:
        """The brokers that run and are not paused: clients talk to them alone."""
        return [each for each in self.brokers if self.is_up(each)]

    def bytes_of(self, node_id: int, topic: str, partition: int = 0) -> int:
        """What a node's copy of a partition holds, by its segment files."""
        return sum(file.stat().st_size for file in (self.data[node_id] / f"{topic}-{partition}").glob("*.log"))

    def restore(self) -> None:
        """Everything runs again, whatever the last test did."""
        for node in self.nodes.values():
            if node.is_running and node.paused:
                self.resume(node.node_id)
            elif not node.is_running:
                self.restart(node.node_id)


def _listeners(plan: NodePlan, client_port: int, controller_port: int) -> dict[str, str]:
    listeners: list[str] = []
    advertised: list[str] = []
    found = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    if BROKER in plan.roles:
        listeners.append(f"PLAINTEXT://{HOST}:{client_port}")
        advertised.append(listeners[0])
        if plan.replication_port is not None:
            listeners.append(f"REPLICATION://{HOST}:{plan.replication_port}")
            advertised.append(f"REPLICATION://{HOST}:{plan.replication_reached_at or plan.replication_port}")
            found["inter.broker.listener.name"] = "REPLICATION"
        found["advertised.listeners"] = ",".join(advertised)
    if CONTROLLER in plan.roles:
        listeners.append(f"CONTROLLER://{HOST}:{controller_port}")
    return {**found, "listeners": ",".join(listeners)}


@contextmanager
def laid_out(directory: Path, plans: Sequence[NodePlan], settings: Mapping[str, str]) -> Iterator[LaidOut]:
    cluster = LaidOut(directory, plans, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
