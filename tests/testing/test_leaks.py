"""A hundred nodes, opened and closed: nothing of them is left in this process, nor on the machine."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from pathlib import Path

import pytest

import ottla.testing


def children() -> set[int]:
    """The processes of which this one, or the nursery, is the parent."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(path.parent.name)] = int(fields[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in found.items() if parent in ours} - ours:
        ours |= more
    return ours


def traces() -> dict[str, object]:
    here = Path(tempfile.gettempdir())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "handlers": len(logging.getLogger().handlers) + len(logging.getLogger("ottla").handlers),
        "children": children(),
    } | {"directories": len([path for path in here.glob("ottla-test-*") if path.stat().st_uid == os.getuid()])}


@pytest.mark.slow
def test_a_hundred_nodes_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ottla.testing.node() as node:
        node.create_topic("t")
    before = traces()
    for number in range(100):
        with ottla.testing.node() as node:
            if number % 10 == 0:
                node.create_topic("t")
                node.produce("t", "one")
    assert traces() == before
    assert os.listdir(tmp_path) == []


def test_a_cluster_leaves_nothing_whatever_became_of_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ottla.testing.node():
        pass
    before = traces()
    with ottla.testing.cluster() as cluster:
        cluster.kill(1)
        cluster.stop(2)
        os.kill(cluster.nodes[3].pid, 9)
    assert traces() == before
    assert os.listdir(tmp_path) == []
