"""What the shards of a node's groups count, together, for whoever watches the node.

Counted where Kafka does: most of it when it is decided, so that a little of it may be undone afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metrics.instruments import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTally:
    offset_commits: Meter = field(default_factory=Meter)
    offset_expirations: Meter = field(default_factory=Meter)
    offset_deletions: Meter = field(default_factory=Meter)
    """By administrators, one by one."""
    classic_rebalances: Meter = field(default_factory=Meter)
    """Plans of leaders of classic groups that were written."""
    consumer_rebalances: Meter = field(default_factory=Meter)
    """Rises of the epochs of consumer groups, because of subscriptions or topics."""
