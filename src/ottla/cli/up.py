"""`ottla up`: a development cluster of one command."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

from ottla.broker.control.format import FormatOptions, format_node
from ottla.cli.before_start import check_address, check_unused, explained, hold, no_address
from ottla.cli.cluster import (
    CONTROLLER_PORT_DISTANCE,
    check_free,
    check_ports,
    check_size,
    configure,
    keep,
    make_plan,
    settle,
)
from ottla.cli.gateway import (
    DEFAULT_ADDRESS,
    OFF,
    ServicePort,
    is_installed,
    note_taken,
    open_console,
    open_port,
    parse_address,
)
from ottla.cli.serve import serve
from ottla.cli.settings import build_config, configure_logging, parse_settings
from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.runtime import Runtime
from ottla.runtime.system import free_ports, process_age_seconds, system_runtime

_log = logging.getLogger(__name__)


def run_up(
    *,
    nodes: int,
    port: int,
    host: str,
    data: str,
    ephemeral: bool,
    registry: str | None = None,
    console: bool = True,
    console_port: int | None = None,
    settings: list[str],
    log_level: str,
) -> None:
    started = time.monotonic() - process_age_seconds()
    configure_logging(log_level)
    if not data:
        raise StartupError("--data is empty: name a directory.")
    values = parse_settings(settings)
    for key in ("broker.id", "node.id", "process.roles"):
        if key in values:
            raise StartupError(
                f"--set {key}: `ottla up` numbers its nodes itself; use `ottla node` with a file for each."
            )
    runtime = system_runtime(durable=not ephemeral)
    if ephemeral:
        data = tempfile.mkdtemp(prefix="ottla-")
    status = 0
    try:
        with explained():
            check_size(runtime.disk, data, nodes)
        if port:
            check_ports(port, nodes)
        notes: list[str] = []
        registries = _open_registries(registry, nodes, free_port=not port, notes=notes)
        # All of them: where a node is dead the console asks another.
        schemas = ",".join(each.url for each in registries.values()) or None
        page = None
        if console:
            page = open_console(console_port, free_port=not port, registry_url=schemas, notes=notes)

        def tell(addresses: str) -> None:
            # Notes are of a cluster that serves: who is refused hears why, and nothing besides.
            for note in notes:
                print(note, file=sys.stderr, flush=True)
            _tell(addresses, started, schemas, page)

        if nodes == 1:
            _up_one(runtime, tell, port, host, data, values, registries.get(1), page)
        else:
            status = _up_many(runtime, tell, nodes, port, host, data, values, ephemeral, log_level, registries, page)
    finally:
        runtime.offload.close()
        if ephemeral:
            shutil.rmtree(data, ignore_errors=True)
    if status:
        sys.exit(status)


def _open_registries(wanted: str | None, nodes: int, *, free_port: bool, notes: list[str]) -> dict[int, ServicePort]:
    """By node: the first on the port that was asked for, the next on the one after it. Where clients are served on free
    ports, so are schemas, unless a port was asked for."""
    if wanted == OFF:
        return {}
    host, port = parse_address(wanted or DEFAULT_ADDRESS)
    if wanted is None and free_port:
        port = 0
    opened: dict[int, ServicePort] = {}
    for node_id in range(1, nodes + 1):
        found = open_port(host, port + node_id - 1 if port else 0, asked_for=wanted is not None)
        if found is not None:
            opened[node_id] = found
        elif is_installed():
            lack = "there is no registry" if nodes == 1 else f"node {node_id} serves no schemas"
            notes.append(note_taken(port + node_id - 1, lack, "--registry"))
    return opened


def _tell(addresses: str, started: float, schemas: str | None, console: ServicePort | None) -> None:
    # Standard output is one line, for whoever waits for it.
    if schemas is not None:
        print(f"schemas: {schemas}", file=sys.stderr, flush=True)
    if console is not None:
        print(f"console: {console.url}", file=sys.stderr, flush=True)
    print(f"ready: {addresses} in {time.monotonic() - started:.2f} s", flush=True)


def _up_one(
    runtime: Runtime,
    tell: Callable[[str], None],
    port: int,
    host: str,
    data: str,
    values: dict[str, str],
    registry: ServicePort | None,
    console: ServicePort | None,
) -> None:
    if port:
        controller_port = port + CONTROLLER_PORT_DISTANCE
    else:
        try:
            port, controller_port = free_ports(host, 2)
        except OSError as error:
            raise no_address(host, error) from None
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{host}:{controller_port}",
        "log.dirs": f"{data}/node-1",
        # One node cannot hold three copies, and a development group should not wait for members that never come.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **values,
    }
    config = build_config(properties)
    for warning in config.warnings():
        _log.warning("%s", warning)
    options = FormatOptions(standalone=True, ignore_formatted=True)
    with explained():
        check_unused(runtime.disk, (config.metadata_log_dir, *config.log_dirs))
        for listener in config.listeners:
            check_address(listener.host, listener.port)
        format_node(runtime.disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())

    beside = [each for each in (registry, console) if each is not None]
    serve(config, runtime, lambda node: tell(node.bootstrap), beside=beside)


def _up_many(
    runtime: Runtime,
    tell: Callable[[str], None],
    nodes: int,
    port: int,
    host: str,
    data: str,
    values: dict[str, str],
    ephemeral: bool,
    log_level: str,
    registries: Mapping[int, ServicePort],
    console: ServicePort | None,
) -> int:
    from ottla.cli.supervisor import Supervisor

    with explained():
        plan = make_plan(runtime, data=data, host=host, port=port, nodes=nodes)
        configs = configure(plan, values)
        check_free(runtime.disk, plan)
        hold(runtime.disk, data)
        keep(runtime.disk, data, plan)
    for warning in configs[1].warnings():
        _log.warning("%s", warning)

    def settled(runtime: Runtime, config: NodeConfig) -> None:
        with explained():
            settle(runtime, plan, config)

    supervisor = Supervisor(data, lambda addresses: tell(",".join(addresses)), console)
    supervisor.start(
        configs,
        settled,
        durable=not ephemeral,
        log_level=log_level,
        registries=registries,
    )
    return asyncio.run(supervisor.watch())
