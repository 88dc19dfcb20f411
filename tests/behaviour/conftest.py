"""The node under test, and a client of it.

The node is Ottla's. With OTTLA_BEHAVIOUR_TARGET=apache it is Apache Kafka's own, which shows that a story tells of
Kafka and not of our idea of it: every test that is not marked `ottla_only` must pass on both.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.behaviour.client import Client, Topic
from tests.oracle.apache_kafka import ApacheKafka, KafkaTools
from tests.oracle.ottla_node import OttlaNode

Node = ApacheKafka | OttlaNode


class StartNode(Protocol):
    def __call__(self, settings: Mapping[str, str], *, jvm: Sequence[str] = ()) -> Node:
        """`jvm` is what is said to Java's virtual machine, where there is one."""
        ...


_TARGET = os.environ.get("OTTLA_BEHAVIOUR_TARGET", "ottla")
_COMMAND = (sys.executable, "-m", "ottla.cli")
_SETTINGS = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100"}
"""So that retention can be watched; nothing that these tests write is old or large enough unless they say so."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla_only: tells of something that Apache Kafka does not do, or hides")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _TARGET == "apache":
        for item in items:
            if item.get_closest_marker("ottla_only"):
                item.add_marker(pytest.mark.skip(reason="not about Apache Kafka"))


@pytest.fixture(scope="session")
def on_apache() -> bool:
    """Is it Apache Kafka that is being asked?"""
    if _TARGET not in ("ottla", "apache"):
        raise pytest.UsageError(f"OTTLA_BEHAVIOUR_TARGET is {_TARGET!r}, neither `ottla` nor `apache`")
    return _TARGET == "apache"


@pytest.fixture(scope="session")
def start_node(on_apache: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNode]:
    """Start a node of the kind under test; each must end cleanly in the end, and without a complaint."""
    nodes: list[Node] = []

    def start(settings: Mapping[str, str], *, jvm: Sequence[str] = ()) -> Node:
        directory = tmp_path_factory.mktemp("node")
        node: Node
        if on_apache:
            with KafkaTools() as tools:
                node = ApacheKafka(directory, overrides=settings, heap=("-Xmx512M", *jvm)).start(tools)
        else:
            node = OttlaNode(directory, overrides=settings, command=_COMMAND).start()
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        node.stop()
    for node in nodes:
        if isinstance(node, OttlaNode):
            _must_not_complain(node.log_file)


def _must_not_complain(log_file: Path) -> None:
    complaints = log_file.read_text(errors="replace")
    assert "Traceback" not in complaints, complaints[-4000:]


@pytest.fixture(scope="session")
def node(start_node: StartNode) -> Node:
    """One node for most tests: they keep apart by the names of their topics."""
    return start_node(_SETTINGS)


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client((node.host, node.port)) as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """A topic name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(client: Client, name: str) -> Topic:
    """A topic of one partition with the broker's defaults."""
    return client.create_topic(name)
