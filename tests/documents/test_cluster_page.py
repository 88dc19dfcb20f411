"""The cluster of docs/cluster.md, word for word but for its addresses: three nodes find together."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime.system import free_ports
from tests.cluster.harness import NodeProcess

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
PATIENCE_S = 120.0
_BLOCK = re.compile(r"^```properties\n(.*?)^```", re.MULTILINE | re.DOTALL)


def ottla(*arguments: str) -> str:
    command = [sys.executable, "-m", "ottla.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """Their files as the page says, on ports of this machine; nothing is formatted yet."""
    of_all, of_others = _BLOCK.findall(PAGE)
    ports = free_ports("127.0.0.1", 6)
    made: list[NodeProcess] = []
    for node in (1, 2, 3):
        text = of_all + (of_others if node > 1 else "")
        own = {"node.id=1": f"node.id={node}", "/var/lib/ottla": str(tmp_path / f"data-{node}")}
        text = re.sub(r"(?<=PLAINTEXT://|ONTROLLER://)10.0.0.1", f"10.0.0.{node}", text)
        for before, after in own.items():
            assert before in text
            text = text.replace(before, after)
        for other in (1, 2, 3):
            for at, port in ((0, 9092), (1, 9093)):
                text = text.replace(f"10.0.0.{other}:{port}", f"127.0.0.1:{ports[2 * (other - 1) + at]}")
        properties = tmp_path / f"server-{node}.properties"
        properties.write_text(text)
        made.append(NodeProcess(node, properties, ("127.0.0.1", ports[2 * (node - 1)]), tmp_path / f"{node}.stderr"))
    yield made
    running = [process for process in made if process.is_running]
    for process in running:
        process.send_signal(signal.SIGKILL)
    for process in running:
        process.wait()


@pytest.mark.slow
def test_three_nodes_find_together(nodes: list[NodeProcess], tmp_path: Path) -> None:
    first, *others = nodes
    assert "ottla format --standalone server.properties" in PAGE
    told = ottla("format", "--standalone", str(tmp_path / "server-1.properties"))
    cluster_id = told.split()[-1]
    assert "ottla format --no-initial-controllers --cluster-id ID server.properties" in PAGE
    for node in others:
        properties = str(tmp_path / f"server-{node.node_id}.properties")
        ottla("format", "--no-initial-controllers", "--cluster-id", cluster_id, properties)
    deadline = time.monotonic() + PATIENCE_S
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_ready(deadline)
    bootstrap = f"127.0.0.1:{first.address[1]}"
    while True:
        quorum = json.loads(ottla("cluster", "quorum", "--json", "-b", bootstrap))
        if sum(each["role"] in ("leader", "voter") for each in quorum["replicas"]) == 3:
            break
        assert time.monotonic() < deadline, quorum
        time.sleep(0.2)
    ottla("topic", "create", "orders", "-b", bootstrap)
    described = json.loads(ottla("topic", "describe", "orders", "--json", "-b", bootstrap))
    assert sorted(described["partitions"][0]["replicas"]) == [1, 2, 3]
