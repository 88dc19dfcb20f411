"""What a real Apache Kafka 4.3.1 said about its configs: its table of keys, its DescribeConfigs, its refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypedDict

from ottla.config.alter import AlterOp, Change, apply_changes
from ottla.config.dynamic import validate_broker
from ottla.config.group import validate_client_metrics, validate_group
from ottla.config.key import Scope
from ottla.config.node import NodeConfig
from ottla.config.topic import validate_topic

KeyRow = tuple[str, str, str, str | None, str, bool, bool, str | None, str | None, dict[str, str]]
EntryRow = tuple[str, str, str | None, str, str, bool, bool, bool, list[tuple[str, str | None, str]]]
AlterationRow = tuple[str, str, list[tuple[str, str, str | None]], str]


class Table(TypedDict):
    keys: list[KeyRow]
    topic_synonyms: dict[str, list[str]]
    group_synonyms: dict[str, str | None]
    broker_synonyms: dict[str, list[str]]


class Described(TypedDict):
    server_properties: dict[str, str]
    entries: list[EntryRow]


class Refusals(TypedDict):
    alterations: list[AlterationRow]
    properties: list[tuple[dict[str, str | None], str]]


def _load(name: str) -> dict[str, object]:
    loaded = json.loads((Path(__file__).parent / f"kafka-4.3.1-{name}.json").read_text())
    return {key.replace(" ", "_").replace(".", "_"): value for key, value in loaded.items()}


@cache
def table() -> Table:
    return _load("table")  # type: ignore[return-value]


@cache
def described() -> Described:
    return _load("described")  # type: ignore[return-value]


@cache
def refusals() -> Refusals:
    return _load("refusals")  # type: ignore[return-value]


MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}


def node(overrides: Mapping[str, str | None] | None = None) -> NodeConfig:
    """A small combined node, with a few keys set or (None) left out."""
    properties: dict[str, str | None] = {**MINIMAL, **(overrides or {})}
    return NodeConfig({name: value for name, value in properties.items() if value is not None})


class Cluster:
    """The stored configs of a cluster of one, changed by the rules of this package."""

    def __init__(self) -> None:
        # Kafka stores this one by itself where eligible leader replicas are on (KIP-966).
        self.node = NodeConfig(described()["server_properties"], cluster={"min.insync.replicas": "1"})
        first = {"cleanup.policy": "compact,delete", "retention.ms": "1234567"}
        self.configs: dict[tuple[str, str], dict[str, str]] = {("TOPIC", "t"): first}

    def alter(self, resource: str, name: str, changes: list[Change]) -> None:
        if resource == "BROKER":
            current = self.node.broker if name else self.node.cluster
            altered = apply_changes(Scope.BROKER, current, changes)
            self.node = validate_broker(self.node, altered, per_broker=bool(name))
            return
        current = self.configs.get((resource, name), {})
        altered = apply_changes(Scope[resource], current, changes)
        match resource:
            case "TOPIC":
                validate_topic(self.node, altered, current)
            case "GROUP":
                validate_group(self.node, name, altered)
            case "CLIENT_METRICS":
                validate_client_metrics(name, altered)
        self.configs[resource, name] = altered


def changes_of(row: AlterationRow) -> list[Change]:
    return [Change(name, AlterOp[op], value) for name, op, value in row[2]]
