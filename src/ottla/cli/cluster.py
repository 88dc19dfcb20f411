"""`ottla up --nodes N`: where each node of a development cluster has its place, now and after a restart.

Nodes are numbered from 1. Node 1 serves clients on the port that was asked for, node 2 on the next, and so on; each has
its controller a thousand above, and its data in `DIR/node-1`, `DIR/node-2`, …. All are brokers and controllers, and the
first ones are the voters of the quorum.

The voters find each other where the metadata log says that they are, so a controller keeps its address for as long as
the data lives, whatever ports are asked for later. `DIR/cluster.properties` remembers the addresses, and the ids that
the directories of the voters were promised: it is written before anything is formatted, so that a start which was cut
short is finished by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.broker.control.format import FormatOptions, format_node
from ottla.cli.before_start import check_address, check_unused, no_address
from ottla.cli.settings import build_config
from ottla.config.development import development_settings
from ottla.config.node import NodeConfig
from ottla.config.properties import format_properties, parse_properties
from ottla.errors import StartupError, UsageError
from ottla.log.checkpoints import read_meta_properties
from ottla.metadata.ids import random_uuid
from ottla.model import uuid_to_text
from ottla.runtime import Disk, DiskError, Runtime
from ottla.runtime.system import free_ports

CONTROLLER_PORT_DISTANCE = 1000
"""A node's controller listens so far above the port for its clients."""
PORT_MAX = 65535
NODES_MAX = 100
PLAN_FILE = "cluster.properties"

_OWN_KEYS = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)
"""What each node has of its own, so that one value cannot be set for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node of the cluster is."""

    node_id: int
    host: str
    port: int
    controller_host: str
    controller_port: int
    directory: str
    directory_id: str | None
    """What its metadata directory is called among the voters; None for a node that came later, and only follows."""

    @property
    def controller(self) -> str:
        return f"{_bracketed(self.controller_host)}:{self.controller_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    cluster_id: str
    places: tuple[Place, ...]
    fresh: tuple[int, ...] = field(default=(), compare=False)
    """Nodes that are not written down yet."""

    @property
    def voters(self) -> str:
        """As `--initial-controllers` takes them."""
        return ",".join(
            f"{each.node_id}@{each.controller}:{each.directory_id}" for each in self.places if each.directory_id
        )


def check_size(disk: Disk, data: str, nodes: int) -> None:
    """Raise `StartupError` unless `data` can be served by so many nodes: as many as it has, or more."""
    if not 1 <= nodes <= NODES_MAX:
        raise UsageError(f"--nodes {nodes} is not between 1 and {NODES_MAX}.")
    try:
        identity = read_meta_properties(disk, data)
    except DiskError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            raise StartupError(f"{data} is no directory: choose another for --data.") from None
        raise
    if identity is not None:
        raise StartupError(
            f"{data} is the directory of one node: give --data the directory above it, or start the node with "
            f"`ottla node` and its properties."
        )
    known = _read(disk, data)
    more = [n for n in range(nodes + 1, NODES_MAX + 1) if f"controller.{n}" in known]
    if more:
        raise StartupError(f"{data} holds a cluster of {more[-1]} nodes: start it with --nodes {more[-1]}.")


def check_ports(port: int, nodes: int) -> None:
    last = PORT_MAX - CONTROLLER_PORT_DISTANCE - (nodes - 1)
    if port > last:
        whose = (
            "its controller takes the port" if nodes == 1 else f"{nodes} nodes and their controllers take ports up to"
        )
        above = CONTROLLER_PORT_DISTANCE + nodes - 1
        raise UsageError(f"--port {port} is too high: {whose} {above} above, so {last} is the most.")


def make_plan(runtime: Runtime, *, data: str, host: str, port: int, nodes: int) -> Plan:
    """The places of all nodes: those that are known keep what others know of them. Only reads: `keep` is what writes it
    down. Raises `StartupError`."""
    known = _read(runtime.disk, data)
    fresh = [n for n in range(1, nodes + 1) if f"controller.{n}" not in known]
    cluster_id = known.get("cluster.id") or _found_cluster_id(runtime.disk, data)
    ports = _ports(host, port, nodes, fresh)
    places: list[Place] = []
    for index in range(nodes):
        node_id = index + 1
        directory_id = known.get(f"directory.{node_id}")
        controller_host, controller_port = host, ports[node_id][1]
        if node_id in fresh:
            # A quorum that exists already is joined; one that begins, begins with all.
            directory_id = None if cluster_id else uuid_to_text(random_uuid(runtime.random))
        else:
            text, _, number = known[f"controller.{node_id}"].rpartition(":")
            controller_host, controller_port = text.strip("[]"), int(number)
        places.append(
            Place(
                node_id=node_id,
                host=host,
                port=ports[node_id][0],
                controller_host=controller_host,
                controller_port=controller_port,
                directory=f"{data}/node-{node_id}",
                directory_id=directory_id,
            )
        )
    cluster_id = cluster_id or uuid_to_text(random_uuid(runtime.random))
    return Plan(cluster_id=cluster_id, places=tuple(places), fresh=tuple(fresh))


def check_free(disk: Disk, plan: Plan) -> None:
    """Raise `StartupError` if any place of the plan is taken."""
    check_unused(disk, (place.directory for place in plan.places))
    for place in plan.places:
        whose = f"node {place.node_id}: "
        check_address(place.host, place.port, whose=whose)
        # One that is known already cannot go elsewhere: it is looked for there.
        is_fresh = place.node_id in plan.fresh
        advice = "or choose another port" if is_fresh else "where this cluster's controller has to be"
        check_address(place.controller_host, place.controller_port, whose=whose, advice=advice)


def keep(disk: Disk, data: str, plan: Plan) -> None:
    """Remember where all are."""
    if plan.fresh:
        disk.make_dirs(data)
        _write(disk, data, plan)


def _ports(host: str, port: int, nodes: int, fresh: list[int]) -> dict[int, tuple[int, int]]:
    """The ports of each node: for clients, and for its controller if that has none yet."""
    if port:
        check_ports(port, nodes)
        return {n: (port + n - 1, port + n - 1 + CONTROLLER_PORT_DISTANCE) for n in range(1, nodes + 1)}
    try:
        found = iter(free_ports(host, nodes + len(fresh)))
    except OSError as error:
        raise no_address(host, error) from None
    return {n: (next(found), next(found) if n in fresh else 0) for n in range(1, nodes + 1)}


def _found_cluster_id(disk: Disk, data: str) -> str | None:
    """Of a node that was started alone, and is to have company."""
    identity = read_meta_properties(disk, f"{data}/node-1")
    return None if identity is None else identity.cluster_id


def _read(disk: Disk, data: str) -> dict[str, str]:
    try:
        return parse_properties(disk.read_file(f"{data}/{PLAN_FILE}").decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _write(disk: Disk, data: str, plan: Plan) -> None:
    properties = {"cluster.id": plan.cluster_id}
    for each in plan.places:
        properties[f"controller.{each.node_id}"] = each.controller
        if each.directory_id is not None:
            properties[f"directory.{each.node_id}"] = each.directory_id
    text = format_properties(properties, ("Where the controllers of this cluster are; ottla up --nodes reads it.",))
    disk.write_atomically(f"{data}/{PLAN_FILE}", text.encode())


def properties_of(plan: Plan, place: Place, settings: Mapping[str, str]) -> dict[str, str]:
    """The server.properties of one node."""
    for key in settings:
        if key in _OWN_KEYS:
            raise StartupError(f"--set {key} would be the same for all nodes: use `ottla node` with a file for each.")
    host = _bracketed(place.host)
    return {
        "process.roles": "broker,controller",
        "node.id": str(place.node_id),
        "listeners": f"PLAINTEXT://{host}:{place.port},CONTROLLER://{place.controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(each.controller for each in plan.places),
        "log.dirs": os.path.abspath(place.directory),
        **development_settings(len(plan.places)),
        **settings,
    }


def configure(plan: Plan, settings: Mapping[str, str]) -> dict[int, NodeConfig]:
    """The configuration of each node, by its id. Raises `StartupError`."""
    return {place.node_id: build_config(properties_of(plan, place, settings)) for place in plan.places}


def settle(runtime: Runtime, plan: Plan, config: NodeConfig) -> None:
    """Make a node's place ready for it: its directory is formatted, and its properties lie beside, so that it can be
    started again by itself. Raises `StartupError`."""
    disk = runtime.disk
    place = plan.places[config.node_id - 1]
    if read_meta_properties(disk, place.directory) is None:
        options = FormatOptions(
            cluster_id=plan.cluster_id,
            initial_controllers=plan.voters if place.directory_id is not None else None,
            no_initial_controllers=place.directory_id is None,
        )
        format_node(disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())
    properties = {key: value for key, value in config.static.items() if key != "broker.id"}
    path, text = f"{place.directory}.properties", format_properties(properties).encode()
    if not disk.exists(path) or disk.read_file(path) != text:
        disk.write_atomically(path, text)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
