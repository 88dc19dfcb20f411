"""One real node for the tests of this directory that need one, and the registry that ships with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.node_process import NodeProcess, running_node


class Served(NamedTuple):
    node: NodeProcess
    url: str


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running_node(tmp_path_factory.mktemp("node")) as node:
        yield Served(node, registry_url(node))


def registry_url(node: NodeProcess) -> str:
    """What `ottla up` says before it is ready (its log is that of earlier starts too)."""
    return str(re.findall(r"^schemas: (\S+)$", node.log(), re.MULTILINE)[-1])
