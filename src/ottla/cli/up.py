"""`ottla up`: a development cluster of one command."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
import time

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.cli.cluster import CONTROLLER_PORT_DISTANCE, check_ports, check_size, configure, make_plan, settle
from ottla.cli.serve import serve
from ottla.cli.settings import build_config, configure_logging, parse_settings
from ottla.errors import StartupError
from ottla.runtime import Runtime
from ottla.runtime.system import free_ports, process_age_seconds, system_runtime

_log = logging.getLogger(__name__)


def run_up(
    *, nodes: int, port: int, host: str, data: str, ephemeral: bool, settings: list[str], log_level: str
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
        check_size(runtime.disk, data, nodes)
        if nodes == 1:
            _up_one(runtime, started, port, host, data, values)
        else:
            status = _up_many(runtime, started, nodes, port, host, data, values, ephemeral, log_level)
    finally:
        runtime.offload.close()
        if ephemeral:
            shutil.rmtree(data, ignore_errors=True)
    if status:
        sys.exit(status)


def _up_one(runtime: Runtime, started: float, port: int, host: str, data: str, values: dict[str, str]) -> None:
    if port:
        check_ports(port, 1)
        controller_port = port + CONTROLLER_PORT_DISTANCE
    else:
        try:
            port, controller_port = free_ports(host, 2)
        except OSError as error:
            raise StartupError(f"--host {host} cannot be listened on: {error.strerror}.") from None
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
    format_node(runtime.disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())

    def on_ready(node: Node) -> None:
        print(f"ready: {node.bootstrap} in {time.monotonic() - started:.2f} s", flush=True)

    serve(config, runtime, on_ready)


def _up_many(
    runtime: Runtime,
    started: float,
    nodes: int,
    port: int,
    host: str,
    data: str,
    values: dict[str, str],
    ephemeral: bool,
    log_level: str,
) -> int:
    from ottla.cli.supervisor import Supervisor

    plan = make_plan(runtime, data=data, host=host, port=port, nodes=nodes)
    configs = configure(plan, values)
    for warning in configs[1].warnings():
        _log.warning("%s", warning)

    def on_ready(addresses: list[str]) -> None:
        print(f"ready: {','.join(addresses)} in {time.monotonic() - started:.2f} s", flush=True)

    supervisor = Supervisor(data, on_ready)
    supervisor.start(
        configs,
        lambda runtime, config: settle(runtime, plan, config),
        durable=not ephemeral,
        log_level=log_level,
    )
    return asyncio.run(supervisor.watch())
