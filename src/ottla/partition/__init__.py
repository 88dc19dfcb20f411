"""The replication machines of one partition: pure, driven by `broker/replica_manager`, the follower by
`broker/replication`.

Facts come in as arguments (`on_log_end`, `on_fetch`, `on_tick`), consequences go out as effects. A leader never sees a
log: what replicas hold is told to it as offsets. A follower reads bounds and epochs of its own through `LogView`.
"""

from ottla.partition.effects import Effect, HighWatermarkAdvanced, IsrMember, ProposeIsr
from ottla.partition.leader import PartitionLeader
from ottla.partition.replica import FollowerProgress, Heard, LiveBroker
from ottla.partition.standing import Standing

__all__ = [
    "Effect",
    "FollowerProgress",
    "Heard",
    "HighWatermarkAdvanced",
    "IsrMember",
    "LiveBroker",
    "PartitionLeader",
    "ProposeIsr",
    "Standing",
]
