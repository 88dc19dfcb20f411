"""What pytest gets from Ottla: the fixtures `ottla` and `ottla_cluster`, and the mark `ottla` for their settings.

Found by pytest through its entry point, so that this is loaded whenever pytest runs: it imports nothing but pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ottla.testing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from ottla.testing.handles import Cluster, Node

_MARK = "ottla"
_HELP = (
    "ottla(set={}, nodes=3): what the fixtures `ottla` and `ottla_cluster` start for a test: the settings of its "
    "brokers, and how many nodes its cluster has"
)
_NODES = pytest.StashKey[list["Node"]]()
"""What a test was given."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)


@pytest.fixture(name="ottla")
def ottla_fixture(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node of its own for the test, over real sockets; `ottla.bootstrap` is for clients."""
    settings, _ = _wanted(request)
    with ottla.testing.node(settings) as node:
        request.node.stash[_NODES] = [node]
        yield node


@pytest.fixture(name="ottla_cluster")
def ottla_cluster_fixture(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three nodes, or as many as the mark says, of its own for the test."""
    settings, nodes = _wanted(request)
    with ottla.testing.cluster(nodes, settings) as cluster:
        request.node.stash[_NODES] = list(cluster.nodes.values())
        yield cluster


def _wanted(request: pytest.FixtureRequest) -> tuple[dict[str, object], int]:
    """What the marks say: that of the test counts more than those of its class and of its module."""
    settings: dict[str, object] = {}
    nodes = 3
    for mark in reversed(list(request.node.iter_markers(_MARK))):
        unknown = set(mark.kwargs) - {"set", "nodes"}
        if mark.args or unknown:
            raise pytest.UsageError("@pytest.mark.ottla takes set={key: value} and nodes=number, and nothing else.")
        settings |= mark.kwargs.get("set", {})
        nodes = mark.kwargs.get("nodes", nodes)
    return settings, nodes


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Shows what the nodes have logged beside what the test printed, if it failed."""
    report: pytest.TestReport = (yield).get_result()
    if report.failed:
        for node in item.stash.get(_NODES, []):
            if said := node.log:
                report.sections.append((f"log of ottla's node {node.node_id}", said))
