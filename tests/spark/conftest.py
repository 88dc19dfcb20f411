"""One Spark session and one node for all tests here; each test has topics of its own.

The node is Ottla's. With OTTLA_SPARK_TARGET=apache it is Apache Kafka's own: every test that uses it passes on both.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest
from pyspark.errors import StreamingQueryException

from ottla.spark import session
from ottla.spark.crash_points import VARIABLE
from tests.node_process import running_node
from tests.oracle.apache_kafka import ApacheKafka, KafkaTools

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_numbers = itertools.count()


class Broker(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture(scope="session")
def crash_plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that does not exist. Whoever writes the name of a step there has one of Spark's processes die at it."""
    plan = tmp_path_factory.mktemp("crashes") / "plan"
    os.environ[VARIABLE] = f"@{plan}"  # Spark's processes have the environment that they were started with.
    yield plan
    del os.environ[VARIABLE]


@pytest.fixture(scope="session")
def spark(crash_plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_session(tmp_path_factory.mktemp("warehouse")) as running:
        yield running


@contextmanager
def local_session(warehouse: Path) -> Iterator[SparkSession]:
    """Two cores and no more than a test needs."""
    settings = {"spark.sql.warehouse.dir": str(warehouse), "spark.sql.shuffle.partitions": "2"}
    running = session("tests", master="local[2]", config=settings)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("node")
    target = os.environ.get("OTTLA_SPARK_TARGET", "ottla")
    if target == "apache":
        with KafkaTools() as tools:
            apache = ApacheKafka(directory, heap=("-Xmx512M",)).start(tools)
        yield apache
        apache.stop()
    elif target == "ottla":
        with running_node(directory) as node:
            yield node
    else:
        raise pytest.UsageError(f"OTTLA_SPARK_TARGET is {target!r}, neither `ottla` nor `apache`")


def despite_slow_workers(run: Callable[[], T], tries: int = 5) -> T:
    """Spark gives the process that plans a stream ten seconds to start, which a busy machine may not have: then it is
    tried again. Anything else that goes wrong is the test's affair."""
    for _ in range(tries - 1):
        try:
            return run()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return run()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


NewTopic = Callable[..., str]


@pytest.fixture
def new_topic(node: Broker, topic: str) -> NewTopic:
    """Creates the test's topic, with configs."""
    from confluent_kafka import admin

    def create(partitions: int = 1, *, name: str = topic, configs: Mapping[str, str] | None = None) -> str:
        client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
        asked = admin.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        client.create_topics([asked])[name].result(60)
        return name

    return create
