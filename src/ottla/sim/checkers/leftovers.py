"""L12: once clients are gone, nothing waits for them any more, and what nodes remember of them is bounded.

Fetches of followers wait all the time: of those there is one for each fetcher of each other broker, at most.
"""

from __future__ import annotations

from ottla.broker.hosted import HostedPartition
from ottla.coordinator.group_shard import GroupShard
from ottla.sim import view
from ottla.sim.cluster import Cluster, Machine


def leftovers(cluster: Cluster, core: list[Machine], producers_max: int) -> list[str]:
    """What is still there. `producers_max` is how many producer ids were ever handed out."""
    found: list[str] = []
    for machine in core:
        fetchers_max = (len(cluster.brokers) - 1) * machine.config.get_int("num.replica.fetchers")
        for partition in view.partitions(machine):
            for what, count in _of_partition(partition, fetchers_max, producers_max).items():
                if count:
                    found.append(f"L12: {machine.name} has {count} {what} for {partition.topic_partition}")
        for served in view.served_shards(machine):
            waiting = len(served._tokens) + len(served._uncommitted) + len(served._gathered)
            if waiting:
                found.append(f"L12: {machine.name} has {waiting} unanswered for {served.partition.topic_partition}")
            if isinstance(served.shard, GroupShard):
                for group in served.shard.classic.groups():
                    if group.pending_members:
                        found.append(f"L12: {machine.name} expects {group.pending_members} in {group.group_id}")
    return found


def _of_partition(partition: HostedPartition, fetchers_max: int, producers_max: int) -> dict[str, int]:
    produces = (*partition.watermark_waiters, *partition.durable_waiters)
    return {
        "delayed writes": sum(waiter.waiting for _, waiter in produces),
        "delayed deletions": len(partition.delete_waiters),
        "delayed fetches": max(0, len(partition.fetch_waiters) - fetchers_max),
        "producers too many": max(0, len(partition.log.producers.entries) - producers_max),
    }
