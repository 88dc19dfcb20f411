"""One node for all client tests of a worker; each test has topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.node_process import NodeProcess, running_node

_numbers = itertools.count()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{next(_numbers)}"


@pytest.fixture
def new_topic(node: NodeProcess, topic: str) -> Callable[..., str]:
    """Creates the test's topic, with configs."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def create(partitions: int = 1, **configs: str) -> str:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        created = admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)]
        )
        created[topic].result(30)
        return topic

    return create
