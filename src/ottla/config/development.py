"""What a cluster that one command makes sets apart from Kafka's defaults: copies, and a quick first assignment."""

from __future__ import annotations


def development_settings(nodes: int) -> dict[str, str]:
    """As many copies as nodes, up to three, and writes go on when one of them is lost."""
    copies = str(min(3, nodes))
    in_sync = str(max(1, min(3, nodes) - 1))
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": str(nodes),
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": str(nodes),
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": str(nodes),
        # A development group does not wait for members that never come.
        "group.initial.rebalance.delay.ms": "0",
    }
