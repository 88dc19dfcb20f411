"""Fixtures of the oracle tests: Apache Kafka's tools in one JVM, and the node that they are pointed at.

The node is Ottla's. With OTTLA_ORACLE_TARGET=apache it is Apache Kafka's own, which shows that an assertion describes
Kafka and not our idea of it: every test here must pass on both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from .apache_kafka import ApacheKafka, KafkaTools, ToolResult
from .ottla_node import OttlaNode

Node = ApacheKafka | OttlaNode


class StartNode(Protocol):
    """Starts a node of the kind under test, on an empty directory or on a copy of one that another node left."""

    def __call__(self, name: str, overrides: Mapping[str, str], *, log_dir: Path | None = None) -> Node: ...


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="session")
def start_node(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNode]:
    """Each node is ended, cleanly, when the session ends if not before."""
    target = os.environ.get("OTTLA_ORACLE_TARGET", "ottla")
    with contextlib.ExitStack() as running:

        def start(name: str, overrides: Mapping[str, str], *, log_dir: Path | None = None) -> Node:
            directory = tmp_path_factory.mktemp(name)
            node: Node
            if target == "apache":
                node = ApacheKafka(directory, overrides=overrides)
                if log_dir is None:
                    node.format(tools)
                else:
                    shutil.copytree(log_dir, node.data)
            elif target == "ottla":
                node = OttlaNode(directory, overrides=overrides)
                if log_dir is not None:
                    shutil.copytree(log_dir, node.data / "node-1")
            else:
                raise pytest.UsageError(f"OTTLA_ORACLE_TARGET is {target!r}, neither `ottla` nor `apache`")
            node.spawn()
            running.callback(node.stop)
            node.wait_ready()
            return node

        yield start


@pytest.fixture(scope="session")
def node(start_node: StartNode) -> Node:
    """The running node under test, one for all tests: they keep apart by the names of their topics."""
    return start_node("node", {})


@pytest.fixture(scope="session")
def apache(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """An Apache Kafka node to compare answers with."""
    reference = ApacheKafka(tmp_path_factory.mktemp("apache"), heap=("-Xmx512M",)).start(tools)
    yield reference
    reference.stop()


class At:
    """The tools, pointed at one node."""

    def __init__(self, tools: KafkaTools, bootstrap: str) -> None:
        self._tools = tools
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout: float = 60) -> ToolResult:
        """Run a tool whose status may be anything."""
        where = ("--bootstrap-server", self.bootstrap)
        # Of the tools with subcommands, this one alone takes the address after the subcommand.
        placed = (*arguments, *where) if tool == "kafka-cluster" else (*where, *arguments)
        return self._tools.run(tool, *placed, stdin=stdin, timeout=timeout)

    def __call__(self, tool: str, *arguments: str, stdin: str = "", timeout: float = 60) -> ToolResult:
        """Run a tool, which must succeed."""
        return self.run(tool, *arguments, stdin=stdin, timeout=timeout).check()


@pytest.fixture(scope="session")
def at_node(tools: KafkaTools, node: Node) -> At:
    return At(tools, node.bootstrap)


@pytest.fixture(scope="session")
def at_apache(tools: KafkaTools, apache: ApacheKafka) -> At:
    return At(tools, apache.bootstrap)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def json_file(tmp_path: Path) -> Callable[[str], str]:
    """Write a tool's JSON input and give its path."""

    def write(text: str) -> str:
        path = tmp_path / "input.json"
        path.write_text(text)
        return str(path)

    return write
