"""`python -m benchmarks.embedding`: what a node costs a test that wants one of its own.

Medians of a warm process: the first node, which pays for loading, is told apart. Each is timed from before the node is
asked for until after it is gone, which is what a test pays; the assignment is that of confluent-kafka's consumer, from
`subscribe` to its callback, on a topic that exists. `--check` fails where a median is above its limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median, quantiles

from confluent_kafka import Consumer

import ottla.testing

NODES, CLUSTERS = 100, 20
NODE_MS_MAX, ASSIGNED_MS_MAX = 50, 150
_WAIT_S = 60


def fresh_node() -> None:
    with ottla.testing.node():
        pass


def fresh_node_assigned(protocol: str) -> float:
    """Milliseconds until the assignment and, of the node alone, its end; not those of the consumer's own end."""
    began = time.perf_counter()
    with ottla.testing.node() as node:
        node.create_topic("t")
        assigned: list[float] = []
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", "group.protocol": protocol})
        consumer.subscribe(["t"], on_assign=lambda *_: assigned.append(time.perf_counter()))
        deadline = time.monotonic() + _WAIT_S
        while not assigned:
            assert time.monotonic() < deadline
            consumer.poll(0.01)
        consumer.close()
        ending = time.perf_counter()
    return 1000 * (assigned[0] - began + time.perf_counter() - ending)


def fresh_cluster() -> None:
    with ottla.testing.cluster(nodes=3):
        pass


def timed(work: Callable[[], float | None]) -> float:
    began = time.perf_counter()
    measured = work()
    return 1000 * (time.perf_counter() - began) if measured is None else measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check: bool = parser.parse_args().check
    print(f"the first node, with the loading: {timed(fresh_node):.0f} ms")
    time.sleep(2)  # What only some clients need is loaded meanwhile.
    within = True
    for name, work, count, limit in (
        ("a fresh node", fresh_node, NODES, NODE_MS_MAX),
        ("and first assignment, classic", lambda: fresh_node_assigned("classic"), NODES, ASSIGNED_MS_MAX),
        ("and first assignment, consumer", lambda: fresh_node_assigned("consumer"), NODES, ASSIGNED_MS_MAX),
        ("a fresh cluster of three", fresh_cluster, CLUSTERS, None),
    ):
        taken = [timed(work) for _ in range(count)]
        middle, most = median(taken), quantiles(taken, n=20)[-1]
        within &= limit is None or middle <= limit
        bound = "" if limit is None else f", at most {limit} ms wanted"
        print(f"{name}: {middle:.1f} ms at the median of {count}, 95 % within {most:.1f} ms{bound}")
    if check and not within:
        sys.exit("A median is above its limit.")


if __name__ == "__main__":
    main()
