"""`python -m tests.testing.many_nodes DIRECTORY`: a hundred nodes, and a cluster whose nodes end in every way, opened
and closed. Tells whether anything is left of them, in this process or on the machine; run by `test_node.py`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import ottla.testing


def family() -> set[int]:
    """This process, and all that have come from it."""
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
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "handlers": len(logging.getLogger().handlers) + len(logging.getLogger("ottla").handlers),
        "processes": family(),
        "directories": list(Path(tempfile.gettempdir()).iterdir()),
    }


def open_and_close(number: int) -> None:
    for each in range(number):
        with ottla.testing.node() as node:
            if each % 10 == 0:
                node.create_topic("t")
                node.produce("t", "one")


def end_in_every_way() -> None:
    with ottla.testing.cluster() as cluster:
        cluster.kill(1)
        cluster.stop(2)
        os.kill(cluster.nodes[3].pid, signal.SIGKILL)


def main() -> None:
    tempfile.tempdir = sys.argv[1]
    open_and_close(1)
    before = traces()
    open_and_close(100)
    print("nodes", traces() == before or (before, traces()))
    end_in_every_way()
    print("cluster", traces() == before or (before, traces()))


if __name__ == "__main__":
    main()
