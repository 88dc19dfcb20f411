"""`ottla node`: one node, configured as Apache Kafka's are."""

from __future__ import annotations

import logging
from pathlib import Path

from ottla.broker.node import Node
from ottla.cli.gateway import OFF, open_port, parse_address
from ottla.cli.serve import serve
from ottla.cli.settings import build_config, configure_logging, parse_settings, read_properties
from ottla.config.node import NodeConfig
from ottla.runtime.system import system_runtime

_log = logging.getLogger(__name__)


def run_node(properties: Path, settings: list[str], log_level: str, registry: str = OFF) -> None:
    configure_logging(log_level, audited=True)
    config = build_config({**read_properties(properties), **parse_settings(settings)})
    for warning in config.warnings():
        _log.warning("%s", warning)
    runtime = system_runtime()
    port = None if registry == OFF else open_port(*parse_address(registry), asked_for=True)
    try:
        serve(config, runtime, lambda node: _on_ready(node, config), beside=[] if port is None else [port])
    finally:
        runtime.offload.close()


def _on_ready(node: Node, config: NodeConfig) -> None:
    # A node that is a controller alone has nothing for clients; then its own listener is what there is to say.
    controllers = (f"{each.name}://{each.host}:{each.port}" for each in config.advertised_controller_listeners)
    print(f"ready: {node.bootstrap or ','.join(controllers)}", flush=True)
