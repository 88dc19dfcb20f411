"""What the shards of a node's groups count, together, for whoever watches the node.

Counted when it is decided, as Kafka does; that little of it may be undone afterwards is nobody's concern.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metrics.instruments import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTally:
    offset_commits: Meter = field(default_factory=Meter)
    offset_expirations: Meter = field(default_factory=Meter)
    offset_deletions: Meter = field(default_factory=Meter)
    """By administrators."""
    classic_rebalances: Meter = field(default_factory=Meter)
    """Plans that came from leaders of classic groups."""
    consumer_rebalances: Meter = field(default_factory=Meter)
    """Rises of the epochs of consumer groups."""
