"""One Spark session and one node for all tests here; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from ottla.spark import session
from tests.node_process import NodeProcess, running_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    running = session("tests", master="local[2]", config=settings)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


NewTopic = Callable[..., str]


@pytest.fixture
def new_topic(node: NodeProcess, topic: str) -> NewTopic:
    """Creates the test's topic, with configs."""
    from confluent_kafka import admin

    def create(partitions: int = 1, *, name: str = topic, configs: Mapping[str, str] | None = None) -> str:
        client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
        asked = admin.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        client.create_topics([asked])[name].result(60)
        return name

    return create
