"""The replication machines of one partition: pure, driven by `broker/replica_manager`.

Facts come in as arguments (`on_log_end`, `on_fetch`, `on_tick`), consequences go out as effects. These machines never
see a log: what a replica holds is told to them as offsets.
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
