"""Which replica a consumer is told to read from (KIP-392), by the names that Kafka gives its own selectors."""

from __future__ import annotations

from ottla.config.node import NodeConfig
from ottla.errors import StartupError
from ottla.metadata.images import MetadataImage
from ottla.partition import PartitionLeader

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class RackAwareSelector:
    """A follower in the reader's own rack, unless the leader is there as well."""

    def select(
        self, leader: PartitionLeader, image: MetadataImage, listener: str, rack: str, offset: int
    ) -> int | None:
        """The follower to read `offset` from; None for the leader. It is in sync, holds the offset, and can be reached
        by the listener that the reader came by. Of several the one that is furthest."""
        if not rack:
            return None
        brokers = image.cluster.brokers
        ourselves = brokers.get(leader.replica_id)
        if ourselves is not None and ourselves.rack == rack:
            return None
        best: tuple[int, int, int] | None = None
        for replica, follower in leader.readable_replicas(offset):
            broker = brokers.get(replica)
            if broker is None or broker.fenced or broker.rack != rack or broker.endpoint(listener) is None:
                continue
            place = (follower.log_end, follower.caught_up_ms, replica)
            if best is None or place > best:
                best = place
        return None if best is None else best[2]


def replica_selector(config: NodeConfig) -> RackAwareSelector | None:
    """What `replica.selector.class` asks for; without one consumers read from leaders."""
    name = config.find_text("replica.selector.class")
    if not name:
        return None
    if name != RACK_AWARE:
        raise StartupError(f"replica.selector.class names {name}, which is not known here: use {RACK_AWARE}, or none.")
    return RackAwareSelector()
