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
    "ottla(set={}, nodes=3, security='PLAINTEXT', users={}): what the fixtures `ottla` and `ottla_cluster` start for a "
    "test: the settings of its brokers, how many nodes its cluster has, and how clients come in"
)
_NODES = pytest.StashKey[list["Node"]]()
"""What a test was given."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _HELP)


@pytest.fixture(name="ottla")
def ottla_fixture(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node of its own for the test, over real sockets; `ottla.bootstrap` is for clients."""
    settings, options = _wanted(request)
    options.pop("nodes", None)
    with ottla.testing.node(settings, **options) as node:
        request.node.stash[_NODES] = [node]
        yield node


@pytest.fixture(name="ottla_cluster")
def ottla_cluster_fixture(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three nodes, or as many as the mark says, of its own for the test."""
    settings, options = _wanted(request)
    with ottla.testing.cluster(options.pop("nodes", 3), settings, **options) as cluster:
        request.node.stash[_NODES] = list(cluster.nodes.values())
        yield cluster


def _wanted(request: pytest.FixtureRequest) -> tuple[dict[str, object], dict[str, Any]]:
    """What the marks say: that of the test counts more than those of its class and of its module."""
    settings: dict[str, object] = {}
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(_MARK))):
        unknown = set(mark.kwargs) - {"set", "nodes", "security", "users"}
        if mark.args or unknown:
            raise pytest.UsageError(
                "@pytest.mark.ottla takes set={key: value}, nodes=number, security=protocol and "
                "users={name: password}, and nothing else."
            )
        settings |= mark.kwargs.get("set", {})
        options |= {key: value for key, value in mark.kwargs.items() if key != "set"}
    return settings, options


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Shows what the nodes have logged beside what the test printed, if it failed."""
    report: pytest.TestReport = (yield).get_result()
    if report.failed:
        for node in item.stash.get(_NODES, []):
            if said := node.log:
                report.sections.append((f"log of ottla's node {node.node_id}", said))
