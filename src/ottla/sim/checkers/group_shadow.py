"""One partition of `__consumer_offsets` as its committed batches have it. Fed by `groups`; nodes have no part in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group_shard import GroupShard

if TYPE_CHECKING:
    from ottla.config.node import NodeConfig

Place = tuple[str, str, int]
"""Group, topic, partition."""


class InForce(NamedTuple):
    record_offset: int
    offset: int
    name: str


class GroupShadow:
    """Groups by the coordinator's own code, in a shard that nobody serves; offsets by rules of the checker's own."""

    def __init__(self, config: NodeConfig) -> None:
        self.shard = GroupShard.empty(lambda: config)
        self.shard.timeline.loading = True
        self.offsets: dict[Place, InForce] = {}
        self.staged: dict[int, dict[Place, InForce]] = {}
        """By producer id."""
        self.end = 0
