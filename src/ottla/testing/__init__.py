"""Kafka inside tests: a real node, or a cluster of them, over real sockets, fresh for each test and gone after it.

    with ottla.testing.node() as node:
        producer = Producer({"bootstrap.servers": node.bootstrap})

`node` and `cluster` are context managers, `with` or `async with`, with or without pytest, from any thread; the fixtures
`ottla` and `ottla_cluster` are the same for pytest (`plugin`). See docs/testing.md.

A node lives in a process of its own, forked from one that has everything loaded (`nursery`), and not in a thread of the
test's. A thread would have to share the interpreter with the test: a test that computes would starve the broker, and be
starved by it; threads, descriptors, handlers of logs and the collector's work would be the test's too; and a node that
is killed would have to be imitated, where a process is simply killed. What a process costs is a fork: a few
milliseconds (`benchmarks/embedding.py`). And nothing can be left behind: when the test's process ends, however it does,
so do the nodes, and their directories go.

    handles       what a test holds: Node, Cluster, faults, clock      conveniences  topics and records without a client
    starting      this side of nursery and nodes                       layout        directories, ports, properties
    nursery       the process that nodes are forked from               node_process  a node's process
    faults        what is scripted to go wrong, and failing: how       clocks        time that can be moved
    securing      TLS and SASL for clients: users, certificates

Nothing here is imported before a node is asked for: pytest loads this package at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.testing.conveniences import Record
    from ottla.testing.embedding import Embedding
    from ottla.testing.handles import Cluster, Fault, Node

__all__ = ["Cluster", "Fault", "Node", "Record", "cluster", "node"]


def node(
    settings: Mapping[str, object] | None = None,
    /,
    *,
    security: str = "PLAINTEXT",
    users: Mapping[str, str] | None = None,
    **more: object,
) -> Embedding[Node]:
    """One node. Settings are Kafka's, of a broker: `node({"num.partitions": 3})` or `node(num_partitions=3)`.
    `security` is how clients come in: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; `users` are passwords by name."""
    from ottla.testing.embedding import Embedding, as_settings
    from ottla.testing.securing import Security

    return Embedding(1, as_settings(settings, more), Security.of(security, users), lambda cluster: cluster.nodes[1])


def cluster(
    nodes: int = 3,
    settings: Mapping[str, object] | None = None,
    *,
    security: str = "PLAINTEXT",
    users: Mapping[str, str] | None = None,
    **more: object,
) -> Embedding[Cluster]:
    """Several nodes, which replicate among each other; what is said of one node is said of all of them."""
    from ottla.testing.embedding import Embedding, as_settings
    from ottla.testing.securing import Security

    return Embedding(nodes, as_settings(settings, more), Security.of(security, users), lambda cluster: cluster)


def __getattr__(name: str) -> object:
    """The types of what a test holds, for annotations."""
    if name not in ("Cluster", "Fault", "Node", "Record"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing import handles

    return getattr(handles, name)
