"""`ottla up`: a development cluster of one command."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.cli.serve import serve
from ottla.cli.settings import build_config, configure_logging, parse_settings
from ottla.errors import StartupError
from ottla.runtime import Runtime
from ottla.runtime.system import free_ports, process_age_seconds, system_runtime

_log = logging.getLogger(__name__)

CONTROLLER_PORT_DISTANCE = 1000
"""A node's controller listens so far above the port for its clients."""
PORT_MAX = 65535


def run_up(*, port: int, host: str, data: str, ephemeral: bool, settings: list[str], log_level: str) -> None:
    started = time.monotonic() - process_age_seconds()
    configure_logging(log_level)
    runtime = system_runtime(durable=not ephemeral)
    if ephemeral:
        data = tempfile.mkdtemp(prefix="ottla-")
    try:
        _up(runtime, started, port, host, data, settings)
    finally:
        runtime.offload.close()
        if ephemeral:
            shutil.rmtree(data, ignore_errors=True)


def _up(runtime: Runtime, started: float, port: int, host: str, data: str, settings: list[str]) -> None:
    if not data:
        raise StartupError("--data is empty: name a directory.")
    if port:
        controller_port = port + CONTROLLER_PORT_DISTANCE
        if controller_port > PORT_MAX:
            raise StartupError(
                f"--port {port} is too high: its controller takes the port {CONTROLLER_PORT_DISTANCE} above, so "
                f"{PORT_MAX - CONTROLLER_PORT_DISTANCE} is the most."
            )
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
        **parse_settings(settings),
    }
    config = build_config(properties)
    for warning in config.warnings():
        _log.warning("%s", warning)
    options = FormatOptions(standalone=True, ignore_formatted=True)
    format_node(runtime.disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())

    def on_ready(node: Node) -> None:
        print(f"ready: {node.bootstrap} in {time.monotonic() - started:.2f} s", flush=True)

    serve(config, runtime, on_ready)
