"""`ottla format`: prepares a node's directories, as kafka-storage does."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.control.format import FormatOptions, format_node, parse_features
from ottla.cli.output import Output
from ottla.cli.settings import build_config, parse_settings, read_properties
from ottla.runtime.system import system_runtime


def run_format(
    properties: Path,
    *,
    cluster_id: str | None,
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    ignore_formatted: bool,
    release_version: str | None,
    features: list[str],
    add_scram: list[str],
    settings: list[str],
    as_json: bool,
) -> None:
    config = build_config({**read_properties(properties), **parse_settings(settings)})
    runtime = system_runtime()
    options = FormatOptions(
        cluster_id=cluster_id,
        ignore_formatted=ignore_formatted,
        release_version=release_version,
        features=parse_features(features),
        standalone=standalone,
        no_initial_controllers=no_initial_controllers,
        initial_controllers=initial_controllers,
        scram=tuple(add_scram),
    )
    done = format_node(runtime.disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())
    out = Output(as_json=as_json)
    for directory in done.directories:
        item = {"directory": directory, "node": config.node_id, "cluster_id": done.cluster_id}
        out.item(item, f"formatted {directory} for node {config.node_id} of cluster {done.cluster_id}")
    if not done.directories and not as_json:
        print("all directories were formatted before")
