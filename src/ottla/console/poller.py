"""One look at the cluster every few seconds, for all open pages; and what was measured, in a bounded history.

`look` asks, in a thread. While nobody has a page open the cluster is asked rarely, so that the history has no hole and
the cluster hardly notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.admin.cluster import Cluster, Quorum, describe_cluster, describe_quorum
from ottla.admin.groups import Group, committed_offsets, describe_group, list_groups
from ottla.admin.log_dirs import LogDirectory, describe_log_dirs, sizes_of
from ottla.admin.offsets import Bounds, known_bounds
from ottla.admin.topics import Topic, list_topics
from ottla.client.blocking import BlockingClient
from ottla.console.history import History
from ottla.console.nodes import Nodes
from ottla.console.workers import Workers
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.runtime.blocking import monotonic_s

_log = logging.getLogger(__name__)

PERIOD_S = 2.0
IDLE_PERIOD_S = 15.0
WATCHED_S = 10.0
"""A page that is open asks for the newest look more often than this."""
SLOW_EVERY = 5
"""Looks, of which one measures sizes."""
PARTITIONS_MAX = 5_000
GROUPS_MAX = 200
"""Beyond these, offsets and lag are not measured: a console must not be the heaviest client of a cluster."""

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
REQUEST_MS = "kafka_network_requestmetrics_totaltimems"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    group: Group
    committed: Mapping[TopicPartition, int]
    lag: Mapping[TopicPartition, int]
    """Where the end is known."""

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    @property
    def topics(self) -> set[str]:
        """That it reads, or has read."""
        assigned = (key for member in self.group.members for key in member.assigned)
        return {key.topic for key in (*self.committed, *assigned)}

    def lag_in(self, topic: str) -> int:
        return sum(lag for key, lag in self.lag.items() if key.topic == topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The cluster at one moment."""

    time_s: float
    cluster: Cluster
    quorum: Quorum | None
    topics: Mapping[str, Topic]
    bounds: Mapping[TopicPartition, Bounds]
    sizes: Mapping[TopicPartition, Mapping[int, int]]
    """Bytes by partition and node."""
    directories: tuple[LogDirectory, ...]
    groups: Mapping[str, GroupLook]
    groups_unmeasured: int
    latency_ms: float
    """What one question about the cluster took, there and back."""
    metrics: Mapping[int, Mapping[str, float]]
    """By node: of those that are Ottla's."""
    figures: Mapping[str, float] = field(default_factory=dict)

    def size_of(self, topic: str) -> int | None:
        """Of the leaders' replicas, in bytes."""
        sizes = [
            self.sizes.get(TopicPartition(topic, each.partition), {}).get(each.leader)
            for each in self.topics[topic].partitions
            if each.leader is not None
        ]
        known = [each for each in sizes if each is not None]
        return sum(known) if known else None

    def records_of(self, topic: str) -> int | None:
        """At most: compaction leaves gaps."""
        bounds = [self.bounds.get(TopicPartition(topic, each.partition)) for each in self.topics[topic].partitions]
        known = [each.end - each.start for each in bounds if each is not None]
        return sum(known) if known else None


class Poller:
    """Owned by the event loop. `newest` is none until the first look."""

    def __init__(self, workers: Workers, nodes: Nodes) -> None:
        self._workers = workers
        self._nodes = nodes
        self._asked_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._looked = asyncio.Event()
        self._looks = 0
        self.history = History()
        self._newest: Look | None = None
        self.error: str | None = None
        """Why the last look failed; none if it did not."""

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def newest(self) -> Look | None:
        """Asking for it says that somebody is looking."""
        idle = monotonic_s() - self._asked_s > WATCHED_S
        self._asked_s = monotonic_s()
        if idle:
            self._wake.set()
        return self._newest

    async def first(self) -> Look | None:
        """The newest look, waited for if there was none yet; none if the cluster cannot be asked."""
        if self.newest is None:
            await self._looked.wait()
        return self._newest

    async def knowing(self, has: Callable[[Look], bool]) -> Look | None:
        """The newest look; one more is taken if it lacks what a page is about, which may be new."""
        found = await self.first()
        if found is not None and not has(found):
            await self._look()
        return self._newest

    async def refresh(self) -> None:
        """Look now: something was changed by a page."""
        await self._look()

    async def _run(self) -> None:
        while True:
            await self._look()
            self._wake.clear()
            watched = monotonic_s() - self._asked_s <= WATCHED_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), PERIOD_S if watched else IDLE_PERIOD_S)

    async def _look(self) -> None:
        measure = self._newest is None or self._looks % SLOW_EVERY == 0
        self._looks += 1
        before = self._newest
        try:
            found = await self._workers.ask(lambda client: look(client, self._nodes, before if not measure else None))
        except KafkaError as error:
            self.error = error.message or error.code.name
        except Exception as error:
            _log.exception("A look at the cluster failed")
            self.error = f"The cluster cannot be looked at: {error}."
        else:
            self._newest, self.error = found, None
            self.history.add(found.time_s, found.figures)
        self._looked.set()


def look(client: BlockingClient, nodes: Nodes, before: Look | None) -> Look:
    """Sizes are taken from `before`, where there is one."""
    started_s = monotonic_s()
    cluster = describe_cluster(client)
    latency_ms = (monotonic_s() - started_s) * 1000
    try:
        quorum = describe_quorum(client)
    except KafkaError:
        quorum = None  # A cluster with ZooKeeper, or one that does not let us ask.
    topics = {topic.name: topic for topic in list_topics(client)}
    partitions = [TopicPartition(topic.name, each.partition) for topic in topics.values() for each in topic.partitions]
    bounds = known_bounds(client, partitions[:PARTITIONS_MAX])
    if before is None:
        directories = tuple(describe_log_dirs(client))
        sizes: Mapping[TopicPartition, Mapping[int, int]] = sizes_of(directories)
    else:
        directories, sizes = before.directories, before.sizes
    groups, unmeasured = _groups(client, bounds)
    found = Look(
        time_s=time.time(),
        cluster=cluster,
        quorum=quorum,
        topics=topics,
        bounds=bounds,
        sizes=sizes,
        directories=directories,
        groups=groups,
        groups_unmeasured=unmeasured,
        latency_ms=latency_ms,
        metrics={broker.node: nodes.metrics(broker) for broker in cluster.brokers if not broker.is_fenced},
    )
    return replace(found, figures=figures(found))


def _groups(client: BlockingClient, bounds: Mapping[TopicPartition, Bounds]) -> tuple[dict[str, GroupLook], int]:
    try:
        listed = list_groups(client)
    except KafkaError:
        return {}, 0  # A coordinator is not to be had just now; the next look may find it.
    found: dict[str, GroupLook] = {}
    for each in listed[:GROUPS_MAX]:
        try:
            group = describe_group(client, each.group_id)
            committed = {key: position.offset for key, position in committed_offsets(client, each.group_id).items()}
        except KafkaError:
            continue  # Gone meanwhile, or of a kind that has no offsets.
        found[each.group_id] = GroupLook(
            group=group,
            committed=committed,
            lag={key: max(bounds[key].end - offset, 0) for key, offset in committed.items() if key in bounds},
        )
    return found, max(0, len(listed) - GROUPS_MAX)


def figures(look: Look) -> dict[str, float]:
    """What is remembered of a look, by series."""
    found: dict[str, float] = {"latency_ms": look.latency_ms}
    partitions = [each for topic in look.topics.values() for each in topic.partitions]
    found["under_replicated"] = sum(each.is_under_replicated for each in partitions)
    found["offline"] = sum(each.is_offline for each in partitions)
    found["replicas_in_sync"] = sum(len(each.isr) for each in partitions)
    found["replicas"] = sum(len(each.replicas) for each in partitions)
    found["end"] = sum(bound.end for bound in look.bounds.values())
    for node, metrics in look.metrics.items():
        found |= {f"bytes_in:{node}": _sum(metrics, BYTES_IN), f"bytes_out:{node}": _sum(metrics, BYTES_OUT)}
        for api in ("Produce", "Fetch"):
            if value := metrics.get(f"{REQUEST_MS}{{{api},0.99}}"):  # None came lately where it is zero.
                found[f"{api.lower()}_ms:{node}"] = value
    for name, topic in look.topics.items():
        ends = [look.bounds.get(TopicPartition(name, each.partition)) for each in topic.partitions]
        found[f"end:{name}"] = sum(bound.end for bound in ends if bound is not None)
        size = look.size_of(name)
        if size is not None:
            found[f"size:{name}"] = size
    for name, group in look.groups.items():
        found[f"lag:{name}"] = group.total_lag
        for topic_name in {key.topic for key in group.lag}:
            found[f"lag:{name}:{topic_name}"] = sum(lag for key, lag in group.lag.items() if key.topic == topic_name)
    return found


def _sum(metrics: Mapping[str, float], name: str) -> float:
    """All series of a metric together. A total of its own has no label."""
    if name in metrics:
        return metrics[name]
    return sum(_values(metrics, f"{name}{{"))


def _values(metrics: Mapping[str, float], beginning: str) -> Iterable[float]:
    return (value for name, value in metrics.items() if name.startswith(beginning))
